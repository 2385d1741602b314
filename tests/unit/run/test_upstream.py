"""The suite of upstream's own tests: the overlay's records, the programs that the launcher starts, and the results.

The tests run the real overlay and launcher against a test program of our own, which has the procedures that upstream's
programs have.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shlex
import shutil
import socket
import socketserver
import threading
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.errors import UsageError
from harness.core.model import Abilities, SourceTree
from harness.core.processes import process
from harness.core.wanted_tests import is_selected
from harness.plan.catalog import Catalog
from harness.plan.plan import make_plan
from harness.record import cell_events, event_log, fault_log
from harness.record.cell_events import SENT
from harness.run.cell_spec import PeerServer, UpstreamSpec
from harness.run.upstream import continuation, evidence, results
from harness.run.upstream.awaited_server import are_silent, awaited, told
from harness.run.upstream.continuation import run_to_end
from harness.run.upstream.file_run import FileRun, FileRunSettings, Pace, run_file
from harness.run.upstream.journal import Journal, Reported, UpstreamTest, read_journal
from harness.run.upstream.launches import (
    Launch,
    LaunchVariant,
    compile_launcher,
    exits_on_panic,
    is_whole,
    log_of,
    read_launches,
    write_list,
)
from harness.run.upstream.machine_conditions import condition_on_machine
from harness.run.upstream.native_runs import NativeRuns
from harness.run.upstream.reported_crashes import reported_crash, where_it_crashed
from harness.run.upstream.stage import Stage, Stages, variant
from harness.run.upstream.test_files import UpstreamFile, line_of, selected, upstream_files
from harness.workflows.preparation.upstream_selection import UpstreamSelection, select_upstream
from harness.workflows.workbench import Workbench
from tests.support import cells, fakes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.run.cell_spec import CellSpec

pytestmark = pytest.mark.costly

HELPER = """
source tests/support/util.tcl
set ::all_tests {unit/first unit/second}
# {--timeout} {--durable} {--list-tests}
proc send_data_packet {fd status data args} {puts "\\[$status\\]: $data"}
proc test {name code {okpattern undefined} args} {
    if {[catch {set result [uplevel 1 $code]} error]} {
        if {[string match assertion:* $error]} {
            send_data_packet 0 err "$name: [string range $error 10 end]"
            return
        }
        if {[string match skipped:* $error]} {
            send_data_packet 0 skip "$name: [string range $error 8 end]"
            return
        }
        error $error $::errorInfo
    }
    if {$okpattern ne "undefined" && $okpattern ne $result} {
        send_data_packet 0 err "$name: expected $okpattern, got $result"
    } else {
        send_data_packet 0 ok $name
    }
}
proc wait_for_condition {tries delay condition _else_ script} {
    while {[incr tries -1] >= 0} {
        if {[uplevel 1 [list expr $condition]]} return
        after $delay
    }
    uplevel 1 $script
}
if {[lindex $argv 0] eq "--list-tests"} {
    foreach name $::all_tests {puts $name}
    exit
}
set name [lindex $argv 1]
if {[catch {source tests/$name.tcl} error]} {
    send_data_packet 0 exception $error
    exit 1
}
send_data_packet 0 done $name
"""

FILE = """
source tests/support/util.tcl
test "passes" {expr 1+1} 2
test "fails by an assertion" {error "assertion:Expected 1"}
test "fails by another error" {expr {[string length abc] / 0}}
test "answers otherwise" {set x 3} 4
send_data_packet 0 ignore "a server of other tags"
test "waits" {
    set turns 0
    wait_for_condition 10 1 {[incr turns] > 25} else {error "assertion:not patient"}
    set turns
} 26
test "knows the machine" {exec uname -m} m88k
test "starts a server" {exec src/redis-server one {two words} {}} {}
proc skip {why} {error "skipped:$why"}
test "passes over itself" {skip "not here"}
test "announces" {catch {exec kill -SIGSEGV 999999999}; count_log_message 0 "*ASSERTION FAILED*"} 1
test "odd: \\u00e9 \\t \\" \\\\ \\u0001" {set y 1}
"""

NODES = """
proc exec_instance {type folder file} {return $type}
proc spawn_instance {type port count} {return $port}
proc find_available_port {start} {return $start}
test "first ports" {lmap start {11111 31211 21299} {find_available_port $start}} {21000 21040 21299}
test "ports of nodes" {list [spawn_instance redis 30000 3] [spawn_instance sentinel 20000 3]} {21000 21150}
foreach {name lines} {open {port 7} bound {{bind 10.0.0.1}}} {
    set file [open tests/tmp/$name w]
    puts $file [join $lines \\n]
    close $file
    test $name {exec_instance redis . tests/tmp/$name} redis
}
"""

VALKEY = """
test_block "sets a cluster up" {set x 1}
test_block "sets up what fails" {error "no cluster"}
set file [open tests/tmp/stdout w]
puts $file " PID: [pid]. Server initialized"
close $file
test "a server starts" {wait_server_started src/valkey-server conf tests/tmp/stdout stderr [pid]} tests/tmp/stdout
set dead [exec sh -c {exit 1} &]
set file [open tests/tmp/stdout w]
puts $file " PID: $dead. It dies before it is initialized"
close $file
test "a server dies at its start" {wait_server_started redis-server conf tests/tmp/stdout err $dead} never
test "reads a crash report" {wait_for_log_messages 0 {"*argv*0*: *SET*"} 0 10 1} 30
test "restarts a server" {::valkey::__dispatch__ 1 debug restart} debug
test "a client of Valkey's" {::valkey::__dispatch__ 1 debug segfault} debug
"""

FILLS = """
namespace eval redis {}
array set ::redis::fd {1 channel}
array set ::redis::blocking {1 1}
array set ::redis::deferred {1 0}
foreach method {read write flush} {proc ::redis::__method__$method {id fd args} {}}
proc ::redis::__dispatch__ {id method args} {
    incr ::calls($method)
    if {$method eq "write"} {append ::written {*}$args}
    if {$method eq "read" && $::calls(read) == $::refused} {error "ERR of [expr {$::refused - 1}]"}
    return $method
}
proc r {args} {::redis::__dispatch__ 1 {*}$args}
proc create_random_dataset {count command} {
    for {set i 0} {$i < $count} {incr i} {
        r $command key $i
    }
    return filled
}
proc counted {} {lmap name [lsort [array names ::calls]] {list $name $::calls($name)}}
proc begin {refused} {
    unset -nocomplain ::calls ::written
    set ::refused $refused
}
test "fills" {begin 0; list [create_random_dataset 250 lpush] [counted]} {filled {{flush 3} {read 250} {write 3}}}
test "sends what it would have sent" {
    begin 0
    create_random_dataset 2 set
    string map {\\r\\n /} $::written
} {*3/$3/set/$3/key/$1/0/*3/$3/set/$3/key/$1/1/}
test "refused" {begin 150; create_random_dataset 250 lpush}
test "as before" {begin 0; list [r ping] [counted]} {ping {{ping 1}}}
proc create_random_dataset {count command} {
    for {set i 0} {$i < $count} {incr i} {lappend replies [r $command key $i]}
    return $replies
}
test "looks at replies" {begin 0; list [create_random_dataset 2 lpush] [counted]} {{lpush lpush} {{lpush 2}}}
"""

PRINTS = """
file mkdir tests/tmp/server.1 tests/tmp/node
set file [open tests/tmp/server.1/stdout w]
puts $file printed
close $file
file copy tests/tmp/server.1/stdout tests/tmp/node/stdout
proc cleanup {} {
    foreach pid [expr {[info exists ::pids] ? $::pids : {}}] {set ::ended $pid}
    file delete -force tests/tmp/server.1
    foreach dir [expr {[info exists ::dirs] ? $::dirs : {}}] {file delete -force $dir}
}
test "the helper removes nothing" {cleanup; file exists tests/tmp/server.1/stdout} 1
set ::pids 7
set ::dirs tests/tmp/node
test "nodes are ended" {cleanup; list $::ended [file exists tests/tmp/node/stdout]} {7 1}
"""

UTILITIES = """
proc test_block {name code} {
    if {[catch {uplevel 1 $code} error]} {
        send_data_packet 0 err "$name: $error"
        return 0
    }
    send_data_packet 0 ok $name
    return 1
}
proc wait_server_started {executable config_file stdout stderr pid} {return $stdout}
proc wait_for_log_messages {server patterns line tries delay} {return $tries}
namespace eval valkey {}
proc ::valkey::__dispatch__ {id method args} {return $method}
proc count_log_message {server pattern} {return 1}
proc server_is_up {host port tries} {return $tries}
"""


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = Cache(tmp_path_factory.mktemp("cache"))
    return compile_launcher(cache, Catalog().toolchains["gcc"])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A release with tests."""
    tests = tmp_path / "release" / "tests"
    for name in ("support", "unit/moduleapi", "cluster/tests", "tmp"):
        (tests / name).mkdir(parents=True)
    (tests / "test_helper.tcl").write_text(HELPER, "utf-8")
    (tests / "support" / "util.tcl").write_text(UTILITIES, "utf-8")
    (tests / "unit" / "first.tcl").write_text(FILE, "utf-8")
    (tests / "unit" / "nodes.tcl").write_text(NODES, "utf-8")
    (tests / "unit" / "valkey.tcl").write_text(VALKEY, "utf-8")
    (tests / "unit" / "fills.tcl").write_text(FILLS, "utf-8")
    (tests / "unit" / "prints.tcl").write_text(PRINTS, "utf-8")
    (tests / "unit" / "second.tcl").write_text("test hangs {after 100000}\n", "utf-8")
    (tests / "unit" / "moduleapi" / "hooks.tcl").write_text("", "utf-8")
    (tests / "cluster" / "run.tcl").write_text("", "utf-8")
    (tests / "cluster" / "tests" / "03-failover-loop.tcl").write_text("", "utf-8")
    return tests.parent


@pytest.fixture
def stage(tmp_path: Path, tree: Path, launcher: Path) -> Iterator[Stage]:
    """A copy of the tests, with /bin/echo as the server."""
    programs = tmp_path / "programs"
    (programs / "src").mkdir(parents=True)
    (programs / "src" / "redis-server").write_bytes(b"")
    (tmp_path / "home").mkdir()
    staged = Stage(tmp_path / "stage", tree, launcher, programs, counter=tmp_path / "number", first_port=21000)
    echo = LaunchVariant(home=tmp_path / "home", program="/bin/echo", arguments=("{self}", "-n"))
    staged.prepare([echo], echo)
    yield staged
    staged.remove()


def settings_of(
    tmp_path: Path, *, stall_seconds: float = 30.0, private: bool = True, left_out: tuple[str, ...] = ()
) -> FileRunSettings:
    return FileRunSettings(
        target=msgspec.structs.replace(Catalog().targets["native"], machine="m88k"),
        pace=Pace(patience=3.0, stall_seconds=stall_seconds, silent_seconds=stall_seconds),
        homes=[tmp_path / "home"],
        seed=3,
        private=private,
        left_out=left_out,
    )


def run(
    stage: Stage,
    name: str,
    tmp_path: Path,
    *,
    stall_seconds: float = 30.0,
    private: bool = True,
    left_out: tuple[str, ...] = (),
) -> FileRun:
    settings = settings_of(tmp_path, stall_seconds=stall_seconds, private=private, left_out=left_out)
    file = UpstreamFile(name=name, driver="helper")
    return run_file(stage, file, settings, log=tmp_path / "log", cancelled=threading.Event())


def test_the_overlay_records_every_test_and_its_outcome(stage: Stage, tmp_path: Path) -> None:
    done = run(stage, "unit/first", tmp_path)
    assert done.journal.done
    assert not done.stalled
    assert {test.name: test.reported for test in done.journal.tests} == {
        "passes": "ok",
        "fails by an assertion": "err",
        "fails by another error": "err",
        "answers otherwise": "err",
        "waits": "ok",
        "knows the machine": "ok",
        "starts a server": "err",
        "passes over itself": "skip",
        "announces": "ok",
        'odd: \u00e9 \t " \\ \u0001': "ok",
    }
    messages = {test.name: test.message for test in done.journal.tests}
    assert "Expected 1" in messages["fails by an assertion"]
    assert "divide by zero" in messages["fails by another error"]
    assert "expected 4, got 3" in messages["answers otherwise"]
    announced = {test.name: test.announced for test in done.journal.tests if test.announced}
    assert announced == {"announces": ("command: kill -SIGSEGV 999999999", "log: *ASSERTION FAILED*")}


def test_the_exit_status_of_upstreams_program_is_recorded(stage: Stage, tmp_path: Path) -> None:
    """Its programs for clusters report some failures in no other way."""
    file = stage.folder / "tests" / "unit" / "second.tcl"
    for words, code in (("", 0), ("exit 3", 3), ("exec kill -SEGV [pid]; after 9000", -11)):
        file.write_text(f"test passes {{expr 1}} 1\nsend_data_packet 0 done second\n{words}\n", "utf-8")
        done = run(stage, "unit/second", tmp_path)
        assert (done.journal.done, done.code) == (True, code)
    (item, whole) = results.items_of(listed("passes"))
    assert results.failing([item, whole], done) == {results.WHOLE}
    assert results.failing([item, whole], done, code_here=-11) == set()


def test_a_test_that_is_left_out_does_not_run(stage: Stage, tmp_path: Path) -> None:
    every = {test.name for test in run(stage, "unit/first", tmp_path).journal.tests}
    done = run(stage, "unit/first", tmp_path, left_out=("fails by *", "waits"))
    assert done.journal.done
    assert every - {test.name for test in done.journal.tests} == {
        "fails by an assertion",
        "fails by another error",
        "waits",
    }


def test_the_launcher_executes_the_program_with_the_same_arguments_and_records_it(stage: Stage, tmp_path: Path) -> None:
    done = run(stage, "unit/first", tmp_path)
    (answer,) = (test.message for test in done.journal.tests if test.name == "starts a server")
    assert "got one two words " in answer
    (launch,) = read_launches(tmp_path / "home")
    assert launch.guest == "guest-1"
    assert launch.words == ("src/redis-server", "one", "two words", "")
    assert launch.working_folder == stage.folder
    assert (launch.folder / "faults.jsonl.counts").read_bytes() == bytes(16)


@pytest.mark.parametrize("private", [True, False])
def test_nodes_listen_only_on_loopback_if_others_share_the_network(
    stage: Stage, tmp_path: Path, *, private: bool
) -> None:
    done = run(stage, "unit/nodes", tmp_path, private=private)
    assert [test.reported for test in done.journal.tests] == ["ok"] * 4
    written = {name: (stage.folder / "tests" / "tmp" / name).read_text("utf-8") for name in ("open", "bound")}
    assert ("bind 127.0.0.1" in written["open"]) == (not private)
    assert "127.0.0.1" not in written["bound"]


def test_valkeys_procedures_are_replaced_like_those_of_redis(stage: Stage, tmp_path: Path) -> None:
    done = run(stage, "unit/valkey", tmp_path)
    assert done.journal.outside == []
    assert {test.name: test.reported for test in done.journal.tests} == {
        "sets a cluster up": "ok",
        "sets up what fails": "err",
        "a server starts": "ok",
        "a server dies at its start": "err",
        "reads a crash report": "ok",
        "restarts a server": "ok",
        "a client of Valkey's": "ok",
    }
    assert done.journal.tests[-3].announced == ("log: *argv*0*: *SET*",)
    assert done.journal.tests[-2].announced == ()
    assert done.journal.tests[-1].announced == ("command: debug segfault",)
    assert done.journal.tests[-1].sent == "DEBUG segfault"


def test_commands_that_only_fill_a_server_are_sent_in_one_pipeline(stage: Stage, tmp_path: Path) -> None:
    done = run(stage, "unit/fills", tmp_path)
    assert done.journal.outside == []
    assert {test.name: (test.reported, test.message) for test in done.journal.tests if test.reported != "ok"} == {
        "refused": ("err", "refused: ERR of 149")
    }
    assert [test.sent for test in done.journal.tests if test.name == "refused"] == ["LPUSH key 149"]
    assert len(done.journal.tests) == 5


def test_the_output_of_servers_is_kept_after_upstreams_clean_up(stage: Stage, tmp_path: Path) -> None:
    done = run(stage, "unit/prints", tmp_path)
    assert {test.name: test.reported for test in done.journal.tests} == {
        "the helper removes nothing": "ok",
        "nodes are ended": "ok",
    }


@pytest.mark.parametrize(
    ("detector", "left"), [("", ["faults.jsonl.counts"]), ("ubsan", ["faults.jsonl.counts", "log"])]
)
def test_a_missing_log_is_reported_if_a_detector_writes_to_it(
    stage: Stage, tmp_path: Path, detector: str, left: list[str]
) -> None:
    target = fakes.target(detector=detector)
    cell = cells.spec_of("upstream", tmp_path, fakes.unemulated(target))
    folder = tmp_path / "home" / "guest-1"
    for state in ("kept", "gone", "in a pipe"):
        collected = evidence.UpstreamEvidence(cell, homes=[tmp_path / "home"], names={}, started_in=stage.folder)
        output = tmp_path / "printed"
        output.write_bytes(b"something\n")
        identity = f"{output.stat().st_dev}:{output.stat().st_ino}"
        errors = ["", "0", "0:0"] if state == "in a pipe" else [str(output), "0", identity]
        words = ["7", "0", str(stage.folder), str(output), "0", identity, *errors, "server", ""]
        fakes.write(folder / "launch", "\0".join(words))
        if state == "gone":
            output.unlink()
        journal = Journal(tests=[], outside=[], done=True)
        collected.collect(FileRun(journal=journal, stalled=False, last_line="", seconds=1.0), {}, number=0)
        (event,) = collected.ended
        assert list(event.left) == left
        assert (folder / "log").is_file() == (bool(detector) and state == "kept"), state
        shutil.rmtree(folder)


def launched(stage: Stage, tmp_path: Path, printed: str) -> Path:
    """The folder of a server of process number 7, which printed this."""
    output = fakes.write(tmp_path / "printed", printed)
    taken = [str(output), "0", f"{output.stat().st_dev}:{output.stat().st_ino}"]
    note = ["7", "0", str(stage.folder), *taken, *taken, "server", ""]
    return fakes.write(tmp_path / "home" / "guest-1" / "launch", "\0".join(note)).parent


CRASHED = "7:M 28 Nov 2026 03:00:00.000 # Redis 7.0.15 crashed by signal: 11, si_code: %d\n"


@pytest.mark.parametrize("detector", ["", "ubsan"])
@pytest.mark.parametrize("reported", ["nothing", "shift", "trouble", "child"])
def test_a_report_is_kept_however_much_its_server_prints_later(
    stage: Stage, tmp_path: Path, detector: str, reported: str
) -> None:
    cell = cells.spec_of("upstream", tmp_path, fakes.unemulated(fakes.target(detector=detector)))
    collected = evidence.UpstreamEvidence(cell, homes=[tmp_path / "home"], names={}, started_in=stage.folder)
    words = {"nothing": "", "shift": SHIFT, "trouble": f"{TROUBLE}\n", "child": CHILD}[reported]
    printed = words + "a line of 32 bytes, as many are\n" * (evidence.LOG_BYTES // 31)
    log = launched(stage, tmp_path, printed) / "log"
    journal = Journal(tests=[], outside=[], done=True)
    collected.collect(FileRun(journal=journal, stalled=False, last_line="", seconds=1.0), {}, number=0)
    assert log.is_file() == (bool(detector) or reported in {"trouble", "child"})
    if log.is_file():
        assert log.stat().st_size == (evidence.LOG_BYTES if reported == "nothing" else len(printed))


RAISED = fakes.fault(pid=7, number=11, code=1, access="")
ENDED = fault_log.ProcessEnd(event="end", pid=7, signal=11, status=0)
ABORTED = msgspec.structs.replace(ENDED, signal=6)


@pytest.mark.parametrize(
    ("records", "printed", "announced", "detail"),
    [
        # Regression: only the server's own signal was known, and a stranger's was FAIL.
        ([ENDED], "", (), f"killed by SIGSEGV{SENT}"),
        ([RAISED, ENDED], "", (), "killed by SIGSEGV"),
        ([ENDED], "", ("command: kill -SEGV 7",), "killed by SIGSEGV"),
        ([ABORTED], "", (), "killed by SIGABRT"),
        ([], CRASHED % 0, (), f"killed by SIGSEGV{SENT}"),
        ([], CRASHED % 1, (), "killed by SIGSEGV"),
        ([], CRASHED % 0, ("command: kill -SEGV 7",), "killed by SIGSEGV"),
    ],
)
def test_a_signal_to_a_server_of_upstreams_tests_is_its_own_or_anothers(
    stage: Stage, tmp_path: Path, records: list[Any], printed: str, announced: tuple[str, ...], detail: str
) -> None:
    cell = cells.spec_of("upstream", tmp_path, fakes.unemulated(fakes.target()))
    collected = evidence.UpstreamEvidence(cell, homes=[tmp_path / "home"], names={}, started_in=stage.folder)
    folder = launched(stage, tmp_path, printed)
    fakes.write(folder / "faults.jsonl", "".join(f"{json_codec.encode(one).decode()}\n" for one in records))
    test = UpstreamTest(name="a", reported="err", message="", seconds=1.0, servers=(7,), announced=announced)
    journal = Journal(tests=[test], outside=[], done=True)
    collected.collect(FileRun(journal=journal, stalled=False, last_line="", seconds=1.0), {0: "a"}, number=0)
    assert [(one.end, one.detail) for one in collected.ended] == [("signal", detail)]


SHIFT = "bitops.c:7:3: runtime error: shift exponent 32 is too large\n"
"""A report of the undefined behaviour sanitizer."""
CHILD = "7:M 28 Nov 2026 03:00:00.000 # Background saving terminated by signal 11\n"
"""What a server says of a child that crashed."""
TROUBLE = "QEMU internal SIGSEGV {code=MAPERR, addr=0x20}"
"""The emulator's output when the emulator itself crashes."""


def test_a_report_that_a_program_writes_only_to_its_test_is_kept(tmp_path: Path, launcher: Path) -> None:
    """Tcl removes the file with the standard error of a program that it waits for."""
    shell = LaunchVariant(
        home=tmp_path, program="/bin/sh", arguments=("{self}", "-c", f"echo $$; printf '{SHIFT}' >&2; kill -BUS $$")
    )
    (tmp_path / "src").mkdir()
    fakes.write(tmp_path / "plumbline" / "launches", "")
    write_list(tmp_path / "plumbline" / "launches", [shell], shell)
    shutil.copy2(launcher, tmp_path / "src" / "redis-check-aof")
    script = fakes.write(
        tmp_path / "test.tcl",
        """
        catch {exec src/redis-check-aof} told
        puts "$told\n[lrange $errorCode 1 2]"
        catch {exec src/redis-check-aof > words 2> errors}
        set channel [open "|src/redis-check-aof 2>@1"]
        gets $channel
        puts [gets $channel]
        """,
    )
    ran = process.run(["tclsh", script], deadline_seconds=20, folder=tmp_path)
    alone, filed, piped = read_launches(tmp_path)
    assert ran.text.splitlines() == [
        str(alone.pid),
        SHIFT.strip(),
        f"{alone.pid} SIGBUS",
        SHIFT.strip(),
    ], "a test identifies its server by this number, and must see the same as without us"
    assert [is_whole(one) for one in (alone, filed, piped)] == [True, True, False]
    assert [log_of(one) for one in (alone, filed)] == [SHIFT.encode(), f"{filed.pid}\n{SHIFT}".encode()]


def test_servers_take_their_turns_and_clients_their_own(tmp_path: Path, launcher: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "plumbline").mkdir()
    variants = []
    for name in ("a", "b", "clients"):
        (tmp_path / name).mkdir()
        variants.append(
            LaunchVariant(home=tmp_path / name, program="/bin/echo", arguments=("{self}", f"{name}:{{name}}"))
        )
    write_list(tmp_path / "plumbline" / "launches", variants[:2], variants[2])
    printed = []
    for name in ("redis-server", "redis-sentinel", "redis-cli", "redis-check-aof", "redis-server"):
        shutil.copy2(launcher, tmp_path / "src" / name)
        printed.append(process.run([tmp_path / "src" / name], deadline_seconds=20).text.strip())
    assert printed == ["a:redis-server", "b:redis-sentinel", "clients:redis-cli", "a:redis-check-aof", "a:redis-server"]
    assert [launch.guest for launch in read_launches(tmp_path / "a")] == ["guest-1", "guest-4", "guest-5"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["redis-server"], "--ignore-warnings ONE"),
        (["redis-server", "./conf", "--port", "0"], "./conf --ignore-warnings ONE --port 0"),
        (["redis-server", "./conf", "port", "0"], "./conf port 0 --ignore-warnings ONE"),
        (["redis-server", "-"], "- --ignore-warnings ONE"),
        (["redis-server", "--save"], "--ignore-warnings ONE --save"),
        (["redis-server", "--version"], "--version"),
        (["redis-server", "./conf", "--sentinel"], "./conf --ignore-warnings ONE --sentinel"),
        (["redis-sentinel", "./conf"], "./conf --ignore-warnings ONE"),
        (["redis-check-aof", "./file"], "./file"),
    ],
)
def test_servers_that_would_not_start_are_given_options(
    tmp_path: Path, launcher: Path, words: list[str], expected: str
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "plumbline").mkdir()
    echo = LaunchVariant(
        home=tmp_path, program="/bin/echo", arguments=("{self}", "-n"), options=("--ignore-warnings", "ONE")
    )
    write_list(tmp_path / "plumbline" / "launches", [echo], echo)
    shutil.copy2(launcher, tmp_path / "src" / words[0])
    ran = process.run([tmp_path / "src" / words[0], *words[1:]], deadline_seconds=20)
    assert (ran.code, ran.text) == (0, expected)
    (launch,) = read_launches(tmp_path)
    assert list(launch.words[1:]) == words[1:], "the record has the test's own arguments"


def test_a_program_gets_the_options_of_its_detector_whatever_a_test_sets(tmp_path: Path, launcher: Path) -> None:
    """Since Redis 7.0, upstream sets ASAN_OPTIONS so that the first error ends the server. This hid other errors."""
    here = msgspec.structs.replace(fakes.unemulated(fakes.target()), environment={"ASAN_OPTIONS": "halt_on_error=0"})
    programs = tmp_path / "programs"
    fakes.write(programs / "src" / "redis-server", '#!/bin/sh\nprintf %s "$ASAN_OPTIONS"\n', mode=0o755)
    plain = variant(fakes.unemulated(fakes.target()), programs, tmp_path, Abilities())
    own = variant(here, programs, tmp_path, Abilities())
    for servers, clients, printed in ((plain, own, "theirs"), (own, plain, "halt_on_error=0")):
        stage = tmp_path / printed
        (stage / "src").mkdir(parents=True)
        (stage / "plumbline").mkdir()
        write_list(stage / "plumbline" / "launches", [servers], clients)
        shutil.copy2(launcher, stage / "src" / "redis-server")
        ran = process.run(
            [stage / "src" / "redis-server"],
            deadline_seconds=20,
            environment={**process.PLAIN_ENVIRONMENT, "ASAN_OPTIONS": "theirs"},
        )
        assert (ran.code, ran.text) == (0, printed)
        shutil.rmtree(tmp_path / "guest-1")


def test_a_truncated_list_of_launches_starts_nothing(tmp_path: Path, launcher: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "plumbline").mkdir()
    shutil.copy2(launcher, tmp_path / "src" / "redis-server")
    echo = LaunchVariant(home=tmp_path, program="/bin/echo", arguments=("{self}", "alive"))
    list_ = tmp_path / "plumbline" / "launches"
    write_list(list_, [echo], echo)
    words = list_.read_bytes().split(b"\0")[:-1]
    own = 1 + 5 + len(echo.arguments)
    for kept in range(own):
        list_.write_bytes(b"".join(word + b"\0" for word in words[:kept]))
        ran = process.run([tmp_path / "src" / "redis-server"], deadline_seconds=20)
        assert ran.code == 127, kept
        assert "cut short" in ran.text
    assert [path.name for path in tmp_path.glob("guest-*")] == []


def test_a_list_of_launches_with_more_words_than_fit_starts_nothing(tmp_path: Path, launcher: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "plumbline").mkdir()
    shutil.copy2(launcher, tmp_path / "src" / "redis-server")
    echo = LaunchVariant(home=tmp_path, program="/bin/echo", arguments=("{self}", *["alive"] * 4096))
    write_list(tmp_path / "plumbline" / "launches", [echo], echo)
    ran = process.run([tmp_path / "src" / "redis-server"], deadline_seconds=20)
    assert (ran.code, "cannot take all words" in ran.text) == (127, True)
    assert [path.name for path in tmp_path.glob("guest-*")] == []


def test_a_stalled_file_is_ended_and_its_last_output_is_reported(stage: Stage, tmp_path: Path) -> None:
    done = run(stage, "unit/second", tmp_path, stall_seconds=1.0)
    assert done.stalled
    assert [(test.name, test.reported) for test in done.journal.tests] == [("hangs", "")]
    assert not done.journal.done


@pytest.mark.parametrize("replies", [True, False])
def test_a_file_whose_server_does_not_reply_is_ended_sooner(stage: Stage, tmp_path: Path, replies: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                with contextlib.suppress(TimeoutError):
                    client, _ = listening.accept()
                    client.sendall(b"+PONG\r\n" if replies else b"")
                    clients.append(client)

        clients: list[socket.socket] = []
        server = threading.Thread(target=serve)
        server.start()
        settings = settings_of(tmp_path, stall_seconds=10.0 if replies else 1000.0)
        target = msgspec.structs.replace(settings.target, timeout_multiplier=0.1)
        settings = msgspec.structs.replace(
            settings,
            target=target,
            server=listening.getsockname()[:2],
            guest="guest-1",
            pace=msgspec.structs.replace(settings.pace, silent_seconds=1.0),
        )
        file = UpstreamFile(name="unit/second", driver="helper")
        done = run_file(stage, file, settings, log=tmp_path / "log", cancelled=threading.Event())
        ended.set()
        server.join()
    assert (done.stalled, done.silent) == (True, not replies)
    assert len(clients) > replies
    assert (done.seconds > 10.0) == replies
    (hangs,) = done.journal.tests
    assert ("guest-1, which replied to PING" in hangs.message) == replies, hangs.message


@pytest.mark.parametrize(("silent", "parts"), [(False, continuation.MOST_ENDLESS + 1), (True, 2)])
def test_a_file_does_not_run_on_after_two_tests_whose_server_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: bool, parts: int
) -> None:
    runs: list[FileRun] = []

    def run_part(*_: object, **__: object) -> FileRun:
        begun = UpstreamTest(name=f"hangs {len(runs)}", reported="", message="")
        journal = Journal(tests=[begun], outside=[], done=False)
        return FileRun(journal=journal, stalled=True, silent=silent, last_line="", seconds=1.0)

    monkeypatch.setattr(continuation, "run_file", run_part)
    file = UpstreamFile(name="unit/second", driver="helper")
    run_to_end(
        cast("Stage", None),
        file,
        settings_of(tmp_path),
        log=tmp_path / "log",
        cancelled=threading.Event(),
        each=runs.append,
    )
    assert len(runs) == parts


ENDLESS = """
set ::servers [list [dict create pid [exec src/redis-server conf &]]]
test "first" {expr 1} 1
test "waits \\[for\\] * ever" {after 100000; set made 1}
test "needs it" {set made} 1
test "waits" {expr 1} 1
test "is nested" {test "inner" {after 100000}; expr 1} 1
send_data_packet 0 err "nothing was made"
test "last" {expr 1} 1
"""


def test_the_rest_of_a_file_runs_without_a_test_that_never_ends(stage: Stage, tmp_path: Path) -> None:
    (stage.folder / "tests" / "unit" / "second.tcl").write_text(ENDLESS, "utf-8")
    parts: list[FileRun] = []
    settings = settings_of(tmp_path, stall_seconds=1.0)
    file = UpstreamFile(name="unit/second", driver="helper")
    whole = run_to_end(stage, file, settings, log=tmp_path / "log", cancelled=threading.Event(), each=parts.append)
    assert [part.stalled for part in parts] == [True, True, False]
    assert len(whole.journal.tests) == 7
    assert {test.name: test.reported for test in whole.journal.tests} == {
        "first": "ok",
        "waits [for] * ever": "",
        "needs it": "",
        "waits": "ok",
        "inner": "",
        "is nested": "ok",
        "last": "ok",
    }
    messages = {test.name: test.message for test in whole.journal.tests}
    assert messages["waits [for] * ever"].startswith(
        "it made no progress, and was ended while it waited for guest-1, which had ended; its last line: "
    )
    assert "without what never ends in this file, 'waits [for] * ever', 'inner': " in messages["needs it"]
    # A failure outside of tests may follow from what was left out.
    assert whole.journal.outside == []
    assert not whole.journal.done
    items = results.items_of(listed(*messages))
    assert results.failing(items, whole) == set()
    found = verdicts(listed(*messages), whole)
    assert {name for name, outcome in found.items() if outcome == "missing"} == {
        "waits [for] * ever",
        "needs it",
        "inner",
        results.WHOLE,
    }


def test_a_test_that_never_ends_costs_its_own_result_alone(native_cell: CellSpec, tree: Path) -> None:
    words = """
    test "first" {expr 1} 1
    test "waits" {if {[exec uname -m] eq {m88k}} {after 1000000}; set ::made 1} 1
    test "needs it" {set ::made} 1
    test "last" {expr 1} 1
    send_data_packet 0 done second
    """
    (tree / "tests" / "unit" / "second.tcl").write_text(words, "utf-8")
    upstream = native_cell.upstream
    assert upstream is not None
    there = msgspec.structs.replace(Catalog().targets["native"], name="there", machine="m88k", timeout_multiplier=0.03)
    spec = msgspec.structs.replace(
        native_cell,
        runner=fakes.unemulated(there),
        build=fakes.build(tree.parent),
        upstream=msgspec.structs.replace(upstream, files=("unit/second",)),
    )
    _, found = cells.recorded(spec)
    events = {test.upstream.partition("::")[2]: test for test in found.values()}
    assert {name: (test.outcome, bool(test.doubt)) for name, test in events.items()} == {
        "first": ("passed", False),
        "waits": ("failed", True),
        "needs it": ("failed", True),
        "last": ("passed", False),
        results.WHOLE: ("passed", False),
    }
    assert "while it waited for no server" in events["waits"].doubt


def test_the_state_of_the_servers_of_an_endless_test_is_told(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with socketserver.TCPServer(("127.0.0.1", 0), Greeting) as server, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ports = {1: server.server_address[1], 2: silent.getsockname()[1], 3: server.server_address[1], 4: 0}
        for number, port in ports.items():
            fakes.write(tmp_path / f"conf-{number}", f"port {port}\n" if port else "")
            # Process 1 always runs.
            pid = "99999999" if number == 3 else str(os.getpid())
            words = [pid, str(number), str(tmp_path), *["", "0", ""] * 2, "src/redis-server", f"conf-{number}"]
            fakes.write(home / f"guest-{number}" / "launch", "\0".join([*words, ""]))
        states = functools.partial(awaited, homes=[home], stage=tmp_path, probe_seconds=0.5)
        found = states([os.getpid(), 99999999])
        assert are_silent(found)
        assert told(found) == (
            "guest-2, which did not reply to PING within 0 s; guest-3, which had ended; guest-4, which ran; "
            "guest-1, which replied to PING"
        )
        last = states([])
        assert told(last) == "guest-4, which ran", "the last one that started"
        assert not are_silent(last)
        server.shutdown()


class Greeting(socketserver.BaseRequestHandler):
    """A server that is still loading."""

    def handle(self) -> None:
        self.request.recv(64)
        self.request.sendall(b"-LOADING\r\n")


def test_a_wait_for_servers_that_have_all_ended_is_over(stage: Stage, tmp_path: Path) -> None:
    words = """
    set ::plumb::settled 300
    set dead [exec sh -c {exit 1} &]
    set other [exec sleep 60 &]
    set ::servers [list [dict create pid $dead]]
    proc limited {name otherwise} {
        set began [clock milliseconds]
        test $name {wait_for_condition 10 100 {[set x 0]} else {error "assertion:$otherwise"}}
        return [expr {[clock milliseconds] - $began}]
    }
    set seconds [limited "all have ended" "it did not come"]
    set ::servers [list [dict create pid $dead] [dict create pid $other]]
    set longer [limited "one runs" "it did not come either"]
    exec kill $other
    test "by time" {expr {$seconds < 1500 && $longer > 2500}} 1
    set ::servers [list [dict create pid $dead]]
    test "comes about" {set n 0; wait_for_condition 10 100 {[incr n] > 2} else {error "assertion:no"}; set n} 3
    """
    (stage.folder / "tests" / "unit" / "second.tcl").write_text(words, "utf-8")
    done = run(stage, "unit/second", tmp_path)
    told = {test.name: (test.reported, test.message.partition(": ")[2]) for test in done.journal.tests}
    assert told["all have ended"] == ("err", "it did not come")
    assert told["one runs"] == ("err", "it did not come either")
    assert [told[name][0] for name in ("by time", "comes about")] == ["ok", "ok"], told


def test_a_file_with_progress_is_not_ended_however_long_it_takes(stage: Stage, tmp_path: Path) -> None:
    (stage.folder / "tests" / "unit" / "second.tcl").write_text("test {takes a while} {after 500}\n" * 12, "utf-8")
    done = run(stage, "unit/second", tmp_path, stall_seconds=3.0)
    assert not done.stalled
    assert done.seconds > 5
    assert [test.reported for test in done.journal.tests] == ["ok"] * 12


def test_a_truncated_journal_never_improves_the_outcome_of_a_test(stage: Stage, tmp_path: Path) -> None:
    run(stage, "unit/first", tmp_path)
    content = stage.journal.read_bytes()
    whole = read_journal(content)
    ends = {test.name: test.reported for test in whole.tests}
    assert len(content) > 1000
    for cut in range(len(content)):
        part = read_journal(content[:cut])
        assert not part.done or cut >= len(content) - 1
        for test in part.tests:
            assert test.reported in {"", ends[test.name]}


def run_natively(cell: CellSpec, name: str) -> dict[str, str]:
    """The native outcome of each test of a file, as a new check determines it."""
    runs = NativeRuns(cell, Stages(cell), oracle=None, private=True, say=lambda _: None, cancelled=threading.Event())
    return {test.name: test.reported for test in runs.of_file(UpstreamFile(name=name, driver="helper")).tests}


@pytest.fixture
def native_cell(tmp_path: Path, tree: Path, launcher: Path) -> CellSpec:
    """A cell that runs the release's own tests, with programs that these tests do not start."""
    programs = tmp_path / "programs"
    (programs / "src").mkdir(parents=True)
    (programs / "src" / "redis-server").write_bytes(b"")
    here = fakes.unemulated(Catalog().targets["native"])
    upstream = UpstreamSpec(
        source=tree,
        cache=tmp_path / "cache",
        abilities=Abilities(),
        native_key="these programs",
        files=(),
        left_out=(),
        launcher=launcher,
        programs=programs,
        native=programs,
    )
    peers = {"native": PeerServer(runner=here, build=fakes.build(tmp_path))}
    return msgspec.structs.replace(cells.spec_of("upstream", tmp_path, here), upstream=upstream, peers=peers)


def test_a_failure_on_this_machine_does_not_excuse_a_later_check(native_cell: CellSpec, tree: Path) -> None:
    """The test may have failed because the machine was busy."""
    idle, runs = tree / "idle", tree / "runs"
    words = f"test first {{exec echo run >> {{{runs}}}; expr 1}} 1\ntest second {{file exists {{{idle}}}}} 1\n"
    (tree / "tests" / "unit" / "second.tcl").write_text(words, "utf-8")
    assert run_natively(native_cell, "unit/second") == {"first": "ok", "second": "err"}
    assert runs.read_text("utf-8").count("run") == results.TRIES
    idle.touch()
    assert run_natively(native_cell, "unit/second") == {"first": "ok", "second": "ok"}
    assert runs.read_text("utf-8").count("run") == results.TRIES + 1, "what passes runs once"
    idle.unlink()
    assert run_natively(native_cell, "unit/second") == {"first": "ok", "second": "ok"}, "the cache keeps passed results"
    assert runs.read_text("utf-8").count("run") == results.TRIES + 1


def test_a_native_failure_is_on_every_machine_and_excuses_no_other(native_cell: CellSpec, tree: Path) -> None:
    """Regressions: all of them were skipped, and the cell passed; the first made a cell UNKNOWN."""
    here = native_cell.peers["native"].runner.target.machine
    words = f"""
    test "passes" {{expr 1}} 1
    test "fails everywhere" {{set place tests/[pid]/[expr rand()]; error "assertion:wrong number 7 in $place"}}
    test "fails in other words" {{error "assertion:I am [exec uname -m]"}}
    test "fails here" {{exec uname -m}} m88k
    test "fails there" {{exec uname -m}} {here}
    """
    (tree / "tests" / "unit" / "second.tcl").write_text(words, "utf-8")
    upstream = native_cell.upstream
    assert upstream is not None
    there = msgspec.structs.replace(Catalog().targets["native"], name="there", machine="m88k")
    spec = msgspec.structs.replace(
        native_cell,
        runner=fakes.unemulated(there),
        build=fakes.build(tree.parent),
        upstream=msgspec.structs.replace(upstream, files=("unit/second",)),
    )
    _, found = cells.recorded(spec)
    events = {test.upstream.partition("::")[2]: test for test in found.values()}
    assert not any(test.doubt for test in events.values())
    assert {name: (test.outcome, test.fails_natively) for name, test in events.items()} == {
        "passes": ("passed", False),
        "fails everywhere": ("failed", True),
        "fails in other words": ("failed", False),
        "fails here": ("passed", False),
        "fails there": ("failed", False),
        results.WHOLE: ("passed", False),
    }
    assert "it fails natively in the same words" in events["fails everywhere"].message
    assert "I am m88k" in events["fails in other words"].message


def test_what_the_target_leaves_out_or_fails_only_once_is_unknown_unless_that_is_explained(
    native_cell: CellSpec, tree: Path
) -> None:
    """The first was skipped, the second noted as one of two runs, and the cell passed."""
    here = native_cell.peers["native"].runner.target.machine
    words = f"""
    if {{[exec uname -m] eq {{{here}}}}} {{
        test "for this machine" {{expr 1}} 1
    }}
    if {{[exec src/redis-server where] eq {{here}}}} {{
        test "after a reply" {{expr 1}} 1
    }}
    test "fails once" {{exec src/redis-server}} even
    for {{set i [expr {{int(rand() * 10)}}]}} {{$i < 9}} {{incr i}} {{
        test "as often as it happens: $i" {{expr 1}} 1
    }}
    """
    (tree / "tests" / "unit" / "second.tcl").write_text(words, "utf-8")
    upstream = native_cell.upstream
    assert upstream is not None
    fakes.write(upstream.native / "src" / "redis-server", "#!/bin/sh\ntest $1 && echo here || echo even\n", mode=0o755)
    runs = shlex.quote(str(tree / "runs"))
    answers = f"""#!/bin/sh
    test $1 && echo there && exit
    test -e {runs} && echo even || echo odd
    touch {runs}
    """
    fakes.write(tree.parent / "there" / "src" / "redis-server", answers, mode=0o755)
    there = msgspec.structs.replace(Catalog().targets["native"], name="there", machine="m88k")
    spec = msgspec.structs.replace(
        native_cell,
        runner=fakes.unemulated(there),
        build=fakes.build(tree.parent),
        upstream=msgspec.structs.replace(upstream, files=("unit/second",), programs=tree.parent / "there"),
    )
    _, found = cells.recorded(spec)
    events = {test.upstream.partition("::")[2]: test for test in found.values()}
    told = {
        name: (test.outcome, bool(test.doubt)) for name, test in events.items() if not name.endswith(tuple("234567"))
    }
    assert told == {
        "for this machine": ("skipped", False),
        "after a reply": ("failed", True),
        "fails once": ("failed", True),
        "as often as it happens: 1": ("skipped", False),
        "as often as it happens: 8": ("passed", False),
        results.WHOLE: ("passed", False),
    }
    assert f"if {{[exec uname -m] eq {{{here}}}}}" in events["for this machine"].message
    assert "natively it runs" in events["after a reply"].doubt
    assert "it failed in 1 of 3 runs there" in events["fails once"].doubt
    assert "natively it does not begin in every run" in events["as often as it happens: 1"].message


def test_a_failure_outside_of_tests_on_this_machine_is_no_reference(native_cell: CellSpec, tree: Path) -> None:
    """A server that did not start on a busy machine hid the tests after it for ever."""
    idle = tree / "idle"
    words = f"""
    test first {{expr 1}} 1
    if {{[file exists {{{idle}}}]}} {{
        test second {{expr 1}} 1
    }} else {{
        send_data_packet 0 err "no server"
    }}
    """
    (tree / "tests" / "unit" / "second.tcl").write_text(words, "utf-8")
    assert run_natively(native_cell, "unit/second") == {"first": "ok"}
    idle.touch()
    assert run_natively(native_cell, "unit/second") == {"first": "ok", "second": "ok"}


CRASHES = {
    "native": "$$:M 28 Nov 2026 03:00:00.000 # Redis 7.0.15 crashed by signal: 11, si_code: 1",
    "native-asan": "==$$==ERROR: AddressSanitizer: SEGV on unknown address 0x000000000000",
    "native-valgrind": "==$$== Process terminating with default action of signal 11 (SIGSEGV)\n"
    "==$$==    at 0x10A2: bitopCommand (bitops.c:7)",
}
"""The output of a server that dies of SIGSEGV, or the output of its detector."""


@pytest.mark.parametrize("target", CRASHES)
def test_a_server_that_dies_once_is_recorded_and_its_file_does_not_run_again(
    native_cell: CellSpec, tree: Path, target: str
) -> None:
    """No emulator records its end here, two further runs pass, and a test may fail in one of three runs."""
    words = """
    set ::servers [list [dict create pid [exec src/redis-server > tests/tmp/out 2>@1 &]]]
    test "before" {expr 1} 1
    test "kills it" {
        set file [open tests/tmp/out a]
        puts $file "### Starting test kills it in tests/unit/second.tcl"
        close $file
        exec touch tests/tmp/now
        for {set waited 0} {$waited < 20 && ![::plumb::has_ended [::plumb::servers]]} {incr waited} {after 100}
        ::plumb::has_ended [::plumb::servers]
    } 0
    test "goes on" {expr 1} 1
    """
    (tree / "tests" / "unit" / "second.tcl").write_text(words, "utf-8")
    upstream, runs = native_cell.upstream, tree / "runs"
    assert upstream is not None
    noted = shlex.quote(str(runs))
    dies = f"""#!/bin/sh
    test -e {noted} && exec sleep 30
    echo run >> {noted}
    while ! test -e tests/tmp/now; do sleep 0.05; done
    printf '%s\n' "{CRASHES[target]}" >> tests/tmp/out
    kill -SEGV $$
    """
    fakes.write(upstream.native / "src" / "redis-server", "#!/bin/sh\nexec sleep 30\n", mode=0o755)
    fakes.write(tree.parent / "dying" / "src" / "redis-server", dies, mode=0o755)
    spec = msgspec.structs.replace(
        native_cell,
        runner=fakes.unemulated(Catalog().targets[target]),
        build=fakes.build(tree.parent),
        upstream=msgspec.structs.replace(upstream, files=("unit/second",), programs=tree.parent / "dying"),
    )
    _, found = cells.recorded(spec)
    assert {test.upstream.partition("::")[2]: test.outcome for test in found.values()} == {
        "before": "passed",
        "kills it": "failed",
        "goes on": "passed",
        results.WHOLE: "passed",
    }
    guests = [
        event
        for event in event_log.read_events(spec.folder / event_log.NAME)
        if isinstance(event, cell_events.GuestEvent)
    ]
    assert [(event.end, event.test.partition("::test_")[2]) for event in guests] == [
        ("signal", "upstream[unit/second::kills it]")
    ]
    assert CRASHES[target].partition("$$")[2][:20].encode() in (spec.folder / guests[0].name / "log").read_bytes()


REPORTED = b"7:M 28 Nov 2026 03:00:00.000 # === ASSERTION FAILED ===\n"


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (False, ("signal", "killed by SIGABRT")),
        (True, ("hang", "it began to report a crash, and did not end of it")),
    ],
    ids=["no emulator", "killed meanwhile"],
)
def test_a_crash_report_without_a_recorded_end_is_a_bad_end(*, recorded: bool, expected: tuple[str, str]) -> None:
    log = b"7:M 28 Nov # Ready\n" + REPORTED
    crash = reported_crash(log, 7, "", recorded=recorded)
    assert crash is not None
    assert (crash.end.how, crash.end.detail) == expected
    assert reported_crash(log, 8, "", recorded=recorded) is None, "it is another process's"
    assert reported_crash(log, 7, "", recorded=recorded, exits_on_panic=True) is None
    signalled = log + CRASHES["native"].replace("$$", "7").encode()
    assert reported_crash(signalled, 7, "", recorded=recorded, exits_on_panic=True) is not None


def test_a_server_may_be_told_to_exit_when_an_assertion_fails(tmp_path: Path) -> None:
    launch = ended_process(tmp_path, 7, end_at=0).launch
    launch = msgspec.structs.replace(launch, words=("src/redis-server", "conf"))
    assert not exits_on_panic(launch)
    for value, exits in (("no", False), ("yes", True)):
        fakes.write(tmp_path / "conf", f"port 7\nuse-exit-on-panic {value}\n")
        assert exits_on_panic(launch) is exits


@pytest.mark.parametrize("target", [name for name in CRASHES if name != "native"])
def test_a_detectors_report_about_a_server_is_not_attributed_to_others_with_the_same_log(target: str) -> None:
    log = (CRASHES[target].replace("$$", "8") + "\n").encode()
    detector = Catalog().targets[target].emulator.detector
    assert reported_crash(log, 7, detector, recorded=False) is None
    crash = reported_crash(log, 8, detector, recorded=False)
    assert crash is not None
    assert crash.end.detail.startswith("ended by an error that its detector reports: ")


@pytest.mark.parametrize(
    ("named", "announcing", "failing", "expected"),
    [
        ("second", "third", "first", "second"),
        ("", "third", "first", "third"),
        ("", "first", "third", "first"),
        ("", "first second", "third", "second"),
        ("strange", "", "second", "second"),
        ("", "", "", "fourth"),
    ],
)
def test_a_reported_crash_belongs_to_the_test_named_by_the_log_or_the_journal(
    tmp_path: Path, named: str, announcing: str, failing: str, expected: str
) -> None:
    """The first test starts the server, and the next three use it."""
    tests = [
        UpstreamTest(
            name=name,
            reported="err" if name == failing else "ok",
            began_ms=number * 100,
            ended_ms=number * 100 + 90,
            servers=servers,
            announced=("command: debug segfault",) if name in announcing.split() else (),
        )
        for number, (name, servers) in enumerate(
            {"other": (8,), "first": (), "second": (7,), "third": (8, 7), "fourth": (7,), "last": ()}.items(), 1
        )
    ]
    log = (f"### Starting test {named} in tests/a.tcl\n" if named else "").encode() + REPORTED
    crash = reported_crash(log + b"### Starting test first in tests/a.tcl\n", 7, "", recorded=False)
    assert crash is not None
    server = ended_process(tmp_path, 7, end_at=0).launch
    server = msgspec.structs.replace(server, began_ms=250)
    assert where_it_crashed(crash, server, [(test.name, test) for test in tests])[0] == expected


def test_a_test_that_exceeds_its_time_limit_natively_gets_more_time(native_cell: CellSpec, tree: Path) -> None:
    words = """
    test "is slow" {
        set turns 0
        wait_for_condition 10 1 {[incr turns] > 90} else {error "assertion:not in time"}
    }
    """
    (tree / "tests" / "unit" / "second.tcl").write_text(words, "utf-8")
    assert run_natively(native_cell, "unit/second") == {"is slow": "ok"}


def listed(*names: str) -> list[UpstreamTest]:
    return [UpstreamTest(name=name, reported="ok") for name in names]


def ran(*tests: tuple[str, str], done: bool = True, outside: tuple[str, ...] = (), code: int | None = None) -> FileRun:
    found = [
        json_codec.convert(
            {"name": name, "reported": reported, "message": f"{name} {reported}" * bool(reported)}, UpstreamTest
        )
        for name, reported in tests
    ]
    journal = Journal(tests=found, outside=list(outside), done=done)
    return FileRun(journal=journal, stalled=False, last_line="the last words", seconds=1.0, code=code)


def verdicts(native: list[UpstreamTest], *runs: FileRun) -> Mapping[str, str]:
    items = results.items_of(native)
    pairs = [results.matched(items, each.journal.tests) for each in runs]
    found = {
        item.label: results.verdict_of(item, runs, [each for each, _ in pairs]).outcome
        for item in items
        if item.native is not None
    }
    here = results.NativeRun(tests=native, seconds=1.0, done=True, started=1)
    whole = results.verdict_of_file(here, runs, [others for _, others in pairs], started=1)
    return found | {results.WHOLE: whole.outcome}


def test_a_test_fails_if_it_fails_in_two_of_three_runs() -> None:
    native = listed("a", "b", "c")
    once = ran(("a", "err"), ("b", "ok"), ("c", "err"))
    again = ran(("a", "ok"), ("b", "ok"), ("c", "exception"))
    assert verdicts(native, once) == {"a": "failed", "b": "passed", "c": "failed", results.WHOLE: "passed"}
    assert verdicts(native, once, again, again) == {
        "a": "unsteady",
        "b": "passed",
        "c": "failed",
        results.WHOLE: "passed",
    }


@pytest.mark.parametrize(
    ("there", "outcome", "whole"),
    [
        (["", "ok"], "unsteady", "unsteady"),
        (["", "", "ok"], "missing", "missing"),
        (["err", "", "ok"], "missing", "unsteady"),
        (["", "err", "err"], "failed", "unsteady"),
        (["ok", "ok", ""], "unsteady", "missing"),
        (["err", "ok", "ok"], "unsteady", "passed"),
        (["ok", "ok", "err"], "unsteady", "passed"),
    ],
)
def test_a_test_or_a_file_that_hangs_or_fails_only_once_does_not_pass(
    there: list[str], outcome: str, whole: str
) -> None:
    """The last run was all that counted once, and then one run in three was noted where nobody looked."""
    runs = [ran(("a", reported), done=bool(reported)) for reported in there]
    assert verdicts(listed("a"), *runs) == {"a": outcome, results.WHOLE: whole}
    (item, _) = results.items_of(listed("a"))
    told = results.verdict_of(item, runs, [{"a": run.journal.tests[0]} for run in runs])
    assert "the last words" in told.message or "err" in there
    file = results.verdict_of_file(
        results.NativeRun(tests=listed("a"), seconds=1.0, done=True, started=1), runs, [[]] * len(runs), started=1
    )
    assert "the last words" in file.message or whole == "passed"


@pytest.mark.parametrize(
    ("reported", "here", "there", "outcome"),
    [
        ("err", ["got 3 of 7 in /a/b.tcl:4"], ["got 3 of 7 in /c/b.tcl:5"], "undecided"),
        ("err", ["got 3 of 7"], ["got 4 of 7"], "failed"),
        ("err", ["got 3 of 7", "got 4 of 7"], ["got 5 of 7"], "undecided"),
        ("err", ["got 3 of 7", "got 4 of 7"], ["got 5 of 8"], "failed"),
        ("exception", ["got 3 of 7", "I/O error"], ["I/O error"], "undecided"),
        ("err", ["got 3 of 7"], ["got 4 of 7", "got 3 of 7", "got 3 of 7"], "undecided"),
        ("err", ["got 3 of 7"], ["got 4 of 7", "got 3 of 7", "got 4 of 7"], "failed"),
        ("skip", [], ["got 3 of 7"], "failed"),
        ("ignore", [], ["got 3 of 7"], "failed"),
        ("", [], ["got 3 of 7"], "undecided"),
        ("", ["got 3 of 7"], ["got 4 of 7"], "failed"),
        ("err", ["got 3 of 7"], [None], "missing"),
        ("err", ["got 3 of 7"], ["ok"], "passed"),
        ("ok", [], ["got 3 of 7", "ok", "ok"], "unsteady"),
        ("ok", ["got 5 of 7"], ["got 3 of 7", "ok", "ok"], "passed"),
    ],
)
def test_a_failure_is_undecided_only_if_the_native_build_has_the_same_one(
    reported: Reported, here: list[str], there: list[str | None], outcome: str
) -> None:
    (item, _) = results.items_of([UpstreamTest(name="a", reported=reported)], {"a": here})
    tries = [
        UpstreamTest(name="a", reported="ok" if message == "ok" else "err", message=message) if message else None
        for message in there
    ]
    runs = [
        FileRun(
            journal=Journal(tests=[one] if one else [], outside=[], done=one is not None),
            stalled=False,
            last_line="",
            seconds=1.0,
        )
        for one in tries
    ]
    found = [{"a": one} if one else {} for one in tries]
    assert results.verdict_of(item, runs, found).outcome == outcome
    if len(runs) == 1:
        assert results.failing([item], runs[0]) == ({"a"} if outcome == "failed" else set()), (
            "only failed tests run again"
        )


def test_a_test_without_a_result_is_missing_and_one_that_upstream_passes_over_everywhere_is_skipped() -> None:
    native = [*listed("a", "b", "c"), UpstreamTest(name="d", reported="ignore")]
    run_ = ran(("a", "ok"), ("b", "skip"), ("c", ""), ("d", "ignore"), done=False)
    assert verdicts(native, run_) == {
        "a": "passed",
        "b": "missing",
        "c": "missing",
        "d": "skipped",
        results.WHOLE: "missing",
    }


@pytest.mark.parametrize("why", ["", "its file says so"])
@pytest.mark.parametrize(
    ("there", "known"),
    [
        (ran(("a", "ok")), True),
        (ran(("a", "ok"), ("b", "skip")), True),
        (ran(("a", "ok"), done=False), False),
        (ran(("a", "err")), False),
        (ran(("a", "ok"), ("b", "")), False),
        (ran(("a", "ok"), outside=("Can't start the server",)), False),
    ],
    ids=["never begun", "passed over", "cut short", "after a failure", "no end", "after a failure outside"],
)
def test_a_test_that_a_target_leaves_out_is_skipped_only_for_a_known_reason(
    there: FileRun, why: str, *, known: bool
) -> None:
    """It counted as skipped, and the cell passed without it."""
    (_, item, _) = results.items_of(listed("a", "b"))
    found, _ = results.matched([item], there.journal.tests)
    verdict = results.verdict_of(item, [there], [found], lambda _: why)
    assert verdict.outcome == ("skipped" if known and why else "missing")
    assert why in verdict.message or not known


def test_a_test_that_not_every_native_run_begins_is_left_out_by_chance() -> None:
    """Tests of clusters kill nodes at random, and have more tests for a node that was a primary."""
    (item, *_) = results.items_of(listed("node #1 fails over", "node #2 fails over"))
    native = results.NativeRun(
        tests=listed("node #1 fails over", "node #2 fails over"), seconds=1, done=True, started=1
    )
    fewer = msgspec.structs.replace(native, tests=listed("node #7 fails over"))
    assert results.begins_by_chance(item, native, fewer)
    assert not results.begins_by_chance(item, native, native)
    for hindered in ({"done": False}, {"outside": ["no server"]}, {"tests": [UpstreamTest(name="x", reported="err")]}):
        assert not results.begins_by_chance(item, native, msgspec.structs.replace(fewer, **hindered))


ON_SOME_MACHINES = r"""
set arch [exec uname -m]
set long_enough [expr {$arch == "x86_64" || $arch == "aarch64"}]
test {on all} {expr {1}}
if {$long_enough} {
    # A brace in a comment \{ counts for nothing.
    foreach size {1 2} {
        test {where there is room} {expr 1}
    }
}
if {[s arch_bits] == 64} {
    test "of 64 bits" {expr 1}
} else {
    test "of 32 bits" {expr 1}
}
if {[r ping] eq {PONG}} {
    test "after a reply" {expr 1}
}
test "passes over itself" {
    if {[s arch_bits] != 64} {
        skip "only for 64 bits"
    }
    if {[r ping] ne {PONG}} {
        return
    }
}
test "passes over itself by a reply" {
    if {[r ping] ne {PONG}} {
        skip "no answer"
    }
}
if {$long_enough} {
    test "twice" {expr 1}
}
test "twice" {expr 1}
"""


@pytest.mark.parametrize(
    ("test", "target", "began", "condition"),
    [
        ("on all", "s390x", False, ""),
        ("where there is room", "s390x", False, "$long_enough"),
        ("where there is room", "armv5", False, "$long_enough"),
        ("where there is room", "native-asan", False, ""),
        ("of 64 bits", "s390x", False, ""),
        ("of 64 bits", "armv5", False, "[s arch_bits] == 64"),
        ("of 32 bits", "armv5", False, "[s arch_bits] == 64"),
        ("after a reply", "armv5", False, ""),
        ("passes over itself", "armv5", True, "[s arch_bits] != 64"),
        ("passes over itself", "armv5", False, ""),
        ("passes over itself", "s390x", True, ""),
        ("passes over itself by a reply", "armv5", True, ""),
        ("twice", "armv5", False, ""),
        ("of a name that is put together", "armv5", False, ""),
    ],
)
def test_a_file_says_on_which_machines_a_test_runs(test: str, target: str, condition: str, *, began: bool) -> None:
    there, native = Catalog().targets[target], Catalog().targets["native"]
    assert condition_on_machine(ON_SOME_MACHINES, test, there, native, began=began) == condition


@pytest.mark.parametrize("test", ["on all", "where there is room", "of 32 bits", "twice"])
def test_a_test_has_the_line_on_which_it_begins(test: str) -> None:
    line = ON_SOME_MACHINES.splitlines()[line_of(ON_SOME_MACHINES, test) - 1]
    assert re.fullmatch(rf"""\s*test [{{"]{test}[}}"].*""", line)
    assert line_of(ON_SOME_MACHINES, "of a name that is put together") == 0
    assert line_of(ON_SOME_MACHINES, "A brace in a comment") == 0


def test_tests_of_one_name_are_distinguished_and_random_numbers_in_names_are_ignored() -> None:
    native = listed("twice", "twice", "Set #3 as master", "Set #4 as master")
    assert [item.label for item in results.items_of(native)][:2] == ["twice", "twice (2)"]
    outcome = verdicts(
        native, ran(("twice", "ok"), ("twice", "err"), ("Set #9 as master", "err"), ("Set #4 as master", "ok"))
    )
    assert outcome == {
        "twice": "passed",
        "twice (2)": "failed",
        "Set #3 as master": "failed",
        "Set #4 as master": "passed",
        results.WHOLE: "passed",
    }


def test_a_test_whose_name_ends_with_a_number_is_not_taken_for_another() -> None:
    """They had one label, and the result of the first was lost."""
    native = listed("a", "a", "a (2)", "a")
    labels = [item.label for item in results.items_of(native)]
    assert labels == ["a", "a (2)", "a (2) (2)", "a (3)", results.WHOLE]
    outcome = verdicts(native, ran(("a", "ok"), ("a", "err"), ("a (2)", "ok"), ("a", "ok")))
    assert [outcome[label] for label in labels] == ["passed", "failed", "passed", "passed", "passed"]


def test_a_failure_that_belongs_to_no_test_fails_the_file() -> None:
    native = listed("a")
    assert verdicts(native, ran(("a", "ok"), ("unknown", "err")))[results.WHOLE] == "failed"
    assert verdicts(native, ran(("a", "ok"), outside=("Can't start the server",)))[results.WHOLE] == "failed"
    assert verdicts(native, ran(("a", "ok"), ("unknown", "ok")))[results.WHOLE] == "passed"


@pytest.mark.parametrize(
    ("here", "run_", "started", "expected"),
    [
        ({}, ran(("a", "ok")), 1, "passed"),
        ({}, ran(("a", "ok"), done=False), 1, "missing"),
        ({}, ran(("a", "ok")), 0, "missing"),
        ({"started": 0}, ran(("a", "ok")), 0, "passed"),
        ({"done": False}, ran(("a", "ok")), 1, "missing"),
        ({"tests": []}, ran(), 1, "skipped"),
        ({"outside": ["no server"]}, ran(("a", "ok")), 1, "missing"),
        ({}, ran(("a", "ok"), code=1), 1, "failed"),
        ({}, ran(("a", "ok"), code=-11), 1, "failed"),
        ({"code": 1}, ran(("a", "ok"), code=1), 1, "passed"),
        ({}, ran(("a", "err"), code=1), 1, "passed"),
        ({}, ran(("a", "ok"), code=0), 1, "passed"),
    ],
    ids=[
        "whole",
        "cut short",
        "nothing ran on the target",
        "no server at all",
        "cut short here",
        "no tests",
        "a failure outside of tests here",
        "a bad exit status",
        "a signal",
        "the same exit status here",
        "the exit status of a failed test",
        "a good exit status",
    ],
)
def test_a_file_passes_only_if_it_completed_natively_and_on_the_target(
    here: dict[str, object], run_: FileRun, started: int, expected: str
) -> None:
    native = results.NativeRun(tests=listed("a"), seconds=1.0, done=True, started=3)
    native = msgspec.structs.replace(native, **here)
    assert results.verdict_of_file(native, [run_], [[]], started=started).outcome == expected


def test_a_release_names_its_files(tree: Path) -> None:
    names = [file.name for file in upstream_files(tree)]
    assert names == ["unit/first", "unit/second", "unit/moduleapi/hooks", "cluster/03-failover-loop"]
    assert [file.path for file in upstream_files(tree)][-1] == "tests/cluster/tests/03-failover-loop.tcl"
    (tree / "tests" / "test_helper.tcl").write_text("set ::all_tests {\n    unit/second\n    unit/gone\n}\n", "utf-8")
    assert next(file.name for file in upstream_files(tree)) == "unit/second"


def test_the_files_of_a_release_are_found_even_if_its_helper_first_looks_for_a_server(tree: Path) -> None:
    helper = tree / "tests" / "test_helper.tcl"
    looks = 'if {![file executable $::env(VALKEY_BIN_DIR)/valkey-server]} {error "no server"}\n'
    helper.write_text(looks + helper.read_text("utf-8"), "utf-8")
    assert [file.name for file in upstream_files(tree)][:2] == ["unit/first", "unit/second"]


def test_a_selection_names_files_or_only_tests(tree: Path) -> None:
    files = upstream_files(tree)
    assert [file.name for file in selected(files, ["unit/first::passes"])] == ["unit/first"]
    assert [file.name for file in selected(files, ["unit/*"])][-1] == "unit/moduleapi/hooks"
    assert selected(files, ["passes"]) == files
    with pytest.raises(UsageError, match="no test file unit/fist") as caught:
        selected(files, ["unit/fist"])
    assert "did you mean 'unit/first'?" in str(caught.value)


def test_without_a_name_only_the_short_list_runs(tree: Path) -> None:
    files = upstream_files(tree)
    short = ("unit/second", "unit/of-a-later-release")
    for words, names in (
        ((), ["unit/second"]),
        (("passes",), ["unit/second"]),
        (("unit/first::passes",), ["unit/first"]),
        (("unit/first", "passes"), ["unit/first"]),
        (("passes", "unit/first"), ["unit/first"]),
    ):
        assert [file.name for file in selected(files, words, unnamed=short)] == names, words


def test_with_other_suites_a_name_may_belong_to_one_of_them(tree: Path) -> None:
    files = upstream_files(tree)
    assert selected(files, ["edges/offset"], beside_others=True) == []
    assert [file.name for file in selected(files, ["edges/offset", "unit/first"], beside_others=True)] == ["unit/first"]
    assert selected(files, ["edges/offset", "passes"], beside_others=True) == files


def selection_of(tree: Path, *suites: str, tier: str = "quick", tests: Sequence[str] = ()) -> UpstreamSelection:
    """The set-up of a run on this test's tree."""
    bench = Workbench.default()
    plan = make_plan(bench.catalog, targets=["armv5"], server=str(tree), suites=suites, tier=tier)
    request = fakes.quick_request(plan, server=str(tree), known=tree / "known.toml", run=tree / "run")
    request = msgspec.structs.replace(request, tier=tier, tests=list(tests))
    source = SourceTree(name="redis", family="redis", version=(7, 0), path=tree, digest="0")
    return select_upstream(request, source, [bench.catalog.suites[name] for name in request.plan.suites])


def test_a_tier_and_a_selection_decide_which_files_run(tree: Path) -> None:
    (tree / "tests" / "unit" / "bitops.tcl").touch()
    (tree / "tests" / "test_helper.tcl").write_text("set ::all_tests {unit/first unit/bitops}\n", "utf-8")
    every = ("unit/first", "unit/bitops", "unit/moduleapi/hooks", "cluster/03-failover-loop")
    assert selection_of(tree).files == ("unit/bitops",)
    assert selection_of(tree, tests=["unit/first"]).files == ("unit/first",)
    assert selection_of(tree, "upstream").files == selection_of(tree, tier="full").files == every
    assert selection_of(tree, "upstream", tests=["unit/first"]).files == ("unit/first",)
    assert selection_of(tree, tests=["nowhere/at all"]).files == ()
    assert selection_of(tree, "bitops", tier="full").files == ()
    left_out = Workbench.default().catalog.suites["upstream"].quick_leaves_out
    assert selection_of(tree).left_out == left_out != ()
    assert selection_of(tree, tests=["unit/first"]).left_out == ()
    assert selection_of(tree, "upstream").left_out == selection_of(tree, tier="full").left_out == ()
    with pytest.raises(UsageError, match="no test file nowhere/at all"):
        selection_of(tree, "upstream", tests=["nowhere/at all"])


def test_a_tree_without_tests_is_refused_only_where_nothing_else_runs(tmp_path: Path) -> None:
    assert selection_of(tmp_path).files == ()
    with pytest.raises(UsageError, match="no tests of its own"):
        selection_of(tmp_path, "upstream")


@pytest.mark.parametrize(
    ("word", "chosen"),
    [
        ("unit/type/*", True),
        ("unit/type/string", True),
        ("type/str", True),
        ("unit/type/string::SET", True),
        ("unit/type/*::*GET*", True),
        ("unit/type/string::DEL", False),
        ("unit/type/hash", False),
        ("cluster/0*", False),
        ("SET and", True),
        ("*and GET", True),
        ("DEL", False),
    ],
)
def test_words_select_tests_by_file_and_name(word: str, *, chosen: bool) -> None:
    assert is_selected("unit/type/string::SET and GET", ["nothing", word]) is chosen
    assert is_selected("unit/type/string::SET and GET", [])


def test_a_tree_without_tests_is_a_usage_error_that_names_the_users_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no tests of its own") as raised:
        upstream_files(tmp_path, shown=tmp_path / "mine")
    assert raised.value.where == str(tmp_path / "mine/tests/test_helper.tcl")


def test_a_tcl_that_is_too_old_is_a_usage_error(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old" / "tclsh"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 8.5\n", "utf-8")
    old.chmod(0o755)
    monkeypatch.setattr(
        process, "PLAIN_ENVIRONMENT", {**process.PLAIN_ENVIRONMENT, "PATH": f"{old.parent}:{os.defpath}"}
    )
    monkeypatch.setenv("PATH", f"{old.parent}:{os.environ['PATH']}")
    with pytest.raises(UsageError, match=r"tclsh 8\.5 is too old"):
        upstream_files(tree)


@pytest.fixture
def echoing(tmp_path: Path, launcher: Path) -> Callable[[str], None]:
    """A function that runs a shell command. In it, `$SERVER` is the launcher, which starts a program like echo."""
    (tmp_path / "src").mkdir()
    (tmp_path / "plumbline").mkdir()
    server = tmp_path / "src" / "redis-server"
    shutil.copy2(launcher, server)
    echo = LaunchVariant(home=tmp_path, program="/bin/echo", arguments=("{self}",))
    write_list(tmp_path / "plumbline" / "launches", [echo], echo)

    def run(line: str) -> None:
        process.run_successfully(
            ["sh", "-c", line],
            problem="the line failed",
            deadline_seconds=20,
            folder=tmp_path,
            environment={**process.PLAIN_ENVIRONMENT, "SERVER": str(server)},
        )

    return run


def test_the_log_of_a_launch_begins_at_its_start(tmp_path: Path, echoing: Callable[[str], None]) -> None:
    (tmp_path / "stdout").write_text("old words\n", "utf-8")
    echoing('"$SERVER" new words >> stdout')
    (launch,) = read_launches(tmp_path)
    assert log_of(launch) == b"new words\n"


def test_the_log_of_a_launch_is_found_after_a_restart_has_renamed_it(
    tmp_path: Path, echoing: Callable[[str], None]
) -> None:
    echoing('"$SERVER" first >> stdout 2>> stderr; mv stdout stdout.1; mv stderr stderr.1')
    echoing('"$SERVER" second >> stdout 2>> stderr')
    launches = read_launches(tmp_path)
    assert [log_of(one) for one in launches] == [b"first\n", b"second\n"]
    assert all(map(is_whole, launches))


@pytest.mark.parametrize("lost", ["rm stdout", "echo another line > other; mv other stdout", ": > stdout"])
def test_a_launch_whose_output_is_lost_has_no_complete_log(
    tmp_path: Path, echoing: Callable[[str], None], lost: str
) -> None:
    echoing(f'echo before > stdout; "$SERVER" words >> stdout 2>> stderr; {lost}')
    (launch,) = read_launches(tmp_path)
    assert not is_whole(launch)
    assert log_of(launch) == b""


def test_an_unreadable_line_of_a_journal_is_skipped() -> None:
    begin = json.dumps({"event": "begin", "time": "1", "test": "a", "servers": "12", "faults": "guest-1=20"})
    end = json.dumps({"event": "end", "time": "1501", "test": "a", "outcome": "ok", "faults": "guest-1=99"})
    done = json.dumps({"event": "done", "time": "1502"})
    journal = read_journal(f"{begin}\n{{\x00\n{end}\n{done}\n".encode())
    assert not journal.done, "the line may have recorded a failure outside of all tests"
    assert read_journal(f"{begin}\n{end}\n{done}\n".encode()).done
    (test,) = journal.tests
    assert (test.seconds, test.servers) == (1.5, (12,))
    assert (test.logs_before, test.logs_after) == ({"guest-1": 20}, {"guest-1": 99})


def note(home: Path, number: int, program: str) -> None:
    """The launcher's record of a program that was started in this folder, without files for its output."""
    words = [str(number), "0", str(home), *["", "0", ""] * 2, program]
    fakes.write(home / f"guest-{number}" / "launch", "\0".join([*words, ""]))


def test_programs_are_listed_in_the_order_of_their_starts(tmp_path: Path) -> None:
    for number in (10, 3, 12, 1, 11, 2):
        note(tmp_path, number, "src/redis-server")
    (tmp_path / "guest-4").mkdir()
    assert [launch.guest for launch in read_launches(tmp_path)] == [
        f"guest-{number}" for number in (1, 2, 3, 10, 11, 12)
    ]


def test_clients_that_ran_natively_leave_no_evidence_and_hide_no_server(native_cell: CellSpec, tmp_path: Path) -> None:
    home = tmp_path / "home"
    kept = evidence.UpstreamEvidence(native_cell, homes=[home], names={}, started_in=tmp_path)
    for number, program in enumerate(("server", "cli", "benchmark", "server"), 1):
        note(home, number, f"src/redis-{program}")
    kept.collect(ran(("a", "ok")), {0: "a"}, number=0)
    assert [(one.name, one.pid) for one in kept.ended] == [("guest-1", 1), ("guest-4", 4)]
    assert sorted(path.name for path in home.iterdir()) == ["guest-1", "guest-4"]


def ended_process(tmp_path: Path, pid: int, *, end_at: int) -> evidence.StartedProcess:
    launch = Launch(
        guest="guest-1",
        folder=tmp_path,
        pid=pid,
        began_ms=0,
        outputs=(),
        keeps_errors=True,
        working_folder=tmp_path,
        words=("src/redis-server",),
    )
    end = fault_log.ProcessEnd(event="end", pid=pid, signal=6, status=0)
    return evidence.StartedProcess(launch=launch, target="", run=0, content=b"", end=end, end_at=end_at)


@pytest.mark.parametrize(
    ("end_at", "expected"),
    [(50, "first"), (150, "second"), (250, "second"), (350, "third")],
    ids=["in the first", "in the second", "between the second and the third", "after the last"],
)
def test_a_server_that_ends_between_two_tests_belongs_to_the_first_of_them(
    tmp_path: Path, end_at: int, expected: str
) -> None:
    spans = {"first": (0, 100), "second": (100, 200), "third": (300, 320)}
    tests = [
        UpstreamTest(
            name=name, reported="ok", servers=(7,), logs_before={"guest-1": before}, logs_after={"guest-1": after}
        )
        for name, (before, after) in spans.items()
    ]
    process_ = ended_process(tmp_path, 7, end_at=end_at)
    assert evidence.during(process_, [(test.name, test) for test in tests])[0] == expected
    other_process = ended_process(tmp_path, 8, end_at=250)
    assert evidence.during(other_process, [(test.name, test) for test in tests]) == ("", None)
