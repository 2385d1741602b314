"""What a replay observes of a server. Scripts in place of emulators end, hang, refuse, and write truncated records."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from harness.build.workshop.build_failure import BuildFailedError
from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.finding import Reproduction
from harness.core.processes import capped_log
from harness.core.target_model import ORACLE
from harness.judge.conclusion import conclude
from harness.judge.reproducer import ReplayedProgram, Reproducer, read_reproducer, stored_at
from harness.plan.catalog import Catalog
from harness.protocol.command_stream import from_text, text_of, wire
from harness.record import cell_events, event_log, fault_log, stored_run
from harness.record.run_record import WITH_TLS, CellRecord
from harness.record.transcript import Chunk
from harness.run.programs.traced_command import CommandEnd
from harness.run.server_process import Guest
from harness.run.servers.server_spec import ServerSpec
from harness.workflows.replay.recorded_requests import comparable_stream, recorded_replies
from harness.workflows.replay.recurrence import recurrence
from harness.workflows.replay.replay import replay
from harness.workflows.replay.reruns import program, upstream
from harness.workflows.replay.reruns.replayed_run import cut_short
from harness.workflows.replay.reruns.server import run_server
from harness.workflows.replay.reruns.upstream import left_in, observed, run_upstream
from harness.workflows.target_setup import TargetSetup, oracle_setup
from harness.workflows.workbench import Workbench
from tests.support import fakes
from tests.support.reproducers import reproducer
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.model import Build
    from harness.workflows.replay.reruns.replayed_run import ReplayedRun

pytestmark = pytest.mark.costly

SERVER = """#!/usr/bin/env python3
import os, signal, socket, sys
path = sys.argv[sys.argv.index("--unixsocket") + 1]
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
while True:
    client, _ = listener.accept()
    while piece := client.recv(100):
        if b"PING" in piece:
            client.sendall(b"+PONG\\r\\n")
        else:
            {act}
    client.close()
"""


def replayed(
    folder: Path,
    act: str,
    *,
    start: str = "",
    records: str = "",
    timeout_multiplier: float = 1.0,
    again: Reproduction | None = None,
) -> ReplayedRun:
    """Send one request to a new guest, which then does `act`."""
    build = fakes.build(folder / "build")
    program = SERVER.replace("{act}", act) if not start else f"#!/bin/sh\n{start}\n"
    fakes.write(build.server_binary, program, mode=0o755)
    request = Chunk(connection=1, direction="request", data=base64.b64encode(b"GET k\r\n").decode())
    due = Chunk(connection=1, direction="reply", data=base64.b64encode(b"$-1\r\n").decode())
    asked = Reproducer(
        finding="crash-x",
        kind="crash",
        function="",
        server="redis-7.0.15",
        target="armv5",
        policy="signal",
        optimisation="O2",
        emulator="pinned",
        chunks=[request, due, request],
        detector="process",
        again=again,
    )
    guest = Guest(
        ServerSpec(build=build, version=(7, 0, 15), files={}),
        fakes.unemulated(msgspec.structs.replace(fakes.target(), timeout_multiplier=timeout_multiplier)),
        folder / "guest-1",
        sockets=folder,
    )
    if records:
        fakes.write(guest.evidence.fault_log, records)

    def nobody() -> Guest:
        raise AssertionError("neither a native server nor a server without the proxy is needed")

    return run_server(guest, asked, nobody, nobody)


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A socket's path has at most 107 bytes."""
    return tmp_path_factory.mktemp("r")


def test_a_server_that_answers_and_lives_on(short: Path) -> None:
    observation = replayed(short, ANSWER).observation
    assert (observation.started, observation.detail, observation.hung, observation.undelivered, observation.cut) == (
        True,
        "",
        False,
        "",
        "",
    )


def test_a_server_that_dies_tells_how(short: Path) -> None:
    observation = replayed(short, "os.kill(os.getpid(), signal.SIGABRT)").observation
    assert (observation.started, observation.detail, observation.hung, observation.cut) == (
        True,
        "killed by SIGABRT",
        False,
        "",
    )


def test_a_server_that_hangs_when_it_is_told_to_stop_tells_so(short: Path) -> None:
    act = f"signal.signal(signal.SIGTERM, signal.SIG_IGN); {ANSWER}"
    observation = replayed(short, act, timeout_multiplier=0.1).observation
    assert (observation.started, observation.detail, observation.hung) == (
        True,
        "it did not end within 2 s of the order to stop",
        True,
    )


def test_a_server_that_dies_when_it_is_told_to_stop_tells_so(short: Path) -> None:
    # With the whole time to end: on a busy machine, Linux may need seconds for a core dump.
    act = f"signal.signal(signal.SIGTERM, lambda *_: os.abort()); {ANSWER}"
    observation = replayed(short, act).observation
    assert (observation.started, observation.detail, observation.hung) == (
        True,
        "killed by SIGABRT when it was told to stop",
        False,
    )


def test_a_server_that_is_killed_from_outside_is_no_evidence(short: Path) -> None:
    observation = replayed(short, "os.kill(os.getpid(), signal.SIGKILL)").observation
    assert observation.cut == "it was killed by SIGKILL from outside (out of memory, or by hand)"


def test_a_server_that_closes_a_connection_has_not_taken_all_requests(short: Path) -> None:
    observation = replayed(short, "break").observation
    assert observation.undelivered == "it closed a connection, 1 of 2 requests had been sent"
    assert (observation.detail, observation.hung) == ("", False)


def test_a_server_that_does_not_start_says_so_and_why(short: Path) -> None:
    observation = replayed(short, "", start="echo Bad directive; exit 3").observation
    assert (observation.started, observation.detail, observation.refuses_files) == (
        False,
        "exit status 3; Bad directive",
        False,
    )


ANSWER = 'client.sendall(b"$-1\\r\\n")'
SAYS_SO = 'print("qemu: -fault-log: a record was cut short: No space left", flush=True)'


COUNT = '{"event":"count","pid":1,"pc":1,"count":1}\n'


@pytest.mark.parametrize(
    ("act", "records", "cut"),
    [
        (ANSWER, COUNT + '{"event":"fau', "faults.jsonl ends in the middle of a line"),
        (ANSWER, '{"event":"fault","pid":1,\n' + COUNT, "line 1 of faults.jsonl is damaged"),
        (f"{SAYS_SO}; {ANSWER}", "", "its emulator could not write a record of a fault"),
        (ANSWER, COUNT, ""),
    ],
    ids=["cut", "damaged", "not written", "whole"],
)
def test_a_fault_log_that_was_cut_short_is_not_believed(short: Path, act: str, records: str, cut: str) -> None:
    assert replayed(short, act, records=records).observation.cut == cut


KILLED = '{"event":"end","pid":7,"signal":6,"status":0}\n'


def test_a_child_that_was_killed_without_a_fault_is_seen(short: Path) -> None:
    observation = replayed(short, ANSWER, records=KILLED).observation
    assert observation.children == {"SIGABRT"}
    assert observation.end.endswith("is still running\na child process was killed by SIGABRT")


@pytest.mark.parametrize(
    "record",
    [
        KILLED.replace('"signal":6', '"signal":0'),
        KILLED.replace('"signal":6', '"signal":15'),
        json_codec.encode(fakes.fault(pid=7)).decode() + "\n" + KILLED,
    ],
    ids=["ended", "told-to-end", "fault"],
)
def test_a_child_that_ended_or_has_a_fault_is_no_such_death(short: Path, record: str) -> None:
    assert replayed(short, ANSWER, records=record).observation.children == frozenset()


def forks(act: str) -> str:
    """A server that answers, and whose child acts."""
    return f"os.fork() or ({act}, os._exit(0)); {ANSWER}"


def test_a_child_is_awaited_before_its_server_is_stopped(short: Path) -> None:
    """A server kills the child that saves when it is told to stop, and what the child would have shown was gone."""
    log = short / "guest-1" / fault_log.NAME
    dies = f"__import__('time').sleep(0.5), open({str(log)!r}, 'a').write({KILLED!r})"
    observation = replayed(short, forks(dies)).observation
    assert (observation.children, observation.undelivered) == (frozenset({"SIGABRT"}), "")


def test_a_child_that_still_runs_may_yet_show_the_finding(short: Path) -> None:
    observation = replayed(short, forks("signal.pause()"), timeout_multiplier=0.1).observation
    assert observation.undelivered == "a child process of the server still ran when the replay ended"


def test_a_record_that_the_emulator_began_and_that_is_not_there_is_missed(tmp_path: Path) -> None:
    log = tmp_path / fault_log.NAME
    log.write_text(COUNT, "utf-8")
    fault_log.ledger_of(log).write_bytes((2).to_bytes(8, "little") + (1).to_bytes(8, "little"))
    assert "has 1 lines, of 2 that the emulator began" in cut_short(log, b"")


def test_reports_may_have_been_in_the_middle_of_a_long_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capped_log, "LIMIT_BYTES", 20)
    output = b"0123456789\n[plumbline: 7 bytes are left out here]\n0123456789"
    log = tmp_path / fault_log.NAME
    assert cut_short(log, output, detector="ubsan") == "the output was too long, and its middle is gone"
    assert cut_short(log, output) == cut_short(log, b"0123456789", detector="ubsan") == ""


def sent(*turns: tuple[int, str, bytes]) -> Reproducer:
    """A wrong result with the conversation of several connections."""
    chunks = [
        Chunk(connection=connection, direction="reply" if direction == "<" else "request", data=encoded(content))
        for connection, direction, content in turns
    ]
    return Reproducer(
        finding="wrong-result-x",
        kind="wrong-result",
        function="",
        server="redis-7.0.15",
        target="armv5",
        policy="signal",
        optimisation="O2",
        emulator="pinned",
        chunks=chunks,
    )


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_clients_are_sent_again_by_turns() -> None:
    pushed = wire(from_text("LPUSH l a"))
    found = comparable_stream(
        sent(
            (4, ">", wire(from_text("BLPOP l 0"))),
            (3, ">", pushed[:9]),
            (3, ">", pushed[9:]),
            (3, "<", b":1\r\n"),
            (4, "<", b"*2\r\n$1\r\nl\r\n$1\r\na\r\n"),
            (4, ">", b"PING\r\n"),
        )
    )
    assert text_of(found) == "BLPOP l 0\n@2 LPUSH l a\n PING\n"
    assert not comparable_stream(sent((1, ">", pushed), (2, ">", pushed[:9])))


def test_a_clients_number_is_its_name_for_another_server() -> None:
    asked = wire(from_text("CLIENT ID"))
    found = comparable_stream(
        sent(
            (1, ">", asked),
            (1, "<", b":17\r\n"),
            (2, ">", asked),
            (2, "<", b":18\r\n"),
            (1, ">", wire(from_text("CLIENT UNBLOCK 18\nSET k 18"))),
            (2, ">", asked),
        )
    )
    assert text_of(found) == "CLIENT UNBLOCK <client-2>\nSET k 18\n@2 CLIENT ID\n"
    # With a single client, the commands remain unchanged.
    assert text_of(comparable_stream(sent((1, ">", asked), (1, "<", b":17\r\n")))) == "CLIENT ID\n"


def test_a_failed_tests_answers_are_known_if_it_had_one_connection() -> None:
    asked = wire(from_text("TIME"))
    assert recorded_replies(sent((1, ">", asked), (1, "<", b"+a\r\n:"), (1, "<", b"5\r\n"))) == [b"a", 5]
    assert recorded_replies(sent((1, ">", asked), (1, "<", b":5\r\n"), (2, ">", asked))) == []


@pytest.mark.parametrize(
    ("reply", "file", "outcome"),
    [
        ("$2\\r\\nab\\r\\n", "", "reproduced"),
        ("$2\\r\\ncd\\r\\n", "", "gone"),
        ("$-1\\r\\n", "", "unknown"),
        ("-ERR unknown command\\r\\n", "", "unknown"),
        ("-ERR cannot save\\r\\n", "given", "unknown"),
        ("+OK\\r\\n", "given", "gone"),
    ],
)
def test_wrong_bytes_are_gone_only_where_a_reply_or_a_file_could_have_had_them(
    short: Path, reply: str, file: str, outcome: str
) -> None:
    """The file existed before, so that a server that refuses to write it shows nothing."""
    fakes.write(short / "guest-1" / "given", "cd")
    again = Reproduction(target="armv5", requests=("DUMP k",), wrong=b"ab".hex(), file=file)
    observation = replayed(short, f'client.sendall(b"{reply}")', again=again).observation
    finding = reproducer(kind="wrong-result", function="", detector="suite", again=again)
    assert recurrence(finding, observation).outcome == outcome


@pytest.mark.parametrize(
    ("test", "outcome"),
    [
        ({"outcome": "passed"}, "gone"),
        ({"outcome": "failed", "message": "Expected 1"}, "reproduced"),
        ({"outcome": "failed", "message": "no result", "doubt": "no result"}, "unknown"),
        ({"outcome": "failed", "message": "I/O error", "blocked": True, "blocked_by": "guest-1"}, "unknown"),
        ({"outcome": "skipped", "message": "Skipped: listed in suites/upstream/differences.toml: 1"}, "unknown"),
    ],
)
def test_a_test_of_the_releases_own_tells_that_a_finding_is_gone_only_if_it_passed(
    test: dict[str, Any], outcome: str
) -> None:
    name = "unit/a::one"
    event = cell_events.TestEvent(name="item", seconds=0.1, upstream=name, **test)
    record = CellRecord(target="armv5", suite="upstream", seconds=1.0)
    for finding in (
        reproducer(kind="wrong-result", function="", detector="suite", upstream=name),
        reproducer(upstream=name),
    ):
        due = "gone" if finding.kind == "alignment" and outcome == "reproduced" else outcome
        assert recurrence(finding, observed(name, record, [event])).outcome == due
    assert recurrence(reproducer(upstream=name), observed(name, record, [])).outcome == "unknown"


def test_the_reports_of_a_detector_and_lost_records_are_seen_in_a_file_of_the_releases_own_tests(short: Path) -> None:
    name = "unit/a::one"
    log = event_log.EventLog(short / event_log.NAME)
    log.append(cell_events.TestEvent(name="item", outcome="passed", seconds=0.1, upstream=name))
    record = CellRecord(target="native-ubsan", suite="upstream", seconds=1.0)
    guest = short / "guest-1"
    fakes.write(guest / "log", "bitops.c:7:3: runtime error: shift exponent 32 is too large\n")
    seen = left_in(short, name, record, detector="ubsan")
    assert [(report.detector, report.kind) for report in seen.reports] == [("ubsan", "undefined-shift")]
    assert (left_in(short, name, record, detector="").reports, seen.observation.cut) == ([], "")
    fakes.write(guest / fault_log.NAME, '{"event":"fault"')
    assert "ends in the middle of a line" in left_in(short, name, record, detector="ubsan").observation.cut


def test_what_the_emulator_lost_and_children_are_seen_in_a_file_of_the_releases_own_tests(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "unit/a::one"
    log = event_log.EventLog(short / event_log.NAME)
    log.append(cell_events.TestEvent(name="item", outcome="passed", seconds=0.1, upstream=name))
    log.append(cell_events.GuestEvent(name="guest-1", end="stopped", pid=6, upstream=True))
    record = CellRecord(target="native-ubsan", suite="upstream", seconds=1.0)
    fakes.write(short / "guest-1" / "log", "QEMU internal SIGSEGV {code=MAPERR}\n")
    fakes.write(short / "guest-1" / fault_log.NAME, KILLED + KILLED.replace("7", "6"))
    seen = left_in(short, name, record, detector="").observation
    assert (seen.children, seen.cut) == (frozenset({"SIGABRT"}), "its emulator crashed: QEMU internal SIGSEGV")
    monkeypatch.setattr(capped_log, "LIMIT_BYTES", 20)
    fakes.write(short / "guest-1" / "log", "0123456789\n[plumbline: 7 bytes are left out here]\n0123456789")
    assert "its middle is gone" in left_in(short, name, record, detector="ubsan").observation.cut
    assert left_in(short, name, record, detector="").observation.cut == ""


@pytest.mark.parametrize(("target", "home"), [("", "."), ("armv5", "peers/armv5")])
def test_the_output_of_a_server_of_the_releases_own_tests_that_is_gone_may_have_had_the_finding(
    short: Path, target: str, home: str
) -> None:
    name = "unit/a::one"
    log = event_log.EventLog(short / event_log.NAME)
    log.append(cell_events.TestEvent(name="item", outcome="passed", seconds=0.1, upstream=name))
    log.append(cell_events.GuestEvent(name="guest-1", end="stopped", target=target, left=("log",), upstream=True))
    record = CellRecord(target="native-ubsan", suite="upstream", seconds=1.0)
    assert left_in(short, name, record, detector="ubsan").observation.cut == "guest-1: its log is gone"
    fakes.write(short / home / "guest-1" / "log", "")
    assert left_in(short, name, record, detector="ubsan").observation.cut == ""


@pytest.mark.parametrize(
    ("ends", "log", "code", "outcome"),
    [
        ("7 exited 0", '{"event":"end","pid":7,"signal":0,"status":0}\n', 0, "gone"),
        ("7 killed 9", "", -9, "unknown"),
        ("7 killed 14", "", -14, "unknown"),
        ("7 exited 1", "", 1, "unknown"),
    ],
    ids=["to its end", "killed", "killed by its own alarm", "never run by the emulator"],
)
def test_a_program_that_did_not_get_to_its_end_does_not_tell_that_a_finding_is_gone(
    short: Path, ends: str, log: str, code: int, outcome: str
) -> None:
    launch = ReplayedProgram(words=["p"], program="/p", file="/p", folder="/", environment={})
    guest = short / "guest-1"
    fakes.write(guest / "launch", "7 1 / /p /p 1 p ".replace(" ", "\0"))
    fakes.write(guest / "ends", f"{ends}\n")
    fakes.write(guest / fault_log.NAME, log)
    finding = reproducer(launch=launch, command="p")
    observation = program.observed(short, finding, launch, CommandEnd(code=code, seconds=1.0)).observation
    assert recurrence(finding, observation).outcome == outcome


@pytest.mark.parametrize(("status", "outcome"), [(0, "gone"), (1, "gone"), (127, "unknown")])
def test_a_program_whose_libraries_are_missing_does_not_tell_that_a_finding_is_gone(
    short: Path, status: int, outcome: str
) -> None:
    launch = ReplayedProgram(words=["p"], program="/p", file="/p", folder="/", environment={})
    guest = short / "guest-1"
    fakes.write(guest / "launch", "7 1 / /p /p 1 p ".replace(" ", "\0"))
    fakes.write(guest / "ends", f"7 exited {status}\n")
    fakes.write(guest / fault_log.NAME, f'{{"event":"end","pid":7,"signal":0,"status":{status}}}\n')
    finding = reproducer(launch=launch, command="p")
    observation = program.observed(short, finding, launch, CommandEnd(code=status, seconds=1.0)).observation
    assert recurrence(finding, observation).outcome == outcome


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [(0, 0, "gone"), (77, 0, "unknown"), (1, 2, "reproduced"), (0, 2, "unknown"), (None, 2, "unknown")],
    ids=["passes", "skips its tests", "a test fails", "something else fails", "does not compile"],
)
def test_a_command_shows_its_failure_again_only_if_a_program_of_the_target_fails(
    short: Path, status: int | None, code: int, outcome: str
) -> None:
    """Otherwise a bisection would blame the first commit that does not compile."""
    launch = ReplayedProgram(words=["make", "check"], program="", file="make", folder="/", environment={})
    if status is not None:
        guest = short / "guest-1"
        fakes.write(guest / "launch", "7 1 / /p /p 1 p ".replace(" ", "\0"))
        fakes.write(guest / "ends", f"7 exited {status}\n")
        fakes.write(guest / fault_log.NAME, f'{{"event":"end","pid":7,"signal":0,"status":{status}}}\n')
    finding = reproducer(
        finding="wrong-result-make", kind="wrong-result", detector="suite", launch=launch, command="make check"
    )
    observation = program.observed(short, finding, launch, CommandEnd(code=code, seconds=1.0)).observation
    ended = recurrence(finding, observation)
    assert (ended.outcome, ended.machine) == (outcome, False)


def test_a_server_that_does_not_compile_with_tls_is_compiled_with_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server without TLS was compiled, and the finding was "not reproduced"."""
    error = "src/tls.c:7:3: error: unknown type name 'SSL'"
    stored = StoredRun(tmp_path / "run", targets=(ORACLE,), suites=("canary", "tls"))
    stored.canary(ORACLE)
    stored.problem(ORACLE, "tls", f"{WITH_TLS}redis-3.2.6 does not compile: {error}", "build")
    known = fakes.write(tmp_path / "known.toml", "findings = []\n")
    judgement, _ = conclude(stored_run.read(stored.finish()), known, fakes.quiet())
    path = stored_at(stored.folder, judgement.findings[0].replay)
    assert path is not None

    def build(*_: Any, tls: bool = False) -> Build:
        if tls:
            raise BuildFailedError("redis-3.2.6 does not compile", because=error)
        return fakes.build(tmp_path / "build")

    monkeypatch.setattr(Workbench, "open_server", lambda *_, **__: fakes.opened(tmp_path))
    monkeypatch.setattr(TargetSetup, "build", build)
    bench = Workbench(catalog=Catalog(), cache=Cache(tmp_path / "cache"), progress=fakes.quiet(), offline=True)
    finding = read_reproducer(str(path))
    assert replay(bench, finding, server="").outcome == "reproduced"
    plain = msgspec.structs.replace(finding, detail=finding.detail.removeprefix(WITH_TLS))
    assert replay(bench, plain, server="").outcome == "gone"


def test_the_other_targets_of_a_mixed_test_have_the_allocator_of_the_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They had libc's, so that what jemalloc on one of them showed was gone."""
    other, allocators = "native-ubsan", set()

    def build(setup: TargetSetup, _tree: object, _level: str, allocator: str = "libc", **_: Any) -> Build:
        allocators.add((setup.target.name, "server", allocator))
        return fakes.build(tmp_path / "build")

    def programs(setup: TargetSetup, _tree: object, _level: str, allocator: str = "libc") -> Path:
        allocators.add((setup.target.name, "programs", allocator))
        return tmp_path

    # Nothing is compiled, and no cell runs.
    monkeypatch.setattr(TargetSetup, "build", build)
    monkeypatch.setattr(TargetSetup, "upstream", programs)
    monkeypatch.setattr(TargetSetup, "upstream_spec", lambda *_, **__: None)
    monkeypatch.setattr(upstream, "run_cell", lambda *_: CellRecord(target=ORACLE, suite="upstream", seconds=1.0))
    bench = Workbench(catalog=Catalog(), cache=Cache(tmp_path / "cache"), progress=fakes.quiet(), offline=True)
    setup = oracle_setup(bench)
    finding = reproducer(upstream="unit/a::one", allocator="jemalloc", mixed=[other])
    run_upstream(setup, fakes.opened(tmp_path), finding, fakes.build(tmp_path), setup.runner("signal"), tmp_path)
    assert {one for one in allocators if one[0] == other} == {
        (other, "server", "jemalloc"),
        (other, "programs", "jemalloc"),
    }
