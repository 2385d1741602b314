#!/usr/bin/env tclsh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Lists the tests of one testsuite file, or runs them against an endpoint.
#
#     tclsh runner.tcl --list FILE
#     tclsh runner.tcl --endpoint HOST:PORT --deadline-seconds N [--seed N] [--match GLOB] FILE
#
# It owns the command line, the exit code and the output, which is tcltest's own, one line at a time. It refuses to
# start a server, and to connect while listing. Exit codes: 0 all tests passed or were skipped, 1 a test failed,
# 3 the testsuite file itself is broken, 4 usage.

# tcltest reads the command line and the environment of whoever loads it; neither is its business here.
set arguments $::argv
set ::argv {}
set ::argc 0
unset -nocomplain ::env(TCLTEST_OPTIONS)

set folder [file dirname [file normalize [info script]]]
source -encoding utf-8 [file join $folder resp.tcl]
source -encoding utf-8 [file join $folder endpoint.tcl]

# Ends the program with a message that says what is wrong, where, and what to type instead.
proc fail {code what where try} {
    puts stderr "error: $what ($where)"
    puts stderr "try   $try"
    exit $code
}

proc failUsage {what where} {
    fail 4 $what $where "tclsh runner.tcl --endpoint 127.0.0.1:6379 --deadline-seconds 10 framing.testsuite"
}

# Turns the command line into the array ::endpoint::told. Returns the testsuite file.
proc readArguments {arguments} {
    upvar #0 ::endpoint::told told
    array set told {mode run match * seed 1}
    set files {}
    while {[llength $arguments] > 0} {
        set arguments [lassign $arguments argument]
        switch -exact -- $argument {
            --list { set told(mode) list }
            --endpoint - --deadline-seconds - --seed - --match {
                if {[llength $arguments] == 0} {
                    failUsage "the option needs a value" $argument
                }
                set arguments [lassign $arguments options($argument)]
            }
            default {
                if {[string match -* $argument]} {
                    failUsage "unknown option" $argument
                }
                lappend files $argument
            }
        }
    }
    if {[llength $files] != 1} {
        failUsage "one testsuite file is needed, [llength $files] are given" [expr {[llength $files] ? $files : "FILE"}]
    }
    if {![file readable [lindex $files 0]]} {
        failUsage "no such testsuite file" [lindex $files 0]
    }
    if {$told(mode) eq "list"} {
        if {[array size options] > 0} {
            failUsage "--list goes with no other option" [lindex [array names options] 0]
        }
        return [lindex $files 0]
    }
    readValues [array get options]
    return [lindex $files 0]
}

proc readValues {options} {
    upvar #0 ::endpoint::told told
    foreach required {--endpoint --deadline-seconds} {
        if {![dict exists $options $required]} {
            failUsage "the option is missing" $required
        }
    }
    set endpoint [dict get $options --endpoint]
    # The last colon divides, and the brackets around an IPv6 address are not part of it.
    if {![regexp {^\[?([^][]+)\]?:([1-9]\d{0,4})$} $endpoint - told(host) told(port)] || $told(port) > 65535} {
        failUsage "an endpoint is HOST:PORT, not $endpoint" --endpoint
    }
    set told(deadlineSeconds) [dict get $options --deadline-seconds]
    if {![regexp {^\d+(\.\d+)?$} $told(deadlineSeconds)] || $told(deadlineSeconds) <= 0} {
        failUsage "a deadline is a number of seconds above zero, not $told(deadlineSeconds)" --deadline-seconds
    }
    if {[dict exists $options --seed]} {
        set told(seed) [dict get $options --seed]
        if {![regexp {^\d{1,10}$} $told(seed)] || [scan $told(seed) %lld] >= 1 << 32} {
            failUsage "a seed is a whole number below 4294967296, not $told(seed)" --seed
        }
        set told(seed) [scan $told(seed) %lld]
    }
    if {[dict exists $options --match]} {
        set told(match) [dict get $options --match]
    }
}

# Sources the testsuite file, in a namespace where the words of endpoint.tcl and of resp.tcl are at hand.
proc readTestsuite {file} {
    namespace eval ::suite { namespace path {::endpoint ::resp ::} }
    # A word both have means the one of endpoint.tcl, which closes behind itself.
    if {[catch {namespace eval ::suite [list source -encoding utf-8 $file]} message options]} {
        puts stderr [dict get $options -errorinfo]
        fail 3 "the testsuite file is broken: [lindex [split $message \n] 0]" $file "tclsh runner.tcl --list $file"
    }
}

proc main {arguments} {
    upvar #0 ::endpoint::told told
    # Whoever kills this program must find every line written so far.
    chan configure stdout -buffering line
    set file [readArguments $arguments]
    if {$told(mode) eq "run"} {
        ::tcltest::configure -verbose {start pass skip body error msec} -limitconstraints 0
        puts "endpoint $told(host):$told(port), deadline $told(deadlineSeconds) seconds, seed $told(seed)"
    }
    readTestsuite $file
    if {$told(mode) eq "list"} {
        return 0
    }
    if {$::tcltest::numTests(Total) == 0} {
        failUsage "no test of [file tail $file] matches $told(match)" --match
    }
    set failed $::tcltest::numTests(Failed)
    # tcltest names its summary after the script that it believes is running.
    info script $file
    ::tcltest::cleanupTests
    return [expr {$failed > 0}]
}

exit [main $arguments]
