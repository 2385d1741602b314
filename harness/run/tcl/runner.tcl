#!/usr/bin/env tclsh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Lists the tests of one testsuite file, runs them against an endpoint, or serves: runs those of several files that are
# asked for, one at a time.
#
#     tclsh runner.tcl --list [--client LIBRARY] FILE
#     tclsh runner.tcl --endpoint ENDPOINT --deadline-seconds N [--oracle ENDPOINT] [--seed N] [--tier TIER]
#                      [--match GLOB] [--client LIBRARY] FILE
#     tclsh runner.tcl --serve [--seed N] [--tier TIER] [--client LIBRARY] FILE...
#
# An endpoint is HOST:PORT, or the absolute path of a Unix socket. The library is the compiled resp.c, by default resp.so
# beside it. Serving, it first prints a line for each test, FILE NAME DESCRIPTION between tabs, and a line `over: TESTS`.
# It reads lines of words between tabs, ENDPOINT DEADLINE-SECONDS TEST ORACLE-ENDPOINT RECORD, the last two of which may
# be empty, until there are no more. What a test prints ends with a line `over: TEST`. What it sends and receives is
# appended to the file RECORD.
#
# It owns the command line, the exit code and the output, which is tcltest's own, one line at a time. It refuses to
# start a server, and to connect while listing. Exit codes: 0 all tests passed or were skipped, 1 a test failed,
# 3 the testsuite file itself is broken, 4 usage.

# tcltest reads the command line and the environment of the program that loads it. Neither is meant for it here.
set arguments $::argv
set ::argv {}
set ::argc 0
unset -nocomplain ::env(TCLTEST_OPTIONS)

set folder [file dirname [file normalize [info script]]]
source -encoding utf-8 [file join $folder data.tcl]
source -encoding utf-8 [file join $folder endpoint.tcl]
source -encoding utf-8 [file join $folder constraints.tcl]

# Ends the program with a message that says what is wrong, where, and what to type instead.
proc fail {code what where try} {
    puts stderr "error: $what ($where)"
    puts stderr "try   $try"
    exit $code
}

proc failUsage {what where} {
    fail 4 $what $where "tclsh runner.tcl --endpoint 127.0.0.1:6379 --deadline-seconds 10 framing.testsuite"
}

# Turns the command line into the array ::endpoint::told. Returns the testsuite files: one, unless it serves.
proc readArguments {arguments} {
    upvar #0 ::endpoint::told told
    array set told {mode run match * seed 1 tier quick oracle {} record {} client {}}
    array set options {}
    set files {}
    while {[llength $arguments] > 0} {
        set arguments [lassign $arguments argument]
        switch -exact -- $argument {
            --list - --serve { set told(mode) [string range $argument 2 end] }
            --endpoint - --oracle - --deadline-seconds - --seed - --tier - --match - --client {
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
    if {[llength $files] == 0 || ([llength $files] > 1 && $told(mode) ne "serve")} {
        failUsage "one testsuite file is needed, [llength $files] are given" [expr {[llength $files] ? $files : "FILE"}]
    }
    foreach file $files {
        if {![file readable $file]} {
            failUsage "no such testsuite file" $file
        }
    }
    array set taken {
        list --client
        serve {--seed --tier --client}
        run {--endpoint --oracle --deadline-seconds --seed --tier --match --client}
    }
    foreach option [array names options] {
        if {$option ni $taken($told(mode))} {
            failUsage "--$told(mode) does not go with the option" $option
        }
    }
    readValues [array get options]
    return $files
}

proc readValues {options} {
    upvar #0 ::endpoint::told told
    if {$told(mode) eq "run"} {
        foreach required {--endpoint --deadline-seconds} {
            if {![dict exists $options $required]} {
                failUsage "the option is missing" $required
            }
        }
        set told(endpoint) [readEndpoint [dict get $options --endpoint]]
        readDeadline [dict get $options --deadline-seconds]
    }
    if {[dict exists $options --oracle]} {
        set told(oracle) [readEndpoint [dict get $options --oracle]]
    }
    if {[dict exists $options --seed]} {
        set told(seed) [dict get $options --seed]
        if {![regexp {^\d{1,10}$} $told(seed)] || [scan $told(seed) %lld] >= 1 << 32} {
            failUsage "a seed is a whole number below 4294967296, not $told(seed)" --seed
        }
        set told(seed) [scan $told(seed) %lld]
    }
    if {[dict exists $options --tier]} {
        set told(tier) [dict get $options --tier]
        if {$told(tier) ni {quick full thorough kernel}} {
            failUsage "a tier is quick, full, thorough or kernel, not $told(tier)" --tier
        }
    }
    if {[dict exists $options --match]} {
        set told(match) [dict get $options --match]
    }
    if {[dict exists $options --client]} {
        set told(client) [dict get $options --client]
    }
}

# Returns the endpoint, if it can be one.
proc readEndpoint {endpoint} {
    if {[file pathtype $endpoint] ne "absolute"
            && (![regexp {^(?:\[[^][]+\]|[^][]+):([1-9]\d{0,4})$} $endpoint - port] || $port > 65535)} {
        failUsage "an endpoint is HOST:PORT, or the absolute path of a Unix socket, not $endpoint" --endpoint
    }
    return $endpoint
}

# One word of a command that somebody pastes into a shell, whatever the folder is called.
proc shellWord {word} {
    if {[regexp {^[\w@%+=:,./-]+$} $word]} {
        return $word
    }
    return '[string map {' '\\''} $word]'
}

# Loads the client, which is compiled.
proc loadClient {library} {
    global folder
    set source [file join $folder resp.c]
    if {$library eq ""} {
        set library [file join $folder resp.so]
    }
    if {[catch {load [file normalize $library] Resp} message]} {
        set compile "cc -shared -fPIC -O2 -DUSE_TCL_STUBS [shellWord $source] -ltclstub8.6 -o [shellWord $library]"
        fail 4 "the client cannot be loaded: $message" $library "$compile   (tcl8.6-dev has its header)"
    }
    ::resp::onSilence $::endpoint::silence ::endpoint::MayOwe
}

proc readDeadline {text} {
    upvar #0 ::endpoint::told told
    set told(deadlineSeconds) $text
    if {![regexp {^\d+(\.\d+)?$} $text] || $text <= 0} {
        failUsage "a deadline is a number of seconds above zero, not $text" --deadline-seconds
    }
}

# Sources a testsuite file, in a namespace of its own where the words of endpoint.tcl and of resp.c are at hand.
proc readTestsuite {file} {
    set space ::suite::[file rootname [file tail $file]]
    if {[namespace exists $space]} {
        failUsage "two testsuite files have one name" $file
    }
    # A word both have means the one of endpoint.tcl, which closes behind itself.
    namespace eval $space { namespace path {::endpoint ::data ::resp ::} }
    if {[catch {namespace eval $space [list source -encoding utf-8 $file]} message options]} {
        puts stderr [dict get $options -errorinfo]
        fail 3 "the testsuite file is broken: [lindex [split $message \n] 0]" $file "tclsh runner.tcl --list [shellWord $file]"
    }
}

# Prints tcltest's totals of the tests since the last call. Returns true when one of them failed.
proc printTotals {file} {
    set failed $::tcltest::numTests(Failed)
    # tcltest names its summary after the script that it believes is running.
    info script $file
    ::tcltest::cleanupTests
    return [expr {$failed > 0}]
}

# Runs one test a line, as standard input asks, until it ends.
proc serve {} {
    upvar #0 ::endpoint::told told
    puts "over: TESTS"
    flush stdout
    while {[gets stdin line] >= 0} {
        lassign [split $line \t] endpoint deadlineSeconds testName oracle record
        set told(endpoint) [readEndpoint $endpoint]
        set told(oracle) [expr {$oracle eq "" ? {} : [readEndpoint $oracle]}]
        set told(record) [expr {$record eq "" ? {} : [list $record]}]
        readDeadline $deadlineSeconds
        printTotals [::endpoint::runTest $testName]
        if {[set lost [::resp::lost]] ne ""} {
            puts "record lost: $lost"
        }
        puts "over: $testName"
        flush stdout
    }
}

proc main {arguments} {
    upvar #0 ::endpoint::told told
    set files [readArguments $arguments]
    # Whoever kills this program must find every line written so far. Serving, it writes twice a test: at its begin, and
    # all of its outcome. Each write wakes up the reader.
    chan configure stdout -buffering [expr {$told(mode) eq "serve" ? "full" : "line"}]
    loadClient $told(client)
    if {$told(mode) ne "list"} {
        ::tcltest::configure -verbose {start pass skip body error msec} -limitconstraints 0
    }
    if {$told(mode) eq "run"} {
        puts "endpoint $told(endpoint), deadline $told(deadlineSeconds) seconds, tier $told(tier), seed $told(seed)"
    }
    ::data::seed $told(seed)
    foreach file $files {
        readTestsuite $file
    }
    switch $told(mode) {
        list { return 0 }
        serve { serve; return 0 }
    }
    if {$::tcltest::numTests(Total) == 0} {
        failUsage "no test of [file tail $file] matches $told(match)" --match
    }
    return [printTotals $file]
}

exit [main $arguments]
