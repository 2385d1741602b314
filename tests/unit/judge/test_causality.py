"""The findings in stored evidence: one misbehaviour is one finding, with its place and its trigger."""

from __future__ import annotations

import base64
import signal
from typing import TYPE_CHECKING, Literal

import msgspec
import pytest

from harness.analysis.crash_reports.assertion_log import asserted
from harness.core import json_codec
from harness.core.errors import ExitCode
from harness.judge import causality
from harness.record import cell_events, fault_log, run_folder
from harness.workflows.replay.recurrence import Observation, recurrence
from tests.support import fakes
from tests.support.fakes import fault
from tests.support.stored import StoredRun, a_fault, concluded, entry, judged, reproducer, two_machines

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.fault_log import Fault

pytestmark = pytest.mark.usefixtures("fake_symbols")


def test_a_misaligned_access_is_a_finding_with_its_place_and_its_trigger(tmp_path: Path, run: StoredRun) -> None:
    a_fault(run)
    judgement, code = concluded(tmp_path, run)
    (finding,) = judgement.findings
    assert (judgement.verdict, code) == ("FAIL", ExitCode.FINDINGS)
    assert (
        finding.kind,
        finding.function,
        finding.file,
        finding.line,
    ) == ("alignment", "bitopCommand", "src/bitops.c", 93)
    assert (finding.instruction, finding.access) == ("ldr r1, [r3]", "load of 4 bytes at 1 mod 4")
    assert (
        finding.origin,
        finding.targets,
        finding.command,
        finding.occurrences,
    ) == ("server", ["armv5"], "BITOP AND c a b", 1)
    assert finding.title == "misaligned load in bitopCommand"
    assert "armv5/bitops/guest-1/faults.jsonl" == finding.witnesses[0].evidence  # noqa: SIM300


def test_a_findings_identity_holds_no_address(tmp_path: Path) -> None:
    identities = set()
    for number, shift in enumerate((0, 3)):
        stored = StoredRun(tmp_path / f"run{number}")
        stored.canary("armv5")
        for filler in range(shift):
            stored.place("armv5", f"filler{filler}")
        a_fault(stored)
        identities.add(judged(stored)[0][0].id)
    (identity,) = identities
    assert identity == "alignment-bitopCommand-load"


def test_the_same_function_on_two_targets_is_one_finding_with_two_witnesses(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path / "run", targets=("armv5", "sparc64"))
    for name in stored.targets:
        stored.canary(name)
        a_fault(stored, target=name)
    (finding,) = judged(stored)[0]
    assert (finding.targets, finding.occurrences) == (["armv5", "sparc64"], 2)
    assert [witness.target for witness in finding.witnesses] == ["armv5", "sparc64"]


def test_a_load_and_a_store_in_one_function_are_two_findings(run: StoredRun) -> None:
    pc = run.place("armv5", "bitopCommand")
    run.fault("armv5", "bitops", "guest-1", fault(pc=pc, access="load"))
    run.fault("armv5", "bitops", "guest-2", fault(pc=pc, access="store"))
    assert {"alignment-bitopCommand-load", "alignment-bitopCommand-store"} == {f.id for f in judged(run)[0]}


def test_a_log_is_read_only_once_for_many_faults(run: StoredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a server whose children all die has a long log and a thousand faults, and judging took an hour."""
    read: list[Path] = []

    def counted(guest: Path) -> bytes:
        read.append(guest)
        return b""

    monkeypatch.setattr(causality, "guest_log", counted)
    pc = run.place("armv5", "bitopCommand")
    run.fault("armv5", "bitops", "guest-1", fault(pc=pc, number=signal.SIGSEGV))
    judged(run)
    once = len(read)
    for _ in range(20):
        run.fault("armv5", "bitops", "guest-1", fault(pc=pc, number=signal.SIGSEGV))
    judged(run)
    assert len(read) == 2 * once > 0


def test_a_fault_during_a_passed_test_is_still_a_finding(run: StoredRun) -> None:
    """A forked child (BGSAVE) dies while its parent still answers."""
    pc = run.place("armv5", "rdbSaveBackground", "src/rdb.c", 1)
    run.fault("armv5", "bitops", "guest-1", fault(pid=101, pc=pc))
    run.test("armv5", "bitops", "test_bgsave", guest="guest-1", faults=(0, 1), command="BGSAVE")
    run.guest("armv5", "bitops", "guest-1", end="stopped")
    findings, verdicts = judged(run)
    assert [finding.id for finding in findings] == ["alignment-rdbSaveBackground-load"]
    assert verdicts["armv5/bitops"] == "FAIL"


def test_a_fault_after_a_probe_of_the_processor_is_still_a_finding(run: StoredRun) -> None:
    probe = fault(number=signal.SIGILL, code=1, access="", access_class="", handled=True)
    run.fault("armv5", "bitops", "guest-1", probe)
    run.fault("armv5", "bitops", "guest-1", fault(pid=101, pc=run.place("armv5", "rdbSaveBackground")))
    run.test("armv5", "bitops", "test_bgsave", guest="guest-1", faults=(0, 2), command="BGSAVE")
    run.guest("armv5", "bitops", "guest-1", end="stopped")
    assert [finding.id for finding in judged(run)[0]] == ["alignment-rdbSaveBackground-load"]


def test_a_fault_outside_every_test_is_still_a_finding(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop", guest="guest-1")
    run.fault("armv5", "bitops", "guest-1", fault(pc=run.place("armv5", "serverCron")))
    findings, verdicts = judged(run)
    assert ([f.id for f in findings], verdicts["armv5/bitops"]) == (["alignment-serverCron-load"], "FAIL")


@pytest.mark.parametrize(("claimed", "outcome"), [("guest-1", "unknown"), ("guest-2", "gone")])
def test_a_fault_between_two_tests_is_not_gone_without_requests_to_the_server(
    run: StoredRun, claimed: str, outcome: str
) -> None:
    """A fault without an earlier test, as at start, is gone if the server starts and lives."""
    run.test("armv5", "bitops", "test_bitop", guest=claimed)
    run.fault("armv5", "bitops", "guest-1", fault(pc=run.place("armv5", "serverCron")))
    (finding,) = judged(run)[0]
    assert recurrence(reproducer(finding), Observation(end="it is still running")).outcome == outcome


@pytest.mark.parametrize(("claimed", "outcome"), [("guest-1", "unknown"), ("guest-2", "gone")])
def test_an_end_between_two_tests_is_not_gone_without_requests_to_the_server(
    run: StoredRun, claimed: str, outcome: str
) -> None:
    run.test("armv5", "bitops", "test_bitop", guest=claimed)
    run.guest("armv5", "bitops", "guest-1", end="signal", detail="killed by SIGABRT")
    (finding,) = judged(run)[0]
    assert recurrence(reproducer(finding), Observation(end="it is still running")).outcome == outcome


def test_a_fault_without_a_known_place_is_a_finding_without_a_guess(run: StoredRun) -> None:
    run.place("armv5", "other")
    run.fault("armv5", "bitops", "guest-1", fault(pc=0xFFF0))
    (finding,) = judged(run)[0]
    assert (finding.function, finding.line) == ("??", 0)


def test_a_segmentation_fault_after_a_handled_one_in_the_same_process_belongs_to_the_crash_handler(
    run: StoredRun,
) -> None:
    first, second = run.place("armv5", "bitopCommand"), run.place("armv5", "logStackTrace", "src/debug.c", 1)
    run.fault("armv5", "bitops", "guest-1", fault(pc=first, handled=True))
    run.fault("armv5", "bitops", "guest-1", fault(pc=second, number=fakes.SIGSEGV, code=1, access=""))
    findings = judged(run)[0]
    assert [f.id for f in findings] == ["alignment-bitopCommand-load", "crash-handler-sigsegv-logStackTrace"]
    assert "while the crash handler ran" in findings[1].title


def on_stack(one: Fault, address: int, content: bytes) -> Fault:
    return msgspec.structs.replace(one, stack_address=address, stack=content.hex())


INTERRUPTED = bytes(range(256))
"""The content of the stack above the stack pointer at the first fault."""


@pytest.mark.parametrize(
    ("address", "content", "is_in_handler"),
    [
        # The handler's frames are below, and the interrupted frames are above them.
        (0x6FC0, bytes(0x40) + INTERRUPTED, True),
        # After a return the stack pointer has its old value. After a jump out of the handler it is higher.
        (0x7000, INTERRUPTED, False),
        (0x7080, INTERRUPTED[0x80:], False),
        # The handler was left by a jump, and other calls have been made since.
        (0x6FC0, bytes(0x40) + bytes(0x80) + INTERRUPTED[0x80:], False),
        # The handler runs on a separate stack, or is so deep that the record ends before the interrupted code.
        (0x40000000, bytes(64), True),
        (0x6000, bytes(0x800), True),
    ],
)
def test_a_fault_after_a_handled_one_belongs_to_the_handler_only_while_it_runs(
    run: StoredRun, address: int, content: bytes, *, is_in_handler: bool
) -> None:
    first, second = run.place("armv5", "parse"), run.place("armv5", "other", "src/debug.c", 1)
    run.fault("armv5", "bitops", "guest-1", on_stack(fault(pc=first, handled=True), 0x7000, INTERRUPTED))
    later = fault(pc=second, number=fakes.SIGSEGV, code=1, access="")
    run.fault("armv5", "bitops", "guest-1", on_stack(later, address, content))
    expected = "crash-handler-sigsegv-other" if is_in_handler else "sigsegv-other"
    assert [one.id for one in judged(run)[0]] == ["alignment-parse-load", expected]


OVERWRITTEN = bytes(0x40) + bytes(len(INTERRUPTED))
"""A stack that contains nothing of the code that the first fault interrupted."""


@pytest.mark.parametrize("function", ["memtest_preserving_test", "memtest_test_linux_anonymous_maps"])
def test_a_fault_of_the_memory_test_follows_from_the_reported_crash(
    tmp_path: Path, run: StoredRun, function: str
) -> None:
    """With the guard allocator, the memory test records more mappings than fit its own stack."""
    first, second = run.place("armv5", "parse"), run.place("armv5", function, "src/memtest.c", 1)
    run.fault("armv5", "bitops", "guest-1", on_stack(fault(pc=first, handled=True), 0x7000, INTERRUPTED))
    later = fault(pc=second, number=fakes.SIGSEGV, code=1, access="")
    run.fault("armv5", "bitops", "guest-1", on_stack(later, 0x6FC0, OVERWRITTEN))
    judgement, code = concluded(tmp_path, run)
    assert [one.id for one in judgement.findings] == ["alignment-parse-load", f"crash-handler-sigsegv-{function}"]
    (cause,) = judgement.causes
    assert (cause.start, cause.followers) == ("alignment-parse-load", [f"crash-handler-sigsegv-{function}"])
    assert code is ExitCode.FINDINGS


def test_an_assertion_is_found_although_its_report_ended_in_a_fault(tmp_path: Path, run: StoredRun) -> None:
    place = run.place("armv5", "memtest_preserving_test", "src/memtest.c", 1)
    run.fault("armv5", "bitops", "guest-1", fault(pc=place, number=fakes.SIGSEGV, code=1, access="", handled=True))
    run.log("armv5", "bitops", "guest-1", b"9:M 21 Nov 2026 19:00:00.000 # ==> rdb.c:100 'a' is not true\n")
    run.test("armv5", "bitops", "test_bitop", outcome="failed", message="closed by", guest="guest-1", faults=(0, 1))
    run.guest("armv5", "bitops", "guest-1", end="signal", detail="killed by SIGSEGV", test="test_bitop")
    known = entry("crash-handler-sigsegv-memtest_preserving_test")
    judgement, code = concluded(tmp_path, run, known)
    assert [(one.id, bool(one.known)) for one in judgement.findings] == [
        ("assertion-rdb.c", False),
        ("crash-handler-sigsegv-memtest_preserving_test", True),
    ]
    assert code is ExitCode.FINDINGS


def test_a_unit_that_is_the_memory_test_has_its_own_faults(run: StoredRun) -> None:
    place = run.place("armv5", "memtest_preserving_test", "src/memtest.c", 1)
    run.fault("armv5", "bitops", "guest-unit-memtest", fault(pc=place))
    run.test(
        "armv5", "bitops", "test_unit", outcome="failed", guest="guest-unit-memtest", faults=(0, 1), unit="memtest"
    )
    assert [one.id for one in judged(run)[0]] == ["alignment-memtest_preserving_test-load"]


def test_a_segmentation_fault_in_another_process_is_a_separate_finding(run: StoredRun) -> None:
    first, second = run.place("armv5", "bitopCommand"), run.place("armv5", "child")
    run.fault("armv5", "bitops", "guest-1", fault(pid=1, pc=first, handled=True))
    run.fault("armv5", "bitops", "guest-1", fault(pid=2, pc=second, number=fakes.SIGSEGV, code=1, access=""))
    assert {"alignment-bitopCommand-load", "sigsegv-child"} == {f.id for f in judged(run)[0]}


def test_a_fault_of_another_thread_while_the_crash_handler_runs_is_a_separate_finding(run: StoredRun) -> None:
    """Two I/O threads fault at one place, the second before the first one's handler has ended the server."""
    place = run.place("armv5", "readQueryFromClient")
    for tid in (101, 102):
        run.fault("armv5", "bitops", "guest-1", fault(pid=100, tid=tid, pc=place, handled=True))
    (finding,) = judged(run)[0]
    assert (finding.id, finding.occurrences) == ("alignment-readQueryFromClient-load", 2)


def test_a_jump_to_a_misaligned_address_is_a_finding_of_alignment_without_a_direction(run: StoredRun) -> None:
    blx = fault(pc=run.place("armv5", "call"), access="", access_class="", access_bytes=0, instruction="33ff2fe1")
    run.fault("armv5", "bitops", "guest-1", blx)
    (finding,) = judged(run)[0]
    assert (finding.id, finding.title) == ("alignment-call", "misaligned address in call")


def test_a_bus_error_without_misalignment_is_not_called_misalignment(run: StoredRun) -> None:
    run.fault("armv5", "bitops", "guest-1", fault(pc=run.place("armv5", "f"), code=2))
    (finding,) = judged(run)[0]
    assert (finding.kind, finding.title, finding.access) == ("sigbus", "SIGBUS in f", "")


def test_a_server_that_does_not_compile_is_a_finding(run: StoredRun) -> None:
    run.problem("armv5", "bitops", "redis-3.2.6 does not compile for armv5: x.c:3:5: error: boom", "build")
    findings, verdicts = judged(run)
    assert ([f.kind for f in findings], verdicts["armv5/bitops"]) == (["build"], "FAIL")
    assert "x.c:3:5: error: boom" in findings[0].title


def test_a_server_that_compiles_nowhere_is_one_finding(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path / "run", targets=("armv5", "sparc64"), suites=("canary", "bitops", "protocol"))
    for name in stored.targets:
        stored.canary(name)
        for suite in ("bitops", "protocol"):
            stored.problem(name, suite, "does not compile: x.c:3:5: error: boom", "build")
    (finding,) = judged(stored)[0]
    assert finding.targets == ["armv5", "sparc64"]


def test_a_wrong_reply_is_a_finding_named_after_its_test(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop.py::test_and[3]", outcome="failed", message="BITOP AND: b'a' != b'b'\nmore")
    (finding,) = judged(run)[0]
    assert (finding.kind, finding.title) == ("wrong-result", "test_bitop.py::test_and[3]: BITOP AND: b'a' != b'b'")
    assert "wrong-result-test_bitop.py_test_and" == finding.id  # noqa: SIM300


def test_a_hang_is_a_finding_and_its_failed_test_is_not_another(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop", outcome="failed", message="TimeoutError: timed out", guest="guest-1")
    run.guest("armv5", "bitops", "guest-1", end="hang", detail="no reply within 75 s", test="test_bitop")
    findings = judged(run)[0]
    assert [(f.kind, f.title) for f in findings] == [("hang", "the server hung in test_bitop: no reply within 75 s")]


def test_a_failed_assertion_is_a_finding_although_its_report_has_no_end(run: StoredRun) -> None:
    """A crash handler may wait for ever for a lock that a thread of the server holds."""
    log = b"%d:M 30 Nov 2026 23:26:23.201 # === ASSERTION FAILED ===\n" % fakes.PID
    log += b"%d:M 30 Nov 2026 23:26:23.201 # ==> io_threads.c:66 'data == NULL' is not true\n" % fakes.PID
    run.test("armv5", "bitops", "test_bitop", outcome="failed", message="ServerGoneError: gone", guest="guest-1")
    run.log("armv5", "bitops", "guest-1", log)
    run.guest("armv5", "bitops", "guest-1", end="hang", detail="it began to report a crash", test="test_bitop")
    assert [one.id for one in judged(run)[0]] == ["assertion-io_threads.c"]


def test_a_hang_after_an_assertion_of_another_process_is_a_hang(run: StoredRun) -> None:
    log = b"%d:M 30 Nov 2026 23:26:23.201 # === ASSERTION FAILED ===\n" % (fakes.PID + 1)
    log += b"%d:M 30 Nov 2026 23:26:23.201 # ==> io_threads.c:66 'data == NULL' is not true\n" % (fakes.PID + 1)
    run.test("armv5", "bitops", "test_bitop", outcome="failed", message="TimeoutError: timed out", guest="guest-1")
    run.log("armv5", "bitops", "guest-1", log)
    run.guest("armv5", "bitops", "guest-1", end="hang", detail="no reply", test="test_bitop")
    assert [one.kind for one in judged(run)[0]] == ["hang"]


def test_a_crash_without_a_fault_record_is_a_finding(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop", outcome="failed", message="closed by the server", guest="guest-1")
    run.guest("armv5", "bitops", "guest-1", end="signal", detail="killed by SIGABRT", test="test_bitop")
    findings = judged(run)[0]
    assert [(f.kind, f.title) for f in findings] == [("crash", "the server ended in test_bitop: killed by SIGABRT")]


@pytest.mark.parametrize(
    ("output", "function", "file", "line"),
    [
        (b"redis-server: sds.c:114: _sdsnewlen: Assertion `a + b > a' failed.", "_sdsnewlen", "sds.c", 114),
        (b"9:M 21 Nov 2026 19:00:00.000 # ==> sds.c:100 'a \xff' is not true", "??", "sds.c", 100),
        (b"9:M 21 Nov 2026 19:00:00.000 # Guru Meditation: no #9 left #rdb.c:7", "??", "rdb.c", 7),
        (b"1:M # ==> a.c:1 'x' is not true\n1:M # ==> b.c:2 'y' is not true", "??", "b.c", 2),
    ],
    ids=["the C library's", "the server's own", "a panic", "the last counts"],
)
def test_an_assertion_in_a_log_is_a_finding_at_its_place(
    run: StoredRun, output: bytes, function: str, file: str, line: int
) -> None:
    run.test("armv5", "bitops", "test_bitop", outcome="failed", message="closed by the server", guest="guest-1")
    run.guest("armv5", "bitops", "guest-1", end="signal", detail="killed by SIGABRT", test="test_bitop")
    log = run.cell("armv5", "bitops") / "guest-1" / "log"
    log.write_bytes(b"1:M # ready\n" + output + b"\n1:M # crashed\n")
    (finding,) = judged(run)[0]
    # There is no debug information here. tests/end_to_end/emulator/test_placement.py tests the function with it.
    subject = file if function == "??" else function
    assert (finding.id, finding.kind) == (f"assertion-{subject}", "assertion")
    assert finding.title == f"assertion failed in {subject}"
    assert (finding.function, finding.file, finding.line) == (function, file, line)
    assert reproducer(finding).function == function


@pytest.mark.parametrize(
    "output",
    [
        b"1:M # ==> sds.c:100 'a' is not true, and so on",
        b"1:M # it is not true\n1:M # ==> a b:1 'x' is not true",
        b"1:M # Guru Meditation",
    ],
)
def test_a_line_that_only_resembles_an_assertion_is_none(output: bytes) -> None:
    assert asserted(output) is None


def test_a_hang_after_another_tests_fault_in_the_same_guest_is_a_finding(run: StoredRun) -> None:
    run.fault("armv5", "bitops", "guest-1", fault(pid=2, pc=run.place("armv5", "child")))
    run.test("armv5", "bitops", "test_bgsave", guest="guest-1", faults=(0, 1))
    run.test(
        "armv5", "bitops", "test_b", outcome="failed", message="TimeoutError: timed out", guest="guest-1", faults=(1, 1)
    )
    run.guest("armv5", "bitops", "guest-1", end="hang", detail="no reply", test="test_b")
    assert {"alignment", "hang"} == {finding.kind for finding in judged(run)[0]}


@pytest.mark.parametrize(
    ("end", "detail", "test", "found"),
    [
        ("exit", "exit status 1", "test_get", ["alignment-bitopCommand-load", "exit-test_get"]),
        ("signal", "killed by SIGSEGV", "test_get", ["alignment-bitopCommand-load", "crash-test_get"]),
        # Its crash handler was slow.
        ("signal", "killed by SIGBUS", "test_get", ["alignment-bitopCommand-load"]),
        ("exit", "exit status 1", "test_bitop", ["alignment-bitopCommand-load"]),
    ],
)
def test_the_end_of_a_server_that_survived_a_fault_is_a_separate_finding(
    run: StoredRun, end: Literal["exit", "signal"], detail: str, test: str, found: list[str]
) -> None:
    """A fault may be known, but must not excuse a later failure."""
    run.fault("armv5", "bitops", "guest-1", fault(pc=run.place("armv5", "bitopCommand")))
    outcome: Literal["failed", "passed"] = "failed" if test == "test_bitop" else "passed"
    run.test("armv5", "bitops", "test_bitop", outcome=outcome, message="closed", guest="guest-1", faults=(0, 1))
    if test == "test_get":
        run.test("armv5", "bitops", "test_get", outcome="failed", message="closed", guest="guest-1", faults=(1, 1))
    run.guest("armv5", "bitops", "guest-1", end=end, detail=detail, test=test)
    assert sorted(finding.id for finding in judged(run)[0]) == found


@pytest.mark.parametrize("with_fault", [False, True], ids=["exit", "fault"])
def test_a_server_that_cannot_start_is_one_finding_however_many_tests_failed(
    run: StoredRun, *, with_fault: bool
) -> None:
    message = "Failed: the server did not start: killed by SIGBUS"
    if with_fault:
        run.fault("armv5", "bitops", "guest-1", fault(pc=run.place("armv5", "murmur32", "deps/lua/src/lstring.c", 87)))
    run.test(
        "armv5",
        "bitops",
        "test_0",
        outcome="failed",
        message=message,
        guest="guest-1",
        faults=(0, 1 if with_fault else 0),
        blocked=True,
    )
    run.guest("armv5", "bitops", "guest-1", end="start-failed", detail="killed by SIGBUS")
    for number in range(1, 30):
        # Later tests are refused immediately, and have no guest.
        run.test("armv5", "bitops", f"test_{number}", outcome="failed", message=message, blocked=True)
    findings, verdicts = judged(run)
    assert 1 == len(findings), [finding.id for finding in findings]  # noqa: SIM300
    assert findings[0].kind == ("alignment" if with_fault else "exit")
    assert findings[0].command == "(while starting)"
    assert verdicts["armv5/bitops"] == "FAIL"


def test_an_assertion_that_fails_at_start_has_its_place_and_the_finding_keeps_its_id(run: StoredRun) -> None:
    run.guest("armv5", "bitops", "guest-1", end="start-failed", detail="killed by SIGABRT; module.c:12 'a' is not true")
    (run.cell("armv5", "bitops") / "guest-1" / "log").write_bytes(b"1:M # ==> module.c:12 'a' is not true\n")
    ((finding,), _) = judged(run)
    assert (finding.id, finding.kind, finding.file, finding.line) == ("exit-start", "exit", "module.c", 12)


def test_the_title_of_a_server_that_did_not_start_has_its_message(run: StoredRun) -> None:
    detail = "exit status 1; *** FATAL CONFIG FILE ERROR *** >>> 'enable-debug-command \"yes\"' Bad directive"
    run.guest("armv5", "bitops", "guest-1", end="start-failed", detail=detail)
    ((finding,), _) = judged(run)
    assert (finding.id, finding.title) == ("exit-start", f"the server ended at start: {detail}")


def test_findings_are_ordered_by_how_directly_they_show_their_cause(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_wrong", outcome="failed", message="1 != 2")
    run.guest("armv5", "bitops", "guest-3", end="hang", detail="no reply", test="test_hang")
    a_fault(run)
    assert [finding.kind for finding in judged(run)[0]] == ["alignment", "wrong-result", "hang"]


@pytest.mark.parametrize(
    ("written", "path"),
    [
        (rb"\040", " "),
        (rb"\001", "\x01"),
        (rb"\v", "\v"),
        (rb"\t\b", "\t\b"),
        (rb"\303\244", "ä"),
        (rb"\303\244\344", "ä\\xe4"),
        (rb"\"", '"'),
        # A backslash before digits is an escape, except for the kernel's newline.
        (rb"\\101", "\\101"),
        (rb"\\012", "\n"),
        (rb"\\\303\244", "\\ä"),
    ],
)
def test_the_escapes_of_a_path_in_a_fault_log_are_read(tmp_path: Path, written: bytes, path: str) -> None:
    """The emulator writes the escapes of g_strescape(). The kernel, which provides paths, has its own for a newline."""
    log = tmp_path / "faults.jsonl"
    record = json_codec.encode(fault(maps=[fault_log.MapRecord(start=0, end=1, offset=0, path="/a@b")]))
    log.write_bytes(record.replace(b"@", written) + b"\n")
    found = fault_log.read(log)
    assert ([one.maps[0].path for one in found.faults], found.damage) == ([f"/a{path}b"], [])


def test_a_line_of_a_fault_log_with_bytes_that_are_not_text_is_damaged(tmp_path: Path) -> None:
    log = tmp_path / "faults.jsonl"
    record = json_codec.encode(fault(maps=[fault_log.MapRecord(start=0, end=1, offset=0, path="/a@b")]))
    log.write_bytes(record.replace(b"@", b"\xe4") + b"\n")
    found = fault_log.read(log)
    assert (found.faults, found.damage) == ([], ["line 1 of faults.jsonl is damaged"])


def test_a_test_with_a_very_long_name_is_judged(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop[" + "x" * 400 + "]", outcome="failed", message="1 != 2")
    assert [finding.kind for finding in judged(run)[0]] == ["wrong-result"]


def test_a_function_with_a_cplusplus_name_is_judged(run: StoredRun) -> None:
    run.fault("armv5", "bitops", "guest-1", fault(pc=run.place("armv5", "a::operator/(b)")))
    assert [finding.function for finding in judged(run)[0]] == ["a::operator/"]


@pytest.mark.parametrize("where", ["armv5", "sparc64"])
def test_a_fault_of_a_tests_own_server_belongs_to_that_test_and_to_the_servers_machine(
    tmp_path: Path, where: str
) -> None:
    stored = two_machines(tmp_path)
    pc = stored.place(where, "rdbSaveLen")
    stored.test("armv5", "bitops", "test_save", outcome="failed", message="ServerGoneError")
    stored.own_guest("armv5", "bitops", where, test="test_save", end="signal", detail="SIGBUS", record=fault(pc=pc))
    findings, verdicts = judged(stored)
    assert [(found.function, found.targets, found.command) for found in findings] == [("rdbSaveLen", [where], "SAVE")]
    witness = findings[0].witnesses[0]
    inside = "guest-9" if where == "armv5" else "peers/sparc64/guest-9"
    assert (witness.test, witness.evidence) == ("test_save", f"armv5/bitops/{inside}/faults.jsonl")
    assert {"armv5/bitops": "FAIL", "sparc64/bitops": "PASS"}.items() <= verdicts.items()


def test_a_known_fault_of_a_peer_excuses_the_cell_that_saw_it(tmp_path: Path) -> None:
    stored = two_machines(tmp_path)
    pc = stored.place("sparc64", "rdbSaveLen")
    stored.own_guest("armv5", "bitops", "sparc64", test="test_one", record=fault(pc=pc))
    listed = entry("alignment-rdbSaveLen-load").replace("armv5", "sparc64")
    judgement, _ = concluded(tmp_path, stored, listed)
    verdicts = {f"{cell.target}/{cell.suite}": cell.verdict for cell in judgement.cells}
    assert (verdicts["armv5/bitops"], verdicts["sparc64/bitops"]) == ("XFAIL", "PASS")


def test_a_known_fault_excuses_every_cell_that_saw_it(tmp_path: Path) -> None:
    stored = two_machines(tmp_path)
    pc = stored.place("sparc64", "rdbSaveLen")
    for name in stored.targets:
        stored.own_guest(name, "bitops", "sparc64", test="test_one", record=fault(pc=pc))
    judgement, _ = concluded(tmp_path, stored, entry("alignment-rdbSaveLen-load").replace("armv5", "sparc64"))
    assert [cell.verdict for cell in judgement.cells if cell.suite == "bitops"] == ["XFAIL", "XFAIL"]


def test_a_stopped_server_of_a_test_is_no_finding_and_one_that_dies_without_a_fault_is(tmp_path: Path) -> None:
    stored = two_machines(tmp_path)
    stored.own_guest("armv5", "bitops", "sparc64", test="test_one")
    assert judged(stored)[0] == []
    stored.own_guest("armv5", "bitops", "sparc64", test="test_one", end="exit", detail="exit status 1")
    assert [(found.kind, found.targets) for found in judged(stored)[0]] == [("exit", ["sparc64"])]


def example(stored: StoredRun, guest: str, *, message: str, faults: tuple[int, int] = (0, 0)) -> None:
    name = "test_streams[SADD]"
    stored.test("armv5", "bitops", name, outcome="failed", message=message, guest=guest, faults=faults)


def test_a_crash_of_one_example_does_not_explain_anothers_wrong_reply(run: StoredRun) -> None:
    pc = run.place("armv5", "setTypeAdd")
    run.fault("armv5", "bitops", "guest-1", fault(pc=pc))
    example(run, "guest-1", message="ServerGoneError", faults=(0, 1))
    run.guest("armv5", "bitops", "guest-1", end="signal", detail="killed by SIGBUS", test="test_streams[SADD]")
    example(run, "guest-2", message="SADD k 1: guest 0, native 1")
    findings, _ = judged(run)
    assert [(found.kind, found.occurrences) for found in findings] == [("alignment", 1), ("wrong-result", 1)]


def test_each_example_that_ends_its_server_counts_and_the_shortest_is_the_reproducer(run: StoredRun) -> None:
    name = "test_streams[SADD-end]"
    for guest, sent in (("guest-1", b"*1\r\n$4\r\nPING\r\n" * 9), ("guest-2", b"*1\r\n$4\r\nSADD\r\n")):
        message = "closed by the server"
        run.test("armv5", "bitops", name, outcome="failed", message=message, guest=guest, transcript=sent)
        run.guest("armv5", "bitops", guest, end="signal", detail="killed by SIGABRT", test=name)
    findings, _ = judged(run)
    assert [(found.kind, found.occurrences) for found in findings] == [("crash", 2)]
    assert b"".join(chunk.content for chunk in reproducer(findings[0]).chunks) == b"*1\r\n$4\r\nSADD\r\n"


def test_the_settings_of_a_suite_are_in_the_reproducers_of_its_findings(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_files", outcome="failed", message="wrong", guest="guest-1")
    (event,) = run.events[("armv5", "bitops")]
    assert isinstance(event, cell_events.TestEvent)
    run.events[("armv5", "bitops")] = [msgspec.structs.replace(event, options=("--io-threads", "2"))]
    (finding,) = judged(run)[0]
    assert reproducer(finding).options == ("--io-threads", "2")


def test_the_files_and_options_of_a_server_are_in_its_reproducer(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_files[dump.rdb]", outcome="failed", message="dump.rdb: guest died")
    place = run.cell("armv5", "bitops") / "guest-9" / run_folder.INPUTS / "dump.rdb"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"REDIS\xff")
    run.own_guest(
        "armv5",
        "bitops",
        "armv5",
        test="test_files[dump.rdb]",
        end="signal",
        options=("--sanitize-dump-payload", "yes"),
        preloads=True,
    )
    (finding,) = judged(run)[0]
    kept = reproducer(finding)
    assert {name: base64.b64decode(text) for name, text in kept.files.items()} == {"dump.rdb": b"REDIS\xff"}
    assert kept.options == ("--sanitize-dump-payload", "yes")
    assert kept.preload == "bitops"


def test_a_server_that_preloads_an_object_is_replayed_with_it(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_blocks", outcome="failed", message="guest died")
    run.own_guest("armv5", "bitops", "armv5", test="test_blocks", end="signal", preloads=True)
    (finding,) = judged(run)[0]
    assert (reproducer(finding).preload, reproducer(finding).files) == ("bitops", {})


def test_a_wrong_reply_of_a_tests_only_server_is_replayed_with_its_requests(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_time", outcome="failed", message="AssertionError: TIME says 1")
    place = run.cell("armv5", "bitops") / "guest-9" / run_folder.INPUTS / "ahead"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"354")
    asked = {"test": "test_time", "options": ("--hz", "1"), "transcript": b"*1\r\n$4\r\nTIME\r\n"}
    run.own_guest("armv5", "bitops", "armv5", preloads=True, **asked)  # type: ignore[arg-type]
    (finding,) = judged(run)[0]
    kept = reproducer(finding)
    assert (finding.command, kept.chunks[0].content) == ("TIME", asked["transcript"])
    assert (list(kept.files), kept.options, kept.preload) == (["ahead"], ("--hz", "1"), "bitops")
    # With two servers it is unknown which one's reply was wrong.
    run.own_guest("armv5", "bitops", "armv5", **asked)  # type: ignore[arg-type]
    (finding,) = judged(run)[0]
    assert (finding.command, reproducer(finding).chunks) == ("", [])


@pytest.mark.parametrize(
    ("number", "handled", "access_class", "end", "kinds"),
    [
        (fakes.SIGILL, True, "", "stopped", set()),
        (fakes.SIGILL, False, "", "stopped", {"sigill"}),
        (fakes.SIGILL, True, "", "signal", {"sigill"}),
        (fakes.SIGILL, True, "word", "stopped", {"alignment"}),
        (fakes.SIGSEGV, True, "", "stopped", {"sigsegv"}),
    ],
    ids=["asked", "not-caught", "died-of-it", "misaligned", "another-signal"],
)
def test_an_instruction_that_a_library_only_probes_is_no_finding(
    *, number: int, handled: bool, access_class: str, end: Literal["stopped", "signal"], kinds: set[str], run: StoredRun
) -> None:
    """Regression: OpenSSL 1.1 tries MRRC on ARM when it is loaded, so every server of Debian bullseye had a finding."""
    tried = fault(pc=run.place("armv5", "OPENSSL_cpuid_setup"), number=number, code=2)
    record = msgspec.structs.replace(tried, handled=handled, access_class=access_class)
    run.fault("armv5", "bitops", "guest-1", record)
    run.test("armv5", "bitops", "test_bitop", guest="guest-1")
    run.guest("armv5", "bitops", "guest-1", end=end, detail="killed by SIGILL" if end == "signal" else "")
    assert {finding.kind for finding in judged(run)[0]} == kinds


@pytest.mark.parametrize("excused", [False, True], ids=["findings", "known"])
def test_blocked_tests_are_unknown_and_the_failures_that_blocked_them_are_findings(
    tmp_path: Path, run: StoredRun, *, excused: bool
) -> None:
    run.canary("armv5")
    run.test("armv5", "bitops", "bitops/test_bitops.py::test_other")
    message = "TimeoutError: timed out waiting for the replica to be up to date"
    blockers = ("bitops/test_a.py::test_one", "bitops/test_a.py::test_two")
    for name in blockers:
        run.test("armv5", "bitops", name, outcome="failed", message=message)
    for number in range(3):
        blocked = cell_events.TestEvent(
            name=f"bitops/test_a.py::test_{number}",
            outcome="failed",
            seconds=2.0,
            message=message,
            doubt="timed out waiting for the replica to be up to date, for which test_one and test_two waited in vain",
            blockers=blockers,
        )
        run.add("armv5", "bitops", blocked)
    known = [entry(f"wrong-result-{name}".replace("/", "_").replace("::", "_")) for name in blockers] if excused else []
    judgement, code = concluded(tmp_path, run, *known)
    assert len(judgement.findings) == 2
    cell = judgement.cells[1]
    assert cell.verdict == ("UNKNOWN" if excused else "FAIL")
    assert code == (ExitCode.INCONCLUSIVE if excused else ExitCode.FINDINGS)
    assert "3 blocked tests: timed out waiting for the replica to be up to date, for which test_one" in cell.reason
    assert cell.reason.count("waited in vain") == 1
