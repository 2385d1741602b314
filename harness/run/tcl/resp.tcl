# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# A client for RESP2 and RESP3, small enough to be trusted as a measuring instrument.
#
# It owns one thing: bytes to and from an endpoint, exactly as they are, each operation with a deadline. It refuses to
# interpret: a reply comes back typed, an error reply is a reply like any other, and nothing is retried or reconnected.
# The reply grammar is that of the RESP specification (RESP2) and of RESP3; streamed aggregates are refused.
#
# A connection is a channel name. A reply is a list of two elements, TYPE and VALUE:
#
#     simple TEXT        error TEXT          integer DIGITS       bulk BYTES         null bulk|array|plain
#     array {REPLY ...}  set {REPLY ...}     push {REPLY ...}     map {REPLY REPLY ...}
#     double TEXT        boolean t|f         bignumber DIGITS     verbatim {FORMAT BYTES}
#     bloberror TEXT     attribute {{REPLY REPLY ...} REPLY}      (the attributes, then the reply they belong to)
#
# Numbers stay text, because a client that parses and prints them again would hide what the server printed.
#
# What goes wrong is thrown with an error code, so that a caller can tell the cases apart:
#
#     RESP CLOSED        the other side closed the connection, or reset it
#     RESP TIMEOUT       nothing complete arrived, or nothing could be sent, before the deadline
#     RESP REFUSED       no connection could be made
#     RESP MALFORMED     the bytes received are not RESP

namespace eval ::resp {
    namespace export connect send call encode reply replyBytes closing hangUp close
    # Per connection: deadline seconds, and the bytes of the reply being read. Gone when the connection is closed.
    variable seconds
    variable consumed
    # What the last wait of a connection ended with: ready or late.
    variable woken
    # How much more may be sent on a connection before the kernel is asked again whether it takes anything.
    variable room
    array set seconds {}
    array set consumed {}
    array set woken {}
    array set room {}

    # How much goes into one write(2). Less than the third of a socket buffer that is free when the kernel calls the
    # socket writable, so that Tcl holds back nothing of its own, which `exit` would try to flush, for ever, to a server
    # that hangs. More than a segment of the loopback interface, so that Nagle's algorithm does not wait between pieces.
    variable pieceBytes 65536
    # What a write(2) of a few bytes takes from the room: the kernel keeps a record for each, which is larger than they.
    variable leastBytes 1024
}

# Connects to an endpoint. Every later operation on the connection may take up to deadlineSeconds (a number, fractions
# allowed). Returns the connection. Throws RESP REFUSED or RESP TIMEOUT.
proc ::resp::connect {host port deadlineSeconds} {
    variable seconds
    if {[catch {socket -async $host $port} channel]} {
        throw {RESP REFUSED} "cannot connect to $host:$port: $channel"
    }
    chan configure $channel -blocking 0 -translation binary -buffering none -buffersize 65536
    set seconds($channel) $deadlineSeconds
    if {[catch {Await $channel writable [Deadline $channel] "accept a connection"} message options]} {
        close $channel
        return -options $options $message
    }
    set problem [chan configure $channel -error]
    if {$problem ne ""} {
        close $channel
        throw {RESP REFUSED} "cannot connect to $host:$port: $problem"
    }
    return $channel
}

# Closes a connection; harmless on one that is closed already.
proc ::resp::close {channel} {
    variable seconds
    variable consumed
    variable room
    catch {chan close $channel}
    unset -nocomplain seconds($channel) consumed($channel) room($channel)
    return
}

# Ends the sending side, and closes the connection when the other side has done so: all that was sent has been read then,
# which `close` alone does not wait for. Throws RESP TIMEOUT when the other side keeps it open.
proc ::resp::hangUp {channel} {
    # It may be closed by now.
    catch {chan close $channel write}
    while {[string match "sent *" [set end [closing $channel]]]} {}
    close $channel
    if {$end ne "closed"} {
        throw {RESP TIMEOUT} "timed out waiting for the server to close a connection that was hung up: $end"
    }
    return
}

# Sends raw bytes. What fits into one piece leaves in one write(2). Throws RESP CLOSED or RESP TIMEOUT.
#
# Where the kernel has room for a piece, it has room for as much in smaller ones: it is not asked before each of them,
# which took more than a fifth of this client's processor time in a suite that sends one command at a time.
proc ::resp::send {channel bytes} {
    variable pieceBytes
    variable leastBytes
    variable room
    set until [Deadline $channel]
    set length [string length $bytes]
    for {set start 0} {$start < $length} {incr start $pieceBytes} {
        set piece [expr {max($leastBytes, min($pieceBytes, $length - $start))}]
        if {![info exists room($channel)] || $room($channel) < $piece} {
            Await $channel writable $until "take what was sent ($start of $length bytes sent)"
            set room($channel) $pieceBytes
        }
        incr room($channel) [expr {-$piece}]
        if {[catch {puts -nonewline $channel [string range $bytes $start $start+[expr {$pieceBytes - 1}]]}]} {
            throw {RESP CLOSED} "connection closed by server while sending ($start of $length bytes sent)"
        }
    }
    return
}

# Returns the bytes of one command: an array of bulks, one for each argument.
proc ::resp::encode {args} {
    set bytes "*[llength $args]\r\n"
    foreach argument $args {
        append bytes "\$[string length $argument]\r\n" $argument "\r\n"
    }
    return $bytes
}

# Sends one command and returns its reply.
proc ::resp::call {channel args} {
    send $channel [encode {*}$args]
    return [reply $channel]
}

# Reads one whole reply and returns it as {TYPE VALUE}. Throws RESP CLOSED, RESP TIMEOUT or RESP MALFORMED.
proc ::resp::reply {channel} {
    variable consumed
    set consumed($channel) ""
    return [Parse $channel [Deadline $channel]]
}

# Reads one whole reply and returns the very bytes it was made of.
proc ::resp::replyBytes {channel} {
    variable consumed
    reply $channel
    return $consumed($channel)
}

# Says how the connection goes on when nothing more is asked: "closed" as soon as the server has closed it, otherwise
# "sent N more bytes" or "open after N seconds". Meant for what must end the connection.
proc ::resp::closing {channel} {
    variable seconds
    set until [Deadline $channel]
    while 1 {
        if {[catch {Await $channel readable $until "close the connection"} - options]} {
            return "open after $seconds($channel) seconds"
        }
        if {[catch {chan read $channel} bytes]} {
            # A reset: closed, though not politely.
            return closed
        }
        if {$bytes ne ""} {
            return "sent [string length $bytes] more bytes: [string range $bytes 0 80]"
        }
        if {[chan eof $channel]} {
            return closed
        }
    }
}

# --- Below: how one reply is read. ---------------------------------------------------------------------------------

# The moment, in milliseconds of the clock, at which an operation that begins now is late.
proc ::resp::Deadline {channel} {
    variable seconds
    if {![info exists seconds($channel)]} {
        throw {RESP CLOSED} "connection $channel is closed on this side"
    }
    return [expr {[clock milliseconds] + round(1000 * $seconds($channel))}]
}

# Runs the event loop until the channel is readable or writable. Throws RESP TIMEOUT when it is not, in time.
proc ::resp::Await {channel event until action} {
    variable seconds
    variable woken
    set remaining [expr {max(0, $until - [clock milliseconds])}]
    set woken($channel) ""
    set timer [after $remaining [list set ::resp::woken($channel) late]]
    chan event $channel $event [list set ::resp::woken($channel) ready]
    vwait ::resp::woken($channel)
    chan event $channel $event {}
    after cancel $timer
    set outcome $woken($channel)
    unset woken($channel)
    if {$outcome eq "late"} {
        throw {RESP TIMEOUT} "the server did not $action within $seconds($channel) seconds"
    }
}

proc ::resp::ThrowClosed {channel} {
    variable consumed
    set got [string length $consumed($channel)]
    throw {RESP CLOSED} "connection closed by server ($got bytes into a reply)"
}

# Reads one line and returns it without its CRLF.
proc ::resp::Line {channel until} {
    variable consumed
    while 1 {
        if {[catch {chan gets $channel line} length]} {
            ThrowClosed $channel
        }
        if {$length >= 0 && ![chan eof $channel]} {
            append consumed($channel) $line "\n"
            if {[string index $line end] ne "\r"} {
                throw {RESP MALFORMED} "a line of a reply does not end in CRLF: [string range $line 0 80]"
            }
            return [string range $line 0 end-1]
        }
        if {[chan eof $channel]} {
            ThrowClosed $channel
        }
        Await $channel readable $until "finish its reply"
    }
}

# Reads exactly count bytes and the CRLF behind them, and returns the bytes.
proc ::resp::Block {channel until count} {
    variable consumed
    set block ""
    set missing [expr {$count + 2}]
    while {$missing > 0} {
        if {[catch {chan read $channel $missing} bytes]} {
            ThrowClosed $channel
        }
        if {$bytes eq ""} {
            if {[chan eof $channel]} {
                ThrowClosed $channel
            }
            Await $channel readable $until "finish its reply ($missing bytes missing)"
            continue
        }
        append block $bytes
        append consumed($channel) $bytes
        set missing [expr {$missing - [string length $bytes]}]
    }
    if {[string range $block end-1 end] ne "\r\n"} {
        throw {RESP MALFORMED} "a bulk of $count bytes is not followed by CRLF"
    }
    return [string range $block 0 end-2]
}

# Reads count replies and returns their list.
proc ::resp::Elements {channel until count} {
    set elements {}
    for {set index 0} {$index < $count} {incr index} {
        lappend elements [Parse $channel $until]
    }
    return $elements
}

# A length in a reply: digits, or the -1 of a RESP2 null.
proc ::resp::Length {text} {
    if {![regexp {^(?:\d{1,18}|-1)$} $text]} {
        throw {RESP MALFORMED} "a reply has the length '[string range $text 0 80]'"
    }
    return [scan $text %ld]
}

proc ::resp::Parse {channel until} {
    set line [Line $channel $until]
    set rest [string range $line 1 end]
    switch -exact -- [string index $line 0] {
        + { return [list simple $rest] }
        - { return [list error $rest] }
        : { return [list integer $rest] }
        , { return [list double $rest] }
        ( { return [list bignumber $rest] }
        _ { return [list null plain] }
        \# {
            if {$rest ni {t f}} {
                throw {RESP MALFORMED} "a boolean is neither t nor f: '$rest'"
            }
            return [list boolean $rest]
        }
        \$ {
            set length [Length $rest]
            return [expr {$length < 0 ? {null bulk} : [list bulk [Block $channel $until $length]]}]
        }
        = {
            set block [Block $channel $until [Length $rest]]
            return [list verbatim [list [string range $block 0 2] [string range $block 4 end]]]
        }
        ! { return [list bloberror [Block $channel $until [Length $rest]]] }
        * {
            set length [Length $rest]
            return [expr {$length < 0 ? {null array} : [list array [Elements $channel $until $length]]}]
        }
        ~ { return [list set [Elements $channel $until [Length $rest]]] }
        > { return [list push [Elements $channel $until [Length $rest]]] }
        % { return [list map [Elements $channel $until [expr {2 * [Length $rest]}]]] }
        | {
            set attributes [Elements $channel $until [expr {2 * [Length $rest]}]]
            return [list attribute [list $attributes [Parse $channel $until]]]
        }
    }
    throw {RESP MALFORMED} "a reply begins with '[string range $line 0 80]'"
}
