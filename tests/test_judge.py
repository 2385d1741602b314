"""Stored evidence and what it must be judged as. Silence is never PASS, and one misbehaviour is one finding."""

from __future__ import annotations

import base64
import datetime
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import codec, events
from harness.assertion import asserted
from harness.errors import ExitCode, UsageError
from harness.finding import Finding, Verdict
from harness.judge import Judgement, judge
from harness.runs import conclude
from tests import fakes
from tests.fakes import StoredRun, fault, reproducer

if TYPE_CHECKING:
    from pathlib import Path

BITOP = b"*1\r\n$5\r\nBITOP\r\n"


@pytest.fixture(autouse=True)
def _symbols(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.fake_symbols(tmp_path / "bin", monkeypatch)


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    """A run of bitops on one target whose canaries behaved."""
    stored = StoredRun(tmp_path / "run")
    stored.canary("armv5")
    return stored


def judged(stored: StoredRun) -> tuple[list[Finding], dict[str, str]]:
    findings, cells, _ = judge(stored.finish())
    return findings, {f"{cell.target}/{cell.suite}": cell.verdict for cell in cells}


def known_file(tmp_path: Path, *entries: str) -> Path:
    head = "" if entries else "findings = []\n"
    return fakes.write(tmp_path / "known.toml", head + "".join(f"[[findings]]\n{entry}\n" for entry in entries))


def concluded(tmp_path: Path, stored: StoredRun, *entries: str) -> tuple[Judgement, ExitCode]:
    return conclude(stored.finish(), known_file(tmp_path, *entries), fakes.quiet())


def a_fault(stored: StoredRun, *, target: str = "armv5", function: str = "bitopCommand", number: int = 0) -> None:
    """A test of BITOP that died of a misaligned load."""
    pc = stored.place(target, function)
    stored.fault(target, "bitops", "guest-1", fault(pc=pc))
    stored.test(
        target,
        "bitops",
        "test_bitop",
        outcome="failed",
        message="ServerGoneError: connection closed by the server",
        guest="guest-1",
        faults=(number, number + 1),
        command="BITOP AND c a b",
        transcript=BITOP,
    )
    stored.guest(target, "bitops", "guest-1", end="signal", detail="killed by SIGBUS", test="test_bitop")


# Verdicts.


def test_a_run_whose_canaries_and_tests_passed_is_pass(tmp_path: Path, run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop", guest="guest-1")
    run.guest("armv5", "bitops", "guest-1", end="stopped")
    judgement, code = concluded(tmp_path, run)
    assert (judgement.verdict, code, judgement.findings) == ("PASS", ExitCode.PASS, [])
    assert [cell.verdict for cell in judgement.cells] == ["PASS", "PASS"]


def test_nothing_recorded_is_unknown(tmp_path: Path, run: StoredRun) -> None:
    judgement, code = concluded(tmp_path, run)
    assert (judgement.verdict, code) == ("UNKNOWN", ExitCode.INCONCLUSIVE)
    assert judgement.cells[1].reason == "no test recorded a result"


def test_a_run_without_cells_is_unknown(tmp_path: Path) -> None:
    judgement, code = concluded(tmp_path, StoredRun(tmp_path / "run", targets=(), suites=()))
    assert (judgement.verdict, code) == ("UNKNOWN", ExitCode.INCONCLUSIVE)


def test_tests_that_were_all_skipped_are_unknown(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop", outcome="skipped", message="needs 7.0")
    assert judged(run)[1]["armv5/bitops"] == "UNKNOWN"


def test_a_failed_canary_makes_every_cell_of_its_target_unknown_and_of_no_other(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path / "run", targets=("armv5", "sparc64"), suites=("canary", "bitops", "protocol"))
    stored.canary("armv5", outcome="failed", message="load-word@1 on armv5: expected trap, got done")
    stored.canary("sparc64")
    for name in stored.targets:
        for suite in ("bitops", "protocol"):
            stored.test(name, suite, "test_one")
    judgement, code = concluded(tmp_path, stored)
    verdicts = {f"{cell.target}/{cell.suite}": cell.verdict for cell in judgement.cells}
    expected = {
        **{f"armv5/{suite}": "UNKNOWN" for suite in stored.suites},
        **{f"sparc64/{suite}": "PASS" for suite in stored.suites},
    }
    assert (expected, "UNKNOWN", ExitCode.INCONCLUSIVE) == (verdicts, judgement.verdict, code)
    assert "load-word@1 on armv5: expected trap, got done" in judgement.cells[0].reason
    assert "canaries" in judgement.cells[1].reason


def test_one_failed_canary_among_many_that_passed_is_enough(run: StoredRun) -> None:
    run.canary("armv5", outcome="failed", message="load-word@2: expected trap, got done")
    run.canary("armv5")
    run.test("armv5", "bitops", "test_bitop")
    assert judged(run)[1] == {"armv5/canary": "UNKNOWN", "armv5/bitops": "UNKNOWN"}


def test_canaries_that_did_not_run_make_the_target_unknown(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path / "run")
    stored.test("armv5", "bitops", "test_bitop")
    assert judged(stored)[1] == {"armv5/canary": "UNKNOWN", "armv5/bitops": "UNKNOWN"}


def test_a_canary_cell_that_is_missing_from_the_run_makes_the_target_unknown(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path / "run")
    stored.left_out.add(("armv5", "canary"))
    stored.test("armv5", "bitops", "test_bitop")
    assert judged(stored)[1] == {"armv5/bitops": "UNKNOWN"}


def test_a_fault_without_canaries_to_trust_is_unknown_but_still_shown(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path / "run")
    stored.canary("armv5", outcome="failed", message="load-word@1: expected trap, got done")
    a_fault(stored)
    findings, verdicts = judged(stored)
    assert (verdicts["armv5/bitops"], len(findings)) == ("UNKNOWN", 1)


@pytest.mark.parametrize("kind", ["deadline", "crash"])
def test_a_cell_whose_process_failed_is_unknown_although_its_recorded_tests_passed(run: StoredRun, kind: str) -> None:
    run.test("armv5", "bitops", "test_bitop")
    run.problem("armv5", "bitops", "it did not end within 420 s", "deadline" if kind == "deadline" else "crash")
    assert judged(run)[1]["armv5/bitops"] == "UNKNOWN"


def test_a_canary_cell_whose_process_failed_is_not_trusted(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop")
    run.problem("armv5", "canary", "it did not end within 420 s", "deadline")
    assert judged(run)[1] == {"armv5/canary": "UNKNOWN", "armv5/bitops": "UNKNOWN"}


@given(st.lists(st.sampled_from(list(Verdict))))
def test_merging_takes_the_worst_and_of_none_is_unknown(verdicts: list[Verdict]) -> None:
    expected = next((v for v in (Verdict.FAIL, Verdict.UNKNOWN, Verdict.PASS, Verdict.XFAIL) if v in verdicts), None)
    assert (expected or (Verdict.SKIP if verdicts else Verdict.UNKNOWN)) == Verdict.merge(verdicts)


def test_a_folder_without_a_run_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run folder"):
        judge(tmp_path)


# Findings.


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


def test_a_fault_during_a_passed_test_is_still_a_finding(run: StoredRun) -> None:
    """A forked child (BGSAVE) dies while its parent answers."""
    pc = run.place("armv5", "rdbSaveBackground", "src/rdb.c", 1)
    run.fault("armv5", "bitops", "guest-1", fault(pid=101, pc=pc))
    run.test("armv5", "bitops", "test_bgsave", guest="guest-1", faults=(0, 1), command="BGSAVE")
    run.guest("armv5", "bitops", "guest-1", end="stopped")
    findings, verdicts = judged(run)
    assert [finding.id for finding in findings] == ["alignment-rdbSaveBackground-load"]
    assert verdicts["armv5/bitops"] == "FAIL"


def test_a_fault_that_no_test_claims_is_still_a_finding(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop", guest="guest-1")
    run.fault("armv5", "bitops", "guest-1", fault(pc=run.place("armv5", "serverCron")))
    findings, verdicts = judged(run)
    assert ([f.id for f in findings], verdicts["armv5/bitops"]) == (["alignment-serverCron-load"], "FAIL")


def test_a_fault_of_no_known_place_is_a_finding_that_does_not_guess(run: StoredRun) -> None:
    run.place("armv5", "other")
    run.fault("armv5", "bitops", "guest-1", fault(pc=0xFFF0))
    (finding,) = judged(run)[0]
    assert (finding.function, finding.line) == ("??", 0)


def test_a_segmentation_fault_after_a_handled_one_in_the_same_process_is_the_crash_handlers(run: StoredRun) -> None:
    first, second = run.place("armv5", "bitopCommand"), run.place("armv5", "logStackTrace", "src/debug.c", 1)
    run.fault("armv5", "bitops", "guest-1", fault(pc=first, handled=True))
    run.fault("armv5", "bitops", "guest-1", fault(pc=second, number=fakes.SIGSEGV, code=1, access=""))
    findings = judged(run)[0]
    assert [f.id for f in findings] == ["alignment-bitopCommand-load", "crash-handler-sigsegv-logStackTrace"]
    assert "while the crash handler ran" in findings[1].title


def test_a_segmentation_fault_in_another_process_is_its_own(run: StoredRun) -> None:
    first, second = run.place("armv5", "bitopCommand"), run.place("armv5", "child")
    run.fault("armv5", "bitops", "guest-1", fault(pid=1, pc=first, handled=True))
    run.fault("armv5", "bitops", "guest-1", fault(pid=2, pc=second, number=fakes.SIGSEGV, code=1, access=""))
    assert {"alignment-bitopCommand-load", "sigsegv-child"} == {f.id for f in judged(run)[0]}


def test_a_fault_of_another_thread_while_the_crash_handler_runs_is_its_own(run: StoredRun) -> None:
    """Two I/O threads at one place: the second comes before the first one's handler has ended the server."""
    place = run.place("armv5", "readQueryFromClient")
    for tid in (101, 102):
        run.fault("armv5", "bitops", "guest-1", fault(pid=100, tid=tid, pc=place, handled=True))
    (finding,) = judged(run)[0]
    assert (finding.id, finding.occurrences) == ("alignment-readQueryFromClient-load", 2)


def test_a_bus_error_that_is_not_of_alignment_is_not_called_so(run: StoredRun) -> None:
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
    assert "wrong-result-test_bitop.py_test_and_3" == finding.id  # noqa: SIM300


def test_a_hang_is_a_finding_and_its_failed_test_is_no_second_one(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop", outcome="failed", message="TimeoutError: timed out", guest="guest-1")
    run.guest("armv5", "bitops", "guest-1", end="hang", detail="no reply within 75 s", test="test_bitop")
    findings = judged(run)[0]
    assert [(f.kind, f.title) for f in findings] == [("hang", "the server hung in test_bitop: no reply within 75 s")]


def test_a_crash_without_a_fault_record_is_a_finding(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop", outcome="failed", message="closed by the server", guest="guest-1")
    run.guest("armv5", "bitops", "guest-1", end="signal", detail="killed by SIGABRT", test="test_bitop")
    findings = judged(run)[0]
    assert [(f.kind, f.title) for f in findings] == [("crash", "the server ended in test_bitop: killed by SIGABRT")]


@pytest.mark.parametrize(
    ("said", "function", "file", "line"),
    [
        (b"redis-server: sds.c:114: _sdsnewlen: Assertion `a + b > a' failed.", "_sdsnewlen", "sds.c", 114),
        (b"9:M 21 Nov 2026 19:00:00.000 # ==> sds.c:100 'a \xff' is not true", "??", "sds.c", 100),
        (b"9:M 21 Nov 2026 19:00:00.000 # Guru Meditation: no #9 left #rdb.c:7", "??", "rdb.c", 7),
        (b"1:M # ==> a.c:1 'x' is not true\n1:M # ==> b.c:2 'y' is not true", "??", "b.c", 2),
    ],
    ids=["the C library's", "the server's own", "a panic", "the last counts"],
)
def test_an_assertion_in_a_log_is_a_finding_where_it_stands(
    run: StoredRun, said: bytes, function: str, file: str, line: int
) -> None:
    run.test("armv5", "bitops", "test_bitop", outcome="failed", message="closed by the server", guest="guest-1")
    run.guest("armv5", "bitops", "guest-1", end="signal", detail="killed by SIGABRT", test="test_bitop")
    log = run.cell("armv5", "bitops") / "guest-1" / "log"
    log.write_bytes(b"1:M # ready\n" + said + b"\n1:M # crashed\n")
    (finding,) = judged(run)[0]
    # No debug information here: tests/end_to_end/test_placement.py has it tell the function.
    subject = file if function == "??" else function
    assert (finding.id, finding.kind) == (f"assertion-{subject}", "assertion")
    assert finding.title == f"assertion failed in {subject}"
    assert (finding.function, finding.file, finding.line) == (function, file, line)
    assert reproducer(finding).function == function


@pytest.mark.parametrize(
    "said",
    [
        b"1:M # ==> sds.c:100 'a' is not true, and so on",
        b"1:M # it is not true\n1:M # ==> a b:1 'x' is not true",
        b"1:M # Guru Meditation",
    ],
)
def test_what_only_looks_like_an_assertion_is_none(said: bytes) -> None:
    assert asserted(said) is None


def test_a_hang_after_another_tests_fault_in_the_same_guest_is_not_swallowed(run: StoredRun) -> None:
    run.fault("armv5", "bitops", "guest-1", fault(pid=2, pc=run.place("armv5", "child")))
    run.test("armv5", "bitops", "test_bgsave", guest="guest-1", faults=(0, 1))
    run.test(
        "armv5", "bitops", "test_b", outcome="failed", message="TimeoutError: timed out", guest="guest-1", faults=(1, 1)
    )
    run.guest("armv5", "bitops", "guest-1", end="hang", detail="no reply", test="test_b")
    assert {"alignment", "hang"} == {finding.kind for finding in judged(run)[0]}


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
        # Later tests are refused at once, and have no guest.
        run.test("armv5", "bitops", f"test_{number}", outcome="failed", message=message, blocked=True)
    findings, verdicts = judged(run)
    assert 1 == len(findings), [finding.id for finding in findings]  # noqa: SIM300
    assert findings[0].kind == ("alignment" if with_fault else "exit")
    assert findings[0].command == "(while starting)"
    assert verdicts["armv5/bitops"] == "FAIL"


def test_findings_are_ordered_worst_first(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_wrong", outcome="failed", message="1 != 2")
    run.guest("armv5", "bitops", "guest-3", end="hang", detail="no reply", test="test_hang")
    a_fault(run)
    assert [finding.kind for finding in judged(run)[0]] == ["alignment", "hang", "wrong-result"]


# Robustness of the evidence.


@pytest.mark.parametrize("log", ["events.jsonl", "guest-1/faults.jsonl"])
def test_a_last_line_that_was_cut_is_passed_over(run: StoredRun, log: str) -> None:
    a_fault(run)
    with (run.cell("armv5", "bitops") / log).open("ab") as stream:
        stream.write(b'{"type":"test","name":"test_b')
    assert [finding.id for finding in judged(run)[0]] == ["alignment-bitopCommand-load"]


def test_a_path_with_an_octal_escape_in_a_fault_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "faults.jsonl"
    record = codec.encode(fault(maps=[events.MapRecord(start=0, end=1, offset=0, path="/a@b")]))
    log.write_bytes(record.replace(b"@", b"\\040") + b"\n")
    assert "/a\\040b" == events.read_faults(log)[0].maps[0].path  # noqa: SIM300


def test_a_test_with_a_very_long_name_is_judged(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop[" + "x" * 400 + "]", outcome="failed", message="1 != 2")
    assert [finding.kind for finding in judged(run)[0]] == ["wrong-result"]


def test_a_function_name_of_cplusplus_is_judged(run: StoredRun) -> None:
    run.fault("armv5", "bitops", "guest-1", fault(pc=run.place("armv5", "a::operator/(b)")))
    assert [finding.function for finding in judged(run)[0]] == ["a::operator/(b)"]


# Reproducers.


def test_a_reproducer_holds_the_requests_and_all_that_a_replay_needs(run: StoredRun) -> None:
    a_fault(run)
    (finding,) = judged(run)[0]
    kept = reproducer(finding)
    assert (
        kept.kind,
        kept.function,
        kept.server,
        kept.target,
        kept.policy,
        kept.optimisation,
        kept.emulator,
    ) == ("alignment", "bitopCommand", "redis-3.2.6", "armv5", "signal", "O2", "pinned")
    assert [chunk.content for chunk in kept.chunks] == [BITOP]
    assert finding.replay.startswith("plumb replay ")


def test_a_sighting_with_requests_is_preferred_to_one_without(run: StoredRun) -> None:
    pc = run.place("armv5", "bitopCommand")
    run.fault("armv5", "bitops", "guest-1", fault(pc=pc))
    run.fault("armv5", "bitops", "guest-2", fault(pc=pc))
    run.test(
        "armv5",
        "bitops",
        "test_b",
        outcome="failed",
        message="closed",
        guest="guest-2",
        faults=(0, 1),
        transcript=BITOP,
    )
    (finding,) = judged(run)[0]
    assert [chunk.content for chunk in reproducer(finding).chunks] == [BITOP]


def test_of_several_transcripts_the_shortest_is_the_reproducer(run: StoredRun) -> None:
    pc = run.place("armv5", "bitopCommand")
    for number, requests in ((1, BITOP * 9), (2, BITOP), (3, BITOP * 5)):
        run.fault("armv5", "bitops", f"guest-{number}", fault(pc=pc))
        run.test(
            "armv5",
            "bitops",
            f"test_{number}",
            outcome="failed",
            message="closed",
            guest=f"guest-{number}",
            faults=(0, 1),
            transcript=requests,
        )
    (finding,) = judged(run)[0]
    assert [chunk.content for chunk in reproducer(finding).chunks] == [BITOP]


# Judging again, and the known list.


def test_judging_twice_gives_the_same(tmp_path: Path, run: StoredRun) -> None:
    a_fault(run)
    run.test("armv5", "bitops", "test_wrong", outcome="failed", message="1 != 2")
    first, second = concluded(tmp_path, run), concluded(tmp_path, run)
    assert codec.encode(first[0]) == codec.encode(second[0])
    assert first[1] == second[1]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_targets_and_guests_does_not_change_what_is_found(tmp_path: Path, seed: int) -> None:
    order = ["armv5", "sparc64", "aarch64"]
    random.Random(seed).shuffle(order)
    stored = StoredRun(tmp_path / "run", targets=("armv5", "sparc64", "aarch64"))
    for name in order:
        stored.canary(name)
        a_fault(stored, target=name)
    findings, verdicts = judged(stored)
    assert [finding.id for finding in findings] == ["alignment-bitopCommand-load"]
    assert findings[0].targets == ["armv5", "sparc64", "aarch64"]
    assert {"PASS", "FAIL"} == set(verdicts.values())


ENTRY = """id = "{id}"
server = "redis-3.2.6"
targets = ["armv5"]
reason = "issue 3273"
expires = {expires}
"""


def entry(finding: str, *, days: int = 1) -> str:
    today = datetime.datetime.now(tz=datetime.UTC).date()
    return ENTRY.format(id=finding, expires=today + datetime.timedelta(days=days))


def test_a_cell_whose_every_finding_is_known_is_an_expected_failure_and_the_run_passes(
    tmp_path: Path, run: StoredRun
) -> None:
    a_fault(run)
    judgement, code = concluded(tmp_path, run, entry("alignment-bitopCommand-*"))
    assert [cell.verdict for cell in judgement.cells] == ["PASS", "XFAIL"]
    assert (code, [finding.known for finding in judgement.findings]) == (ExitCode.PASS, ["issue 3273"])
    assert "issue 3273" in judgement.cells[1].reason


def test_one_unknown_finding_beside_a_known_one_still_fails(tmp_path: Path, run: StoredRun) -> None:
    a_fault(run)
    run.test("armv5", "bitops", "test_wrong", outcome="failed", message="1 != 2")
    judgement, code = concluded(tmp_path, run, entry("alignment-*"))
    assert (judgement.verdict, code) == ("FAIL", ExitCode.FINDINGS)


def test_an_expired_entry_excuses_nothing_and_is_remarked(tmp_path: Path, run: StoredRun) -> None:
    a_fault(run)
    judgement, code = concluded(tmp_path, run, entry("alignment-*", days=-1))
    assert (judgement.verdict, code) == ("FAIL", ExitCode.FINDINGS)
    assert any("expired" in remark and "issue 3273" in remark for remark in judgement.remarks)


def test_an_entry_counts_on_its_last_day(tmp_path: Path, run: StoredRun) -> None:
    a_fault(run)
    assert concluded(tmp_path, run, entry("alignment-*", days=0))[1] is ExitCode.PASS


def test_the_known_list_excuses_no_unknown_cell(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path / "run")
    stored.canary("armv5", outcome="failed", message="load-word@1: expected trap, got done")
    a_fault(stored)
    assert concluded(tmp_path, stored, entry("*"))[1] is ExitCode.INCONCLUSIVE


def test_an_entry_that_matched_nothing_is_remarked(tmp_path: Path, run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop")
    judgement, _ = concluded(tmp_path, run, entry("alignment-gone-load"))
    assert judgement.remarks == ["known finding alignment-gone-load (redis-3.2.6) was not seen in this run"]


# Servers that a test starts for itself, on other machines too.


def two_machines(tmp_path: Path) -> StoredRun:
    stored = StoredRun(tmp_path / "run", targets=("armv5", "sparc64"))
    for name in stored.targets:
        stored.canary(name)
        stored.test(name, "bitops", "test_one")
    return stored


@pytest.mark.parametrize("where", ["armv5", "sparc64"])
def test_a_fault_of_a_tests_own_server_is_that_tests_and_of_the_machine_where_it_ran(
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


def test_a_tests_own_server_that_stops_is_no_finding_and_one_that_dies_without_a_fault_is(tmp_path: Path) -> None:
    stored = two_machines(tmp_path)
    stored.own_guest("armv5", "bitops", "sparc64", test="test_one")
    assert judged(stored)[0] == []
    stored.own_guest("armv5", "bitops", "sparc64", test="test_one", end="exit", detail="exit status 1")
    assert [(found.kind, found.targets) for found in judged(stored)[0]] == [("exit", ["sparc64"])]


# Examples: many of one test, some with the same name.


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


def test_each_example_that_ends_its_server_is_seen_and_the_shortest_is_the_reproducer(run: StoredRun) -> None:
    name = "test_streams[SADD-end]"
    for guest, sent in (("guest-1", b"*1\r\n$4\r\nPING\r\n" * 9), ("guest-2", b"*1\r\n$4\r\nSADD\r\n")):
        message = "closed by the server"
        run.test("armv5", "bitops", name, outcome="failed", message=message, guest=guest, transcript=sent)
        run.guest("armv5", "bitops", guest, end="signal", detail="killed by SIGABRT", test=name)
    findings, _ = judged(run)
    assert [(found.kind, found.occurrences) for found in findings] == [("crash", 2)]
    assert b"".join(chunk.content for chunk in reproducer(findings[0]).chunks) == b"*1\r\n$4\r\nSADD\r\n"


def test_what_a_server_was_started_with_is_in_its_reproducer(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_files[dump.rdb]", outcome="failed", message="dump.rdb: guest died")
    place = run.cell("armv5", "bitops") / "guest-9" / events.INPUTS / "dump.rdb"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"REDIS\xff")
    run.own_guest(
        "armv5",
        "bitops",
        "armv5",
        test="test_files[dump.rdb]",
        end="signal",
        options=("--sanitize-dump-payload", "yes"),
    )
    (finding,) = judged(run)[0]
    kept = reproducer(finding)
    assert {name: base64.b64decode(text) for name, text in kept.files.items()} == {"dump.rdb": b"REDIS\xff"}
    assert kept.options == ("--sanitize-dump-payload", "yes")
