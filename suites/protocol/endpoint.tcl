# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# The words a testsuite is written in.
#
# It owns the test command, the constraints and the connections of the test that is running. It refuses to know any
# server by name or version: what an endpoint can do is found by asking it, when the first test needs to know.
#
# A test opens what it needs with these words and tidies nothing: connections are closed and its keys deleted for it.

package require Tcl 8.6
package require tcltest 2.3

namespace eval ::endpoint {
    namespace export test constraint connect ask call key plain pause until difference pattern random
    # What the runner was told: host, port, deadlineSeconds, seed, match, and the mode, list or run.
    variable told
    # The test that is running, its connections, and its own connection, opened at the first `ask`.
    variable name ""
    variable connections {}
    variable own ""
    # Constraint name -> script that finds out; and what is known of tests so far.
    variable probes
    variable listed {}
    # Set once a new connection was left without an answer: the endpoint hangs, and waiting again proves nothing.
    variable hangs ""
    array set told {}
    array set probes {}
}

# Declares a test. Options are those of tcltest's own command, -setup and -cleanup excepted: -constraints, -body,
# -result, -match, -returnCodes, -errorCode. The body runs with variables of its own, in the namespace of the testsuite.
proc ::endpoint::test {testName description args} {
    variable told
    variable listed
    if {[lsearch -exact $listed $testName] >= 0} {
        error "two tests are called $testName ([info script])"
    }
    foreach option [dict keys $args] {
        if {$option ni {-constraints -body -result -match -returnCodes -errorCode}} {
            error "test $testName has the unknown option $option ([info script])"
        }
    }
    lappend listed $testName
    if {$told(mode) eq "list"} {
        puts "$testName\t$description"
        return
    }
    if {![string match $told(match) $testName]} {
        return
    }
    set body [dict get $args -body]
    if {[dict exists $args -constraints] && [catch {Probe [dict get $args -constraints]} message options]} {
        # An endpoint that cannot be asked is a failure of the test, never a reason to skip it.
        set body [list return -options [dict replace $options -level 0] "while probing constraints: $message"]
        dict unset args -constraints
    }
    dict set args -body [list ::endpoint::Run $testName [uplevel 1 namespace current] $body]
    uplevel 1 [list ::tcltest::test $testName $description {*}$args]
}

# Declares how a constraint is found out: a script, run at most once, before the first test that asks for it. It must
# return a boolean; the words of this file work in it.
proc ::endpoint::constraint {constraintName script} {
    variable probes
    set probes($constraintName) [list [uplevel 1 namespace current] $script]
}

# Opens one more connection to the endpoint, closed when the test ends.
proc ::endpoint::connect {} {
    variable told
    variable connections
    set connection [::resp::connect $told(host) $told(port) $told(deadlineSeconds)]
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

# Says where two byte strings differ, or "" when they do not: a megabyte is not a failure message.
proc ::endpoint::difference {actual expected} {
    if {$actual eq $expected} {
        return ""
    }
    set lengths "[string length $actual] bytes where [string length $expected] are expected"
    foreach one [split $actual ""] two [split $expected ""] {
        if {$one ne $two} {
            break
        }
        incr at
    }
    set at [expr {[info exists at] ? $at : 0}]
    set here [string range $actual $at $at+15]
    set there [string range $expected $at $at+15]
    return "$lengths; at byte $at: [binary encode hex $here] where [binary encode hex $there] is expected"
}

# Returns length bytes that hold every byte value, NUL, CR and LF too, in an order drawn from the seed. The period is
# 257 bytes: data displaced by any power of two is then different data.
proc ::endpoint::pattern {length} {
    variable told
    if {![info exists told(period)]} {
        sow $told(seed)
        set values {}
        for {set value 0} {$value < 256} {incr value} {
            set values [linsert $values [random [expr {$value + 1}]] $value]
        }
        set told(period) [binary format c* [linsert $values 128 13]]
    }
    return [string range [string repeat $told(period) [expr {$length / 257 + 1}]] 0 $length-1]
}

# A whole number from 0 to limit - 1. Every test begins its own sequence, made of the seed and the name of the test.
proc ::endpoint::random {limit} {
    return [expr {int(rand() * $limit)}]
}

# Begins a sequence of random numbers, by the low 31 bits: the range that srand takes on any width of integer.
proc ::endpoint::sow {number} {
    expr {srand(($number & 0x7ffffffe) + 1)}
}

# --- Below: how a test runs, and how constraints are found out. ------------------------------------------------------

# Runs the body of a test between a check that the endpoint answers and the closing of every connection.
proc ::endpoint::Run {testName space body} {
    variable name $testName
    variable told
    Open
    try {
        DeleteKeys
        pattern 1
        sow [expr {$told(seed) ^ [zlib crc32 $testName]}]
        set result [apply [list {} $body $space]]
        # What a test leaves behind would be dumped, replicated and compared by whoever comes next.
        DeleteKeys
        return $result
    } finally {
        Close
    }
}

# A hung endpoint would cost every test its deadline, so it is asked once and then known to hang.
proc ::endpoint::Open {} {
    variable hangs
    variable name
    variable own ""
    if {$hangs ne ""} {
        throw {RESP TIMEOUT} $hangs
    }
    try {
        set own [connect]
        set answer [::resp::call $own PING]
    } trap {RESP TIMEOUT} {message options} {
        Close
        set hangs "the endpoint has not answered a PING on a new connection since before $name: $message"
        return -options $options $hangs
    } on error {message options} {
        Close
        return -options $options $message
    }
    if {$answer ne {simple PONG}} {
        Close
        error "the endpoint answers a PING with $answer"
    }
}

proc ::endpoint::Close {} {
    variable connections
    variable own ""
    foreach connection $connections {
        ::resp::close $connection
    }
    set connections {}
}

proc ::endpoint::DeleteKeys {} {
    variable own
    # A body may have left its own connection closed, subscribed or in the middle of a transaction.
    set own [connect]
    foreach found [ask KEYS [key *]] {
        ask DEL $found
    }
}

# Finds out those of the constraints that are not known yet, and tells tcltest.
proc ::endpoint::Probe {constraints} {
    variable probes
    variable name probe
    foreach constraintName $constraints {
        if {$constraintName in [array names ::tcltest::testConstraints]} {
            continue
        }
        Open
        try {
            if {[string match command:* $constraintName]} {
                set answer [HasCommand [string range $constraintName 8 end]]
            } elseif {[info exists probes($constraintName)]} {
                lassign $probes($constraintName) space script
                set answer [apply [list {} $script $space]]
            } else {
                error "no probe is declared for the constraint $constraintName"
            }
        } finally {
            DeleteKeys
            Close
        }
        ::tcltest::testConstraint $constraintName [expr {bool($answer)}]
    }
}

# True when the server has the command. COMMAND INFO came with 2.8.13; before it, a call without arguments tells.
proc ::endpoint::HasCommand {command} {
    lassign [call COMMAND INFO $command] type entries
    if {$type eq "array"} {
        set entry [lindex $entries 0]
        return [expr {[lindex $entry 0] ne "null" && [lindex $entry 1] ne ""}]
    }
    lassign [call $command] type text
    return [expr {$type ne "error" || ![string match -nocase "ERR unknown command*" $text]}]
}

# A reply to HELLO 3 that is a map is what it means to have RESP3.
namespace eval ::endpoint {
    constraint resp3 {
        expr {[lindex [call HELLO 3] 0] eq "map"}
    }
}
