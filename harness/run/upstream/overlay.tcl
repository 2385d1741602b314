# Watches upstream's own tests from inside: it is loaded at the end of tests/support/util.tcl in a copy of their tree.
#
# It writes a journal of every test's beginning and end, of what ends a file early, and of the crashes that a test
# announces. It changes only what an emulated server makes necessary: waiting takes longer, `uname -m` names the
# target's machine, SIGABRT reaches the emulated program, every file has ports of its own, and commands that only fill a
# server travel together. The environment says how:
#
#   PLUMB_JOURNAL          the journal
#   PLUMB_FOLDERS          the folders of the servers' records, separated by colons
#   PLUMB_GUEST            the record of a server that ran before the tests, if they use one
#   PLUMB_LEFT_OUT         globs of the names of tests that do not run, a line each
#   PLUMB_PATIENCE         how many times longer to wait
#   PLUMB_MACHINE          what `uname -m` prints
#   PLUMB_SIGABRT          the number of the signal that the target's programs receive as SIGABRT
#   PLUMB_PORT             the first of the file's ports
#   PLUMB_PORTS            how many it has: those of its servers, and before them those of its own processes
#   PLUMB_PRIVATE_NETWORK  whether nobody else uses the network: yes or no
#   PLUMB_SEED             the seed of Tcl's random numbers

# Some files load util.tcl again.
if {[namespace exists ::plumb]} return

namespace eval ::plumb {
    variable journal [open $::env(PLUMB_JOURNAL) a]
    fconfigure $journal -encoding utf-8 -translation lf -buffering full -buffersize 1000000
    variable patience $::env(PLUMB_PATIENCE)
    variable machine $::env(PLUMB_MACHINE)
    # The tests that run now, the innermost last: what upstream reported of each. Tests may be nested.
    variable reports {}
    variable raised {}
    # The command that the present process sent last: its name, its arguments.
    variable last {}
    # Whether commands are collected, and how many are sent together. Client -> the commands without a reply, and their
    # bytes.
    variable fills 0
    variable together 100
    variable unanswered
    variable unsent
    array set unanswered {}
    array set unsent {}
    # Characters that JSON writes as escapes.
    variable escapes {\\ \\\\ \" \\\"}
    for {set code 0} {$code < 32} {incr code} {
        lappend escapes [format %c $code] [format {\u%04x} $code]
    }
    variable longest 20000
    # When a wait first saw that every server of its test had ended, in milliseconds; 0 if one of them runs. The error by
    # which such a wait ends.
    variable all_ended 0
    variable settled [expr {int(10000 * $patience)}]
    variable nobody "plumb: every server of this test has ended"
    # Records of the files that run beside this one, and of those before.
    variable others {}
    foreach folder [split $::env(PLUMB_FOLDERS) :] {
        foreach record [glob -nocomplain -directory $folder guest-*] {
            if {[file tail $record] ne $::env(PLUMB_GUEST)} {lappend others $record}
        }
    }
    # Commands that make a server crash on purpose, and the log lines by which a test says that it expects a crash.
    # DEBUG RESTART and CRASH-AND-RECOVER only start the server's program anew.
    variable crashing {segfault panic assert oom}
    variable expected {
        {*ASSERTION FAILED*} {*Guru Meditation*} {*crashed by signal*} {*Crashed running*} {*dup elements*}
        {*BUG REPORT START*} {*argv*:*}
    }
    variable fatal {SEGV BUS ABRT ILL FPE SIGSEGV SIGBUS SIGABRT SIGILL SIGFPE 11 7 6 4 8}
}
expr {srand($::env(PLUMB_SEED))}

# Write one line of the journal: `event`, then keys and values. Values are texts.
proc ::plumb::note {event args} {
    variable journal
    variable escapes
    variable longest
    set line "{\"event\":\"$event\",\"pid\":\"[pid]\",\"time\":\"[clock milliseconds]\""
    foreach {key value} $args {
        if {[string length $value] > $longest} {
            set value "[string range $value 0 $longest] …"
        }
        append line ",\"$key\":\"[string map $escapes $value]\""
    }
    puts $journal "$line}"
    # The buffer holds a whole line, so that lines of several processes do not mix.
    flush $journal
}

# Numbers of the servers that the present test was given, innermost last.
proc ::plumb::servers {} {
    set numbers {}
    if {[info exists ::servers]} {
        foreach server $::servers {
            if {[dict exists $server pid]} {
                lappend numbers [dict get $server pid]
            }
        }
    }
    if {[info exists ::pids]} {
        set numbers [concat $numbers $::pids]
    }
    return $numbers
}

# Lengths of the fault logs that have grown since the last call: GUEST=BYTES, separated by spaces.
proc ::plumb::growth {} {
    variable lengths
    variable others
    set grown {}
    foreach folder [split $::env(PLUMB_FOLDERS) :] {
        foreach log [glob -nocomplain -directory $folder guest-*/faults.jsonl] {
            if {[file dirname $log] in $others} continue
            set length [file size $log]
            if {![info exists lengths($log)] || $lengths($log) != $length} {
                set lengths($log) $length
                lappend grown [file tail [file dirname $log]]=$length
            }
        }
    }
    return $grown
}

# The command that was sent last, as one line.
proc ::plumb::sent {} {
    variable last
    lassign $last method words
    set line [string toupper $method]
    foreach word $words {
        append line " [string range $word 0 200]"
    }
    return [string range $line 0 400]
}

# Run the body of a test. Every error becomes an assertion, which ends the test and not the whole file; but for the one
# by which a test passes over itself, since Valkey 9.1.
proc ::plumb::attempt {code} {
    variable raised
    set status [catch {uplevel 1 $code} result options]
    if {$status == 1} {
        set raised [dict get $options -errorinfo]
        set passed_over [expr {[string match skipped:* $result] && [info procs ::skip] ne {}}]
        if {!$passed_over && ![string match assertion:* $result]} {
            error "assertion:$result" $raised
        }
    }
    dict incr options -level
    return -options $options $result
}

# Stands in for upstream's `test`, and for `test_block`: since Valkey 9.1 what sets a cluster up reports as a test does.
proc ::plumb::test {original name code args} {
    variable reports
    variable raised
    variable last
    foreach pattern [split $::env(PLUMB_LEFT_OUT) \n] {
        if {[string match $pattern $name]} return
    }
    set before $raised
    set raised {}
    set last {}
    lappend reports {}
    note begin test $name servers [servers] faults [growth]
    set call [list $original $name [list ::plumb::attempt $code] {*}$args]
    set status [catch {uplevel 1 $call} result options]
    lassign [lindex $reports end] outcome message
    set reports [lrange $reports 0 end-1]
    if {$outcome eq {}} {
        # The tests of clusters and sentinels report to nobody: they print, and go on with the next file.
        set outcome [expr {$status == 0 && $raised eq {} ? "ok" : "err"}]
        set message [expr {$raised eq {} ? $result : $raised}]
    } elseif {$status == 1} {
        set outcome exception
        set message $result
    }
    note end test $name outcome $outcome message $message trace $raised faults [growth] sent [sent]
    set raised $before
    dict incr options -level
    return -options $options $result
}

# Stands in for the message by which a client tells upstream's test server what happened.
proc ::plumb::send_data_packet {original fd status data args} {
    variable reports
    if {$status in {ok err skip ignore}} {
        if {[llength $reports]} {
            lset reports end [list $status $data]
        } else {
            note outside status $status message $data
        }
    } elseif {$status in {done exception}} {
        note $status message $data
    }
    tailcall $original $fd $status $data {*}$args
}

# An emulated server is slower: what waits for it tries as many times more often.
#
# A test whose servers have all ended waits no longer: whatever it does next, it does at once.
proc ::plumb::wait_for_condition {original tries delay condition args} {
    variable patience
    variable nobody
    variable all_ended
    set all_ended 0
    set watched "($condition) || \[::plumb::refuse_ended\]"
    set call [list $original [expr {int($tries * $patience)}] $delay $watched {*}$args]
    if {[catch {uplevel 1 $call} result options] && $result eq $nobody} {
        tailcall eval [lindex $args 1]
    }
    dict incr options -level
    return -options $options $result
}

# Raise an error if every server of the present test has ended, and has had time for what follows from its end.
proc ::plumb::refuse_ended {} {
    variable nobody
    variable all_ended
    variable settled
    set pids [servers]
    foreach pid $pids {
        if {![has_ended $pid]} {
            set pids {}
        }
    }
    if {$pids eq {}} {
        set all_ended 0
        return 0
    }
    set now [clock milliseconds]
    if {!$all_ended} {
        set all_ended $now
    }
    if {$now - $all_ended > $settled} {
        error $nobody
    }
    return 0
}

proc ::plumb::server_is_up {original host port tries args} {
    variable patience
    tailcall $original $host $port [expr {int($tries * $patience)}] {*}$args
}

# Whether a process has ended. Tcl collects its children when it starts another one: until then a dead one is a zombie,
# which kill -0 and /proc take for a process.
proc ::plumb::has_ended {pid} {
    if {[catch {
        set file [open /proc/$pid/stat]
        set state [read $file]
        close $file
    }]} {
        return 1
    }
    # PID (NAME) STATE …, where the name may have anything in it (proc(5)).
    return [expr {[string index $state [string last ) $state]+2] in {Z X}}]
}

# A server that died before it was initialized never will be: upstream would wait two minutes for every such server.
# Redis and Valkey give different words, by names that mean the same.
proc ::plumb::wait_server_started {original args} {
    variable patience
    foreach name [info args $original] value $args {
        set $name $value
    }
    for {set waited 0} {$waited < 120000 * $patience} {incr waited 50} {
        # Programs that tell the same would take 3 ms of processor, twenty times a second.
        set dead [has_ended $pid]
        set file [open $stdout]
        set log [read $file]
        close $file
        if {[regexp -- " PID: $pid.*Server (initialized|started)|Failed listening on port" $log]} break
        if {$dead} {
            error "the server ended at its start: $log"
        }
        after 50
    }
    tailcall $original {*}$args
}

# Nodes of clusters and sentinels listen on every interface, unless they are told otherwise.
proc ::plumb::exec_instance {original args} {
    if {$::env(PLUMB_PRIVATE_NETWORK) eq {no}} {
        set file [open [lindex $args end] r+]
        if {![regexp -line {^bind } [read $file]]} {
            puts $file "bind 127.0.0.1"
        }
        close $file
    }
    tailcall $original {*}$args
}

# Nodes take the ports of this file's own range: two files that run beside each other would meet otherwise.
proc ::plumb::spawn_instance {original type port args} {
    set port [expr {$::env(PLUMB_PORT) + ($type eq {sentinel} ? 150 : 0)}]
    tailcall $original $type $port {*}$args
}

# The first port of a search. Before 6.0 upstream cannot be told where to begin, and two files that run beside each other
# begin at the same ports: 11111 for the file's own process, 21111 for servers. A server that loses the race ends.
proc ::plumb::find_available_port {original start args} {
    lassign $::env(PLUMB_PORTS) ofServers ofProcesses
    set first $::env(PLUMB_PORT)
    if {$start < $first || $start >= $first + $ofProcesses + $ofServers} {
        set start [expr {$start < 20000 ? $first : $first + $ofProcesses}]
    }
    tailcall $original $start {*}$args
}

# Before 5.0, or 6.0 for nodes, upstream cannot be told to keep what its servers printed (--dont-clean). What it removes at
# its end has the reports of a detector, and the complaints of an emulator.
proc ::plumb::cleanup {original args} {
    if {![info exists ::pids]} return
    # The programs for nodes also end them here.
    set ::dirs {}
    tailcall $original {*}$args
}

# The programs that run the tests of clusters and sentinels call this at their end; test_helper.tcl reports `done`.
proc ::plumb::end_tests {original args} {
    note done
    tailcall $original {*}$args
}

proc ::plumb::count_log_message {original args} {
    announce_log [lindex $args end]
    tailcall $original {*}$args
}

proc ::plumb::wait_for_log_messages {original server patterns line tries args} {
    variable patience
    foreach pattern $patterns {
        announce_log $pattern
    }
    tailcall $original $server $patterns $line [expr {int($tries * $patience)}] {*}$args
}

# Note that a test expects a crash if it looks for this in the log.
proc ::plumb::announce_log {sought} {
    variable expected
    foreach pattern $expected {
        if {[string match $pattern $sought]} {
            note announced message "log: $sought"
            return
        }
    }
}

# The client of Redis' tests and that of Valkey's are one, in a namespace of either name.
proc ::plumb::dispatch {original id method args} {
    variable crashing
    variable last
    variable fills
    set last [list $method $args]
    if {[string equal -nocase $method debug] && [string tolower [lindex $args 0]] in $crashing} {
        note announced message "command: $method $args"
    }
    if {$fills} {
        tailcall collect $original $id $method {*}$args
    }
    tailcall $original $id $method {*}$args
}

# Stands in for a procedure that fills a server and looks at no reply. It sends one command after the other, and waits
# for each: two thirds of what such a command costs is waiting and waking up, of the server and of this process.
proc ::plumb::fill {original args} {
    variable fills
    # A body with a command of a client in brackets looks at its reply.
    if {$fills || [regexp {\[\s*(r|\$\w+)\s} [info body $original]]} {
        tailcall $original {*}$args
    }
    set fills 1
    set status [catch {
        set result [uplevel 1 [list $original {*}$args]]
        settle
        set result
    } result options]
    set fills 0
    array unset ::plumb::unsent
    array unset ::plumb::unanswered
    dict incr options -level
    return -options $options $result
}

# Keep a command of a client for later, and its reply.
proc ::plumb::collect {original id method args} {
    variable together
    variable unanswered
    variable unsent
    variable last
    set space [namespace qualifiers $original]
    if {[set ${space}::deferred($id)] || ![set ${space}::blocking($id)] || [set ${space}::fd($id)] eq {}
        || [info commands ${space}::__method__$method] ne {}} {
        settle
        tailcall $original $id $method {*}$args
    }
    set client [list $original $id]
    if {![info exists unanswered($client)]} {
        # What other clients have sent comes before.
        settle
    }
    append unsent($client) *[expr {[llength $args] + 1}]\r\n\$[string length $method]\r\n$method\r\n
    foreach word $args {
        append unsent($client) \$[string length $word]\r\n $word \r\n
    }
    lappend unanswered($client) $last
    if {[llength $unanswered($client)] >= $together} {
        settle
    }
    return {}
}

# Send what was collected, and read its replies. An error reply is thrown, as it would have been without delay.
proc ::plumb::settle {} {
    variable unanswered
    variable unsent
    variable last
    foreach {client commands} [array get unanswered] {
        {*}$client write $unsent($client)
        {*}$client flush
        unset unsent($client) unanswered($client)
        foreach last $commands {
            {*}$client read
        }
    }
}

proc ::plumb::execute {args} {
    variable fatal
    variable machine
    if {$args eq {uname -m}} {
        return $machine
    }
    if {[lindex $args 0] eq {kill} && [string trimleft [lindex $args 1] -] in $fatal} {
        note announced message "command: $args"
    }
    if {[lindex $args 0] eq {kill} && [lindex $args 1] in {-SIGABRT -ABRT -6}} {
        # The emulator keeps SIGABRT for its own end, and takes another signal for the program's.
        lset args 1 -$::env(PLUMB_SIGABRT)
    }
    tailcall ::plumb_original_exec {*}$args
}

# Put one of the procedures above before upstream's, which stays in its namespace under another name. Ours is told that
# name first.
proc ::plumb::stand_in {theirs ours} {
    set kept [string trimright [namespace qualifiers $theirs] :]::plumb_original_[namespace tail $theirs]
    if {[info commands $kept] ne {}} {
        rename $kept {}
    }
    rename $theirs $kept
    ::plumb::define $theirs args "tailcall ::plumb::$ours $kept {*}\$args"
}

set ::plumb::stand_ins {
    test test
    test_block test
    send_data_packet send_data_packet
    wait_for_condition wait_for_condition
    server_is_up server_is_up
    wait_server_started wait_server_started
    count_log_message count_log_message
    wait_for_log_messages wait_for_log_messages
    exec_instance exec_instance
    spawn_instance spawn_instance
    find_available_port find_available_port
    cleanup cleanup
    end_tests end_tests
    redis::__dispatch__ dispatch
    valkey::__dispatch__ dispatch
    create_random_dataset fill
}

rename exec ::plumb_original_exec
rename proc ::plumb::define
::plumb::define exec args {tailcall ::plumb::execute {*}$args}

# Some of these procedures are defined later than this file, or twice.
::plumb::define proc {name arguments body} {
    uplevel 1 [list ::plumb::define $name $arguments $body]
    set plain [string trimleft $name :]
    if {[dict exists $::plumb::stand_ins $plain] && [uplevel 1 {namespace current}] eq {::}} {
        ::plumb::stand_in ::$plain [dict get $::plumb::stand_ins $plain]
    }
}

dict for {theirs ours} $::plumb::stand_ins {
    if {[info procs ::$theirs] ne {}} {
        ::plumb::stand_in ::$theirs $ours
    }
}
