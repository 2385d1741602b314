# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# What an endpoint can do, found out by asking it when the first test needs to know.
#
# It owns constraints: their declaration, their probes and the answers so far. It refuses versions and names of servers.
# If there is an oracle, a native build of the same source, both are asked: what only one of them can do is a fault of the
# other, and no reason to skip a test.
# `command:NAME` needs no declaration; the rest are declared here, where several files ask for them, or in a testsuite.

namespace eval ::endpoint {
    namespace export constraint accepted
    # Namespace and name of a constraint -> script that finds out. Files may mean different things by one name.
    variable probes
    # The same, or of a command the name alone -> what was found out.
    variable answers
    # The same, for the constraints that are about the server's data.
    variable ofData
    array set probes {}
    array set ofData {}
    array set answers {}
}

# Declares how a constraint is found out: a script, run at most once, before the first test that asks for it. It must
# return a boolean; the words of this file work in it. The constraint is known to the tests of the same testsuite file,
# or to all where this file declares it. With -data it is about the server's data: the oracle, which has others, is not
# asked.
proc ::endpoint::constraint {args} {
    variable probes
    variable ofData
    set script [lindex $args end]
    set key [list [uplevel 1 namespace current] [lindex $args end-1]]
    set probes($key) $script
    set ofData($key) [expr {[lindex $args 0] eq "-data"}]
}

# The key of a constraint, as the tests of a namespace mean it.
proc ::endpoint::Meant {space constraintName} {
    variable probes
    if {[string match command:* $constraintName]} {
        return $constraintName
    }
    foreach declaredIn [list $space ::endpoint] {
        if {[info exists probes([list $declaredIn $constraintName])]} {
            return [list $declaredIn $constraintName]
        }
    }
    error "no probe is declared for the constraint $constraintName"
}

# For probes: false when the server says that it has no such command, subcommand or option, true when it carries it out.
# Any other error is thrown: a server that is wrong must not pass for one that is old.
proc ::endpoint::accepted {args} {
    lassign [call {*}$args] type text
    if {$type ne "error"} {
        return 1
    }
    foreach sign {"*unknown command*" "*unknown subcommand*" "*syntax error*" "*wrong number of arg*" "*try * help*"
            "*unsupported option*" "*unrecognized option*" "*invalid option*" "*unknown option*" "*must be one of*"} {
        if {[string match -nocase $sign $text]} {
            return 0
        }
    }
    throw {RESP ERROR} "[join $args] is answered with: $text"
}

# Finds out those of a test's constraints that are not known yet, and tells tcltest. Returns those up to the first that
# is not met: the reason why the test is skipped. A probe may so rely on the constraints before it.
proc ::endpoint::Probe {space constraints} {
    variable answers
    set asked {}
    foreach constraintName $constraints {
        # tcltest's own array has every constraint that is asked of it, as one that is not met.
        lappend asked $constraintName
        set meant [Meant $space $constraintName]
        if {![info exists answers($meant)]} {
            set answers($meant) [Agreed $constraintName $meant]
        }
        # Another file may mean something else by the name.
        ::tcltest::testConstraint $constraintName $answers($meant)
        if {!$answers($meant)} break
    }
    return $asked
}

# What the endpoint answers, and the oracle as well. Throws when they differ.
proc ::endpoint::Agreed {constraintName meant} {
    variable told
    variable ofData
    if {$told(oracle) eq "" || ([info exists ofData($meant)] && $ofData($meant))} {
        return [Answer $meant]
    }
    set there [AtOracle $meant]
    set here [Answer $meant]
    if {$here != $there} {
        throw {CONSTRAINT DIFFERS} "the constraint $constraintName is [lindex {{not met} met} $here] here,\
            and [lindex {{not met} met} $there] by the native build of the same source"
    }
    return $here
}

# Asks the oracle. What keeps it from answering is said in a line of its own: it is nothing that a server did wrong.
proc ::endpoint::AtOracle {meant} {
    variable told
    lassign [list $told(endpoint) $told(record)] here record
    # A proxy records what the oracle is asked.
    array set told [list endpoint $told(oracle) record {}]
    try {
        return [Answer $meant]
    } on error {message options} {
        if {[lrange [dict get $options -errorcode] 0 1] in {{RESP CLOSED} {RESP TIMEOUT} {RESP REFUSED}}} {
            puts "oracle lost: $message"
        }
        return -options $options "the native build: $message"
    } finally {
        array set told [list endpoint $here record $record]
    }
}

# Runs a probe, on connections of its own.
proc ::endpoint::Answer {meant} {
    variable probes
    Open
    try {
        if {[string match command:* $meant]} {
            set answer [HasCommand [string range $meant 8 end]]
        } else {
            set answer [apply [list {} $probes($meant) [lindex $meant 0]]]
        }
    } finally {
        DeleteKeys
        Close
    }
    return [expr {bool($answer)}]
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

# --- What several files ask for. --------------------------------------------------------------------------------------

namespace eval ::endpoint {
    # A reply to HELLO 3 that is a map is what it means to have RESP3.
    constraint resp3 {
        expr {[lindex [call HELLO 3] 0] eq "map"}
    }
    # What takes a slow machine too long for the quick tier.
    constraint fullTier { ::data::forTier 0 1 1 }
    constraint scripting {
        expr {[call EVAL "return 1" 0] eq {integer 1}}
    }
    # Before 3.2 texts that are almost numbers are taken for some: grammar, the same on every machine.
    constraint strictNumbers {
        ask SET [key probe] ""
        expr {[lindex [call INCR [key probe]] 0] eq "error"}
    }
    # DEBUG can be switched off (since 7.0 it is, for everybody).
    constraint debugging {
        lassign [call DEBUG SLEEP 0] type text
        if {$type eq "error" && ![string match "*not allowed*" $text]} {
            throw {RESP ERROR} $text
        }
        expr {$type ne "error"}
    }
}
