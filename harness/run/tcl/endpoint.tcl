# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# The words a testsuite is written in.
#
# It owns the test command, and the connections, keys and configuration of the test that is running. It refuses to know
# any server by name or version: what an endpoint can do is found by asking it (constraints.tcl).
#
# A test opens what it needs with these words and tidies nothing: connections are closed and its keys deleted for it.

package require Tcl 8.6
package require tcltest 2.3

namespace eval ::endpoint {
    namespace export test connect ask call pipelined key plain pause until scanned configure encoding \
        blocked waiting
    # What the runner was told: endpoint, deadlineSeconds, seed, tier, match, client, the mode: list, run or serve; the
    # oracle's endpoint, or nothing; the file that connections are recorded in, or nothing.
    variable told
    # The test that is running, its connections, and its own connection, opened at the first `ask`.
    variable name ""
    variable connections {}
    variable own ""
    # Test name -> description, options, namespace, file.
    variable tests
    # What the test has configured: name and value before.
    variable configured {}
    # After so many seconds without a reply, the endpoint is asked whether it may still come. Each reply of the native
    # build has this time, and no other.
    variable silence 5
    # Endpoint -> why it hangs: it left a new connection without an answer, and waiting again proves nothing.
    variable hangs
    array set told {}
    array set tests {}
    array set hangs {}
}

# Declares a test. Options are those of tcltest's own command, -setup and -cleanup excepted: -constraints, -body,
# -result, -match, -returnCodes, -errorCode. The body runs with variables of its own, in the namespace of the testsuite.
proc ::endpoint::test {testName description args} {
    variable told
    variable tests
    if {[info exists tests($testName)]} {
        error "two tests are called $testName ([info script])"
    }
    foreach option [dict keys $args] {
        if {$option ni {-constraints -body -result -match -returnCodes -errorCode}} {
            error "test $testName has the unknown option $option ([info script])"
        }
    }
    set file [info script]
    set tests($testName) [list $description $args [uplevel 1 namespace current] $file]
    switch -exact -- $told(mode) {
        list { puts "$testName\t$description" }
        serve { puts "$file\t$testName\t$description" }
        run {
            if {[string match $told(match) $testName]} {
                runTest $testName
            }
        }
    }
}

# Runs a test that was declared, with tcltest's own command. Returns its file.
proc ::endpoint::runTest {testName} {
    variable tests
    if {![info exists tests($testName)]} {
        error "no test is called $testName ([info script])"
    }
    lassign $tests($testName) description options space file
    set body [dict get $options -body]
    set died 0
    if {[dict exists $options -constraints]} {
        if {[catch {Probe $space [dict get $options -constraints]} answer outcome]} {
            # An endpoint that cannot be asked is a failure of the test, never a reason to skip it.
            set body [list return -options [dict replace $outcome -level 0] "while probing constraints: $answer"]
            set answer {}
            set died [expr {[dict get $outcome -errorcode] eq {RESP CLOSED}}]
            set ::endpoint::name $testName
        }
        dict set options -constraints $answer
    }
    # One that dies of a probe may still take a connection, and what it is sent there would pass for what it died of.
    dict set options -body [expr {$died ? $body : [list ::endpoint::Run $testName $space $body]}]
    namespace eval $space [list ::tcltest::test $testName $description {*}$options]
    return $file
}

# Opens one more connection to the endpoint, closed when the test ends.
proc ::endpoint::connect {} {
    variable told
    variable connections
    set connection [::resp::connect $told(endpoint) $told(deadlineSeconds) {*}$told(record)]
    lappend connections $connection
    return $connection
}

# Sends a command on the test's own connection and returns the typed reply.
proc ::endpoint::call {args} {
    variable own
    if {$own eq ""} {
        set own [connect]
    }
    return [::resp::call $own {*}$args]
}

# Sends a command on the test's own connection and returns the reply as plain Tcl. An error reply is thrown.
proc ::endpoint::ask {args} {
    return [plain [call {*}$args]]
}

# Turns a typed reply into plain Tcl: text, "(nil)", a list or, for a map, a flat list. Throws RESP ERROR for an error.
proc ::endpoint::plain {reply} {
    lassign $reply type value
    switch -- $type {
        array - set - push - map { return [lmap element $value {plain $element}] }
        null { return (nil) }
        error - bloberror { throw {RESP ERROR} $value }
        attribute { return [plain [lindex $value 1]] }
        verbatim { return [lindex $value 1] }
        default { return $value }
    }
}

# The name of a key that belongs to this test only.
proc ::endpoint::key {suffix} {
    variable name
    return "plumbline:$name:$suffix"
}

# Returns when the server has read everything sent to it before, on any connection. It is the answer to a PING on
# another connection that proves it: bytes that had arrived earlier are read in the same turn of the event loop or in
# an earlier one, and answers leave at the end of the turn. A pause in time would prove nothing on a slow machine.
proc ::endpoint::pause {} {
    ask PING
    return
}

# Waits until an expression is true. Throws RESP TIMEOUT when it is not within the deadline.
proc ::endpoint::until {expression} {
    variable told
    set end [expr {[clock milliseconds] + round(1000 * $told(deadlineSeconds))}]
    while {![uplevel 1 [list expr $expression]]} {
        if {[clock milliseconds] > $end} {
            throw {RESP TIMEOUT} "not true within $told(deadlineSeconds) seconds: [string trim $expression]"
        }
        after 2 {set ::endpoint::turn 1}
        vwait ::endpoint::turn
    }
    return
}

# Sends commands, each a list, in one pipeline on the test's own connection. Returns their replies as plain Tcl, those
# that are errors as their text.
proc ::endpoint::pipelined {commands} {
    variable own
    ::resp::send $own [join [lmap command $commands {::resp::encode {*}$command}] ""]
    return [lmap - $commands {
        # Not by a conditional expression, which would make numbers of texts like -0.
        set reply [::resp::reply $own]
        if {[lindex $reply 0] eq "error"} {
            set reply [list simple [lindex $reply 1]]
        }
        plain $reply
    }]
}

# Collects what a command of the SCAN family finds: it is called with each cursor in place of the word CURSOR.
proc ::endpoint::scanned {args} {
    set cursor 0
    set found {}
    while 1 {
        lassign [ask {*}[string map [list CURSOR $cursor] $args]] cursor part
        lappend found {*}$part
        if {$cursor eq "0"} {
            return $found
        }
    }
}

# Sets a configuration parameter until the test ends. Its names in different versions are a list; the first one that
# the server has is set. Throws when it has none, or refuses the value.
proc ::endpoint::configure {names value} {
    variable configured
    foreach configName $names {
        lassign [ask CONFIG GET $configName] found before
        if {$found ne ""} {
            lappend configured $configName $before
            ask CONFIG SET $configName $value
            return
        }
    }
    error "the server has no parameter [join $names { or }]"
}

# The encoding of a key's value. Names that versions gave to the same role are one: a ziplist, or a quicklist of
# ziplists, became a listpack.
proc ::endpoint::encoding {keyName} {
    return [string map {ziplist listpack} [ask OBJECT ENCODING $keyName]]
}

# Sends a command that blocks on a connection, and returns when the server has it on its list of blocked clients.
proc ::endpoint::blocked {connection args} {
    set before [waiting]
    ::resp::send $connection [::resp::encode {*}$args]
    until {[waiting] > $before}
}

# How many clients of the server are blocked.
proc ::endpoint::waiting {} {
    regexp {blocked_clients:(\d+)} [ask INFO clients] - count
    return $count
}

# --- Below: how a test runs. -----------------------------------------------------------------------------------------

# Runs the body of a test between a check that the endpoint answers and the closing of every connection.
proc ::endpoint::Run {testName space body} {
    variable name $testName
    variable told
    variable own
    # That it began.
    flush stdout
    Open
    try {
        DeleteKeys
        ::data::begin $told(seed) $testName
        set result [apply [list {} $body $space]]
        # A body may have left its own connection closed, subscribed or in the middle of a transaction.
        set own [connect]
        Restore
        # Later tests would dump, replicate and compare the keys that a test leaves behind.
        DeleteKeys
        return $result
    } trap {RESP TIMEOUT} {message options} {
        Close
        # A server that owes one reply may yet be well; one that leaves a new connection waiting is not, and Open says so.
        Open
        Restore
        return -options $options $message
    } on error {message options} {
        # The server may be gone: that is what the test says then, and not this.
        catch {
            if {[llength $::endpoint::configured] > 0} {
                Answers
                set own [connect]
                Restore
            }
        }
        return -options $options $message
    } finally {
        Close
    }
}

# A hung endpoint would cost every test its deadline, so it is asked once and then known to hang.
proc ::endpoint::Open {} {
    variable told
    variable hangs
    variable name
    variable own ""
    variable configured {}
    set endpoint $told(endpoint)
    if {[info exists hangs($endpoint)]} {
        throw {RESP TIMEOUT} $hangs($endpoint)
    }
    try {
        set own [connect]
        set answer [::resp::call $own PING]
    } trap {RESP TIMEOUT} message {
        Close
        set hangs($endpoint) "the endpoint has timed out on a PING on a new connection since $name: $message"
        throw {RESP TIMEOUT} $hangs($endpoint)
    } on error {message options} {
        Close
        return -options $options $message
    }
    if {$answer ne {simple PONG}} {
        Close
        error "the endpoint answers a PING with $answer"
    }
}

# Throws unless the server answers a connection that is not recorded: one that dies may still take another connection,
# and what it is sent there would pass for what it died of.
proc ::endpoint::Answers {} {
    variable told
    set connection [::resp::connect $told(endpoint) $told(deadlineSeconds)]
    try {
        ::resp::call $connection PING
    } finally {
        ::resp::close $connection
    }
}

# Whether an awaited reply may still come. It may not if the server answers another connection, and lists no blocked
# client: bytes that had arrived before were read in an earlier turn of its event loop (see `pause`), and so a server that
# lost a reply does not cost a test its whole deadline. Also true if the server does not say, and on a network, where a
# packet may have to be sent again.
proc ::endpoint::MayOwe {} {
    variable silence
    variable told
    if {[string index $told(endpoint) 0] ne "/"} {
        return 1
    }
    set connection [::resp::connect $told(endpoint) $silence]
    try {
        set listed [plain [::resp::call $connection CLIENT LIST]]
    } finally {
        ::resp::close $connection
    }
    return [expr {![regexp {flags=} $listed] || [regexp {flags=[[:alpha:]]*b} $listed]}]
}

proc ::endpoint::Close {} {
    variable connections
    variable own ""
    foreach connection $connections {
        ::resp::close $connection
    }
    set connections {}
}

# Puts back what the test has configured, last change first.
proc ::endpoint::Restore {} {
    variable configured
    foreach {before configName} [lreverse $configured] {
        ask CONFIG SET $configName $before
    }
    set configured {}
}

proc ::endpoint::DeleteKeys {} {
    set found [ask KEYS [key *]]
    if {[llength $found] > 0} {
        ask DEL {*}$found
    }
}
