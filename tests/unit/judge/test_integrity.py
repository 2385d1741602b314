"""Only complete evidence gives a verdict: evidence that is cut, lost or changed is UNKNOWN.

A known finding excuses itself, and nothing else.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec
import pytest

from harness.core import json_codec
from harness.core.errors import ExitCode, InconclusiveError, InfrastructureError, UsageError
from harness.judge.conclusion import conclude
from harness.judge.findings import judge
from harness.record import cell_events, event_log, evidence_seal, fault_log, run_folder, run_record, stored_run
from tests.support import fakes
from tests.support.fakes import fault
from tests.support.stored import BITOP, StoredRun, a_fault, concluded, entry, known_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("fake_symbols")


@pytest.fixture
def clean(run: StoredRun) -> StoredRun:
    """A run that passes, with a fault log, a ledger and a transcript."""
    run.test("armv5", "bitops", "test_bitop", guest="guest-1", transcript=b"*1\r\n$4\r\nPING\r\n")
    run.test("armv5", "bitops", "test_bitpos", guest="guest-1")
    run.guest("armv5", "bitops", "guest-1", end="stopped")
    log = run.cell("armv5", "bitops") / "guest-1" / fault_log.NAME
    log.write_bytes(b'{"event":"end","pid":100,"signal":0,"status":0}\n')
    fault_log.ledger_of(log).write_bytes((1).to_bytes(8, "little") * 2)
    return run


def verdict_of(folder: Path, tmp_path: Path, *entries: str) -> tuple[str, str]:
    """The current verdict on a folder, and the reason of its worst cell."""
    try:
        judgement, code = conclude(stored_run.read(folder), known_file(tmp_path, *entries), fakes.quiet())
    except (InconclusiveError, UsageError) as error:
        return "UNKNOWN", str(error)
    assert (judgement.verdict in {"PASS", "XFAIL", "SKIP"}) == (code == ExitCode.PASS)
    worst = next(cell for cell in judgement.cells if cell.verdict == judgement.verdict)
    return judgement.verdict, worst.reason


def test_whole_evidence_passes(clean: StoredRun, tmp_path: Path) -> None:
    assert verdict_of(clean.finish(), tmp_path) == ("PASS", "")


EVIDENCE = [
    "run.json",
    "armv5/canary/events.jsonl",
    "armv5/canary/seal.json",
    "armv5/bitops/events.jsonl",
    "armv5/bitops/seal.json",
    "armv5/bitops/guest-1/faults.jsonl",
    "armv5/bitops/guest-1/faults.jsonl.counts",
    "armv5/bitops/guest-1/transcript-0.jsonl",
]


@pytest.mark.parametrize("name", EVIDENCE)
def test_evidence_that_was_cut_anywhere_or_is_missing_never_passes(clean: StoredRun, tmp_path: Path, name: str) -> None:
    file = clean.finish() / name
    content = file.read_bytes()
    # Cut at every byte of short files, and in longer ones at steps that divide no record's length.
    for cut in range(0, len(content), 1 if len(content) < 500 else 13):
        file.write_bytes(content[:cut])
        verdict, why = verdict_of(clean.folder, tmp_path)
        assert (verdict, bool(why)) == ("UNKNOWN", True), f"{name} cut at {cut} of {len(content)}"
    file.unlink()
    assert verdict_of(clean.folder, tmp_path)[0] == "UNKNOWN"
    file.write_bytes(content)
    assert verdict_of(clean.folder, tmp_path)[0] == "PASS"


@pytest.mark.parametrize(
    "change", [b"", b"\xff\xfe\n", b'{"connection":0,"direction":"request","data":"not base 64"}\n']
)
def test_damaged_requests_explain_nothing_and_hide_no_finding(run: StoredRun, tmp_path: Path, change: bytes) -> None:
    run.test("armv5", "bitops", "test_a", outcome="failed", message="1 != 2", guest="guest-1", transcript=BITOP)
    run.test("armv5", "bitops", "test_b")
    folder = run.finish()
    (transcript,) = folder.glob("*/*/*/transcript-0.jsonl")
    transcript.write_bytes(change)
    verdict, why = verdict_of(folder, tmp_path)
    assert (verdict, "guest-1/transcript-0.jsonl has" in why) == ("FAIL", True)


INVENTED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "a failed test": ("events.jsonl", lambda content: content.replace(b'"passed"', b'"failed"')),
    "a fault": (
        "guest-1/faults.jsonl",
        lambda content: content + json_codec.encode(fakes.fault(pc=20)) + b"\n",
    ),
    "a message": (
        "guest-1/log",
        lambda content: content + b"=== REDIS BUG REPORT START\n==7==ERROR: AddressSanitizer\n",
    ),
}


@pytest.mark.parametrize("what", INVENTED)
def test_what_was_written_into_evidence_later_is_no_finding(clean: StoredRun, tmp_path: Path, what: str) -> None:
    """Regression: a failed test in a changed event log was FAIL, although nobody knows that it failed."""
    name, change = INVENTED[what]
    file = clean.finish() / "armv5" / "bitops" / name
    file.write_bytes(change(file.read_bytes() if file.exists() else b""))
    verdict, why = verdict_of(clean.folder, tmp_path)
    assert (verdict, f"{name} has" in why or f"{name} was not there" in why) == ("UNKNOWN", True)


def test_a_failed_test_is_no_finding_if_what_vouches_for_it_was_changed(clean: StoredRun, tmp_path: Path) -> None:
    """Without the seal nobody knows which files were changed."""
    clean.test("armv5", "bitops", "test_other", outcome="failed", message="1 != 2")
    seal = clean.finish() / "armv5" / "bitops" / evidence_seal.NAME
    assert verdict_of(clean.folder, tmp_path)[0] == "FAIL"
    seal.write_bytes(seal.read_bytes() + b"\n")
    verdict, why = verdict_of(clean.folder, tmp_path)
    assert (verdict, f"{evidence_seal.NAME} differs" in why) == ("UNKNOWN", True)


@pytest.mark.parametrize("key", ["stack", "instruction", "registers"])
def test_a_fault_record_with_invalid_digits_is_damaged(run: StoredRun, tmp_path: Path, key: str) -> None:
    a_fault(run)
    (log,) = run.finish().glob("*/*/guest-1/faults.jsonl")
    record = json_codec.decode(log.read_bytes(), dict[str, Any])
    record[key] = ["0g"] if key == "registers" else "0g"
    log.write_bytes(json_codec.encode(record) + b"\n")
    assert "line 1 of faults.jsonl is damaged" in verdict_of(run.folder, tmp_path)[1]


@pytest.mark.parametrize("name", EVIDENCE)
def test_a_folder_in_place_of_evidence_never_passes(clean: StoredRun, tmp_path: Path, name: str) -> None:
    file = clean.finish() / name
    file.unlink()
    file.mkdir()
    assert verdict_of(clean.folder, tmp_path)[0] == "UNKNOWN"


def test_a_record_with_values_nested_too_deeply_is_damaged(clean: StoredRun, tmp_path: Path) -> None:
    (clean.finish() / "run.json").write_bytes(b'{"":' * 100_000)
    verdict, why = verdict_of(clean.folder, tmp_path)
    assert (verdict, "the run's record is damaged" in why) == ("UNKNOWN", True)


@pytest.mark.parametrize("name", EVIDENCE)
def test_evidence_with_one_bit_flipped_never_passes(clean: StoredRun, tmp_path: Path, name: str) -> None:
    file = clean.finish() / name
    content = file.read_bytes()
    for at in range(0, len(content), 1 if len(content) < 500 else 17):
        changed = bytearray(content)
        changed[at] ^= 0x10
        file.write_bytes(changed)
        assert verdict_of(clean.folder, tmp_path)[0] == "UNKNOWN", f"{name} at {at}"


def test_a_cell_removed_from_the_record_is_reported_missing(clean: StoredRun, tmp_path: Path) -> None:
    """A program may write a valid record, but the plan also lists the cell."""
    folder = clean.finish()
    record = run_folder.read_run(folder)
    run_folder.write_run(folder, msgspec.structs.replace(record, cells=record.cells[:1]))
    assert verdict_of(folder, tmp_path) == ("UNKNOWN", "it was planned but has no record")


def test_a_run_that_did_not_end_never_passes(clean: StoredRun, tmp_path: Path) -> None:
    """Even if all of its cells have ended, the later steps did not run."""
    folder = clean.finish()
    run_folder.write_run(folder, msgspec.structs.replace(run_folder.read_run(folder), ended=False))
    judgement, code = conclude(stored_run.read(folder), known_file(tmp_path), fakes.quiet())
    assert {cell.verdict for cell in judgement.cells} == {"PASS"}
    assert (judgement.verdict, code) == ("UNKNOWN", ExitCode.INCONCLUSIVE)
    assert judgement.unchecked == ["the run did not end: only the cells that had ended were judged"]


def test_a_cell_whose_folder_was_removed_is_sealed_as_empty(tmp_path: Path) -> None:
    digest = evidence_seal.seal(tmp_path / "armv5" / "bitops")
    assert evidence_seal.doubts(tmp_path / "armv5" / "bitops", digest) == []
    assert event_log.read(tmp_path / "armv5" / "bitops" / event_log.NAME).doubts == ["there is no events.jsonl"]


def test_a_cell_without_a_folder_is_reported_missing(clean: StoredRun, tmp_path: Path) -> None:
    shutil.rmtree(clean.finish() / "armv5" / "bitops")
    assert verdict_of(clean.folder, tmp_path)[0] == "UNKNOWN"


@pytest.mark.parametrize(("version", "made_by"), [(1, "an older"), (run_record.VERSION + 1, "a newer")])
def test_a_run_of_another_format_is_distinguished_from_a_damaged_one(
    clean: StoredRun, version: int, made_by: str
) -> None:
    path = clean.finish() / "run.json"
    raw = json_codec.decode(path.read_bytes(), dict)
    path.write_bytes(json_codec.encode({**raw, "version": version, "a key of later": 1}))
    with pytest.raises(UsageError, match=f"made by {made_by} Plumbline"):
        judge(stored_run.read(clean.folder))


def rewritten(stored: StoredRun, change: Callable[[Path], None]) -> Path:
    """A run whose events were changed before they were sealed, as if the process had ended abnormally."""
    folder = stored.finish()
    cell = folder / "armv5" / "bitops"
    change(cell / event_log.NAME)
    record = run_folder.read_run(folder)
    cells = [
        msgspec.structs.replace(one, seal=evidence_seal.seal(cell)) if one.suite == "bitops" else one
        for one in record.cells
    ]
    run_folder.write_run(folder, msgspec.structs.replace(record, cells=cells))
    return folder


def test_a_process_that_ended_before_its_tests_did_is_unknown(clean: StoredRun, tmp_path: Path) -> None:
    def cut(log: Path) -> None:
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))

    assert verdict_of(rewritten(clean, cut), tmp_path) == ("UNKNOWN", "its test process left no word of its end")


def test_tests_that_were_collected_but_never_ran_are_reported_missing(clean: StoredRun, tmp_path: Path) -> None:
    def claim_more(path: Path) -> None:
        events = event_log.read_events(path)
        path.unlink()
        log = event_log.EventLog(path)
        log.append(cell_events.CollectedEvent(tests=173))
        for event in events:
            log.append(event)
        log.close(tests=101, failed=0)

    assert verdict_of(rewritten(clean, claim_more), tmp_path) == ("UNKNOWN", "101 of 173 tests came to an end")


def test_a_log_that_was_removed_during_a_run_is_reported_missing(clean: StoredRun, tmp_path: Path) -> None:
    def remove_first_half(path: Path) -> None:
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[2:]))

    verdict, why = verdict_of(rewritten(clean, remove_first_half), tmp_path)
    assert verdict == "UNKNOWN"
    assert "does not say how many tests there are" in why


@pytest.mark.parametrize("status", [0, 1])
def test_a_status_that_its_tests_do_not_explain_is_unknown(clean: StoredRun, tmp_path: Path, status: int) -> None:
    if not status:
        clean.test("armv5", "bitops", "test_b", outcome="failed", message="1 != 2")
    folder = clean.finish()
    record = run_folder.read_run(folder)
    cells = [msgspec.structs.replace(one, status=status) for one in record.cells]
    run_folder.write_run(folder, msgspec.structs.replace(record, cells=cells))
    listed = entry("wrong-result-test_b")
    verdict, why = verdict_of(folder, tmp_path, listed)
    assert verdict == "UNKNOWN"
    assert f"ended with status {status}" in why


def test_a_log_that_cannot_be_written_is_the_machines_fault(tmp_path: Path) -> None:
    log = event_log.EventLog(tmp_path / "gone" / "events.jsonl")
    for _ in range(2):
        with pytest.raises(InfrastructureError, match="evidence cannot be written"):
            log.append(cell_events.CollectedEvent(tests=1))
        (tmp_path / "gone").mkdir(exist_ok=True)


# A known finding excuses itself, and nothing else.

KNOWN = entry("alignment-bitopCommand-load")


def test_a_known_finding_does_not_excuse_a_cell_that_died(run: StoredRun, tmp_path: Path) -> None:
    a_fault(run)
    run.test("armv5", "bitops", "test_bitpos")
    assert verdict_of(run.finish(), tmp_path, KNOWN) == ("PASS", "")
    run.problem("armv5", "bitops", "it did not end within 420 s", "deadline")
    verdict, why = verdict_of(run.finish(), tmp_path, KNOWN)
    assert (verdict, why.startswith("it did not end within 420 s")) == ("UNKNOWN", True)


def test_a_known_finding_does_not_excuse_a_guest_that_was_killed(run: StoredRun, tmp_path: Path) -> None:
    a_fault(run)
    run.test("armv5", "bitops", "test_bitpos", outcome="failed", message="closed by the server", guest="guest-2")
    run.guest("armv5", "bitops", "guest-2", end="signal", detail="killed by SIGKILL", test="test_bitpos")
    run.test("armv5", "bitops", "test_bitcount")
    assert verdict_of(run.finish(), tmp_path, KNOWN)[0] == "UNKNOWN"


@pytest.mark.parametrize(("oracle", "who"), [(False, "a guest"), (True, "the native build")])
def test_a_killed_server_is_named_as_what_it_is(run: StoredRun, tmp_path: Path, *, oracle: bool, who: str) -> None:
    """Regression: the native build was called a guest, as if the server under test had been ended."""
    run.test("armv5", "bitops", "test_bitpos")
    run.guest("armv5", "bitops", "guest-2", end="signal", detail="killed by SIGKILL", oracle=oracle)
    verdict, why = verdict_of(run.finish(), tmp_path)
    assert (verdict, why) == ("UNKNOWN", f"{who} was killed by SIGKILL from outside (out of memory, or by hand)")


def test_a_known_finding_does_not_excuse_that_nothing_passed(run: StoredRun, tmp_path: Path) -> None:
    a_fault(run)
    verdict, why = verdict_of(run.finish(), tmp_path, KNOWN)
    assert (verdict, why) == ("UNKNOWN", "nothing passed: 1 tests failed; known: issue 3273")


def a_fault_and_an_audit(run: StoredRun, *functions: str) -> None:
    """Record a test that ended at a misaligned load, and passed in the audit, which recorded accesses in functions."""
    a_fault(run)
    audit = f"bitops/{run_folder.AUDIT}"
    run.audited.add(("armv5", "bitops"))
    run.test("armv5", audit, "test_bitop", guest="guest-1")
    run.guest("armv5", audit, "guest-1", end="stopped")
    for function in functions:
        run.fault("armv5", audit, "guest-1", fault(pc=run.place("armv5", function), event="access"))


@pytest.mark.parametrize(
    ("looked", "verdict", "why"),
    [
        (True, "XFAIL", "known: issue 3273; 1 test passed in the audit"),
        # The access that ended the server must be in the audit's record.
        (False, "UNKNOWN", "nothing passed: 1 tests failed; known: issue 3273"),
    ],
)
def test_tests_that_passed_in_an_audit_that_looked_count_if_a_known_finding_stops_all_servers(
    run: StoredRun, tmp_path: Path, looked: bool, verdict: str, why: str
) -> None:
    a_fault_and_an_audit(run, *(["bitopCommand"] if looked else []))
    judgement, _ = concluded(tmp_path, run, KNOWN)
    (cell,) = [one for one in judgement.cells if one.suite == "bitops"]
    assert (cell.verdict, cell.reason) == (verdict, why)
    assert judgement.verdict == ("PASS" if looked else "UNKNOWN")
    assert concluded(tmp_path, run)[0].verdict == "FAIL"


def test_another_finding_of_the_audit_of_a_server_that_does_not_start_is_no_known_one(
    run: StoredRun, tmp_path: Path
) -> None:
    a_fault_and_an_audit(run, "bitopCommand", "bitposCommand")
    assert verdict_of(run.finish(), tmp_path, KNOWN)[0] == "FAIL"


def test_a_test_that_could_not_run_for_an_unknown_reason_fails(run: StoredRun, tmp_path: Path) -> None:
    a_fault(run)
    run.test("armv5", "bitops", "test_bitpos", outcome="failed", message="the server did not start", blocked=True)
    run.test("armv5", "bitops", "test_bitcount")
    assert verdict_of(run.finish(), tmp_path, KNOWN)[0] == "FAIL"


# Explanations of a failure.


def test_an_allowed_access_does_not_explain_a_wrong_reply(run: StoredRun, tmp_path: Path) -> None:
    pc = run.place("armv5", "lposCommand")
    run.fault("armv5", "bitops", "guest-1", fault(pc=pc, event="access", number=0, code=0))
    run.test("armv5", "bitops", "test_lpos", outcome="failed", message="12345 != 3", guest="guest-1", faults=(0, 1))
    run.guest("armv5", "bitops", "guest-1", end="stopped")
    judgement, _ = concluded(tmp_path, run)
    assert [finding.kind for finding in judgement.findings] == ["alignment", "wrong-result"]


def test_a_childs_death_does_not_explain_its_parents_wrong_reply(run: StoredRun, tmp_path: Path) -> None:
    pc = run.place("armv5", "rdbSaveLen", "src/rdb.c", 1)
    run.fault("armv5", "bitops", "guest-1", fault(pc=pc, pid=999))
    run.test("armv5", "bitops", "test_lpos", outcome="failed", message="12345 != 3", guest="guest-1", faults=(0, 1))
    run.guest("armv5", "bitops", "guest-1", end="stopped")
    judgement, _ = concluded(tmp_path, run)
    assert [finding.kind for finding in judgement.findings] == ["alignment", "wrong-result"]


def test_a_repaired_access_does_not_explain_a_servers_end(run: StoredRun, tmp_path: Path) -> None:
    pc = run.place("armv5", "lposCommand")
    run.fault("armv5", "bitops", "guest-1", fault(pc=pc, event="access", number=0, code=0))
    run.test("armv5", "bitops", "test_lpos", outcome="failed", message="closed", guest="guest-1", faults=(0, 1))
    run.guest("armv5", "bitops", "guest-1", end="exit", detail="exit status 1", test="test_lpos")
    judgement, _ = concluded(tmp_path, run)
    assert [finding.kind for finding in judgement.findings] == ["alignment", "exit"]


def test_a_silent_or_killed_oracle_is_no_finding_of_the_server(run: StoredRun, tmp_path: Path) -> None:
    event = cell_events.TestEvent(
        name="test_bitop", outcome="failed", seconds=1, message="timed out", doubt="the native build did not answer"
    )
    run.add("armv5", "bitops", event)
    run.test("armv5", "bitops", "test_bitpos")
    judgement, code = concluded(tmp_path, run)
    assert (judgement.findings, code) == ([], ExitCode.INCONCLUSIVE)
    assert "the native build did not answer" in judgement.cells[1].reason


# Ends of processes.


def ended(run: StoredRun, *lines: str) -> Path:
    """A guest that passed its test and stopped, with these lines in its fault log."""
    run.test("armv5", "bitops", "test_bitop", guest="guest-1")
    run.guest("armv5", "bitops", "guest-1", end="stopped")
    log = run.cell("armv5", "bitops") / "guest-1" / fault_log.NAME
    log.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return log


END = '{{"event":"end","pid":{pid},"signal":{signal},"status":0}}'


@pytest.mark.parametrize(("signal", "kinds"), [(6, ["crash"]), (11, ["crash"]), (10, []), (15, []), (0, [])])
def test_a_child_that_dies_of_a_signal_is_a_finding_unless_its_parent_ended_it(
    run: StoredRun, tmp_path: Path, signal: int, kinds: list[str]
) -> None:
    ended(run, END.format(pid=101, signal=signal), END.format(pid=fakes.PID, signal=0))
    judgement, _ = concluded(tmp_path, run)
    assert [finding.kind for finding in judgement.findings] == kinds


def test_a_server_that_crashes_on_a_request_to_stop_is_a_finding(run: StoredRun, tmp_path: Path) -> None:
    run.test("armv5", "bitops", "test_bitop", guest="guest-1")
    event = cell_events.GuestEvent(
        name="guest-1", end="signal", detail="killed by SIGSEGV when it was told to stop", stopping=True
    )
    run.add("armv5", "bitops", event)
    judgement, code = concluded(tmp_path, run)
    (finding,) = judgement.findings
    assert (finding.id, code) == ("crash-stop", ExitCode.FINDINGS)
    assert finding.title == "the server ended in stop: killed by SIGSEGV when it was told to stop"


def test_repeated_faults_of_one_instruction_are_one_finding(run: StoredRun, tmp_path: Path) -> None:
    pc = run.place("armv5", "bitopCommand")
    for thread in range(8):
        run.fault("armv5", "bitops", "guest-1", fault(pc=pc, handled=True, tid=1000 + thread))
    log = run.cell("armv5", "bitops") / "guest-1" / fault_log.NAME
    for count in (64, 512):
        with log.open("a", encoding="utf-8") as stream:
            stream.write(f'{{"event":"repeat","pid":{fakes.PID},"pc":{pc},"count":{count}}}\n')
    run.test("armv5", "bitops", "test_bitop", guest="guest-1", faults=(0, 8))
    run.guest("armv5", "bitops", "guest-1", end="stopped")
    judgement, _ = concluded(tmp_path, run)
    assert [finding.occurrences for finding in judgement.findings] == [512]


@pytest.mark.parametrize("gone", ["log", f"{fault_log.NAME}.counts"])
def test_a_guests_evidence_is_reported_missing_if_it_was_removed_while_it_ran(
    run: StoredRun, tmp_path: Path, gone: str
) -> None:
    left = ("log", f"{fault_log.NAME}.counts")
    run.test("armv5", "bitops", "test_bitop", guest="guest-1")
    run.add("armv5", "bitops", cell_events.GuestEvent(name="guest-1", end="stopped", left=left))
    for name in left:
        fakes.write(run.cell("armv5", "bitops") / "guest-1" / name, "\0" * 16)
    assert verdict_of(run.finish(), tmp_path) == ("PASS", "")
    (run.cell("armv5", "bitops") / "guest-1" / gone).unlink()
    assert verdict_of(run.finish(), tmp_path) == ("UNKNOWN", f"guest-1: its {gone} is gone")


@pytest.mark.parametrize("where", ["guest-1", "guest-unit-sds", "peers/native/guest-1"])
def test_a_server_whose_end_nothing_records_makes_a_pass_unknown(run: StoredRun, tmp_path: Path, where: str) -> None:
    """The server may have crashed. The ends of units and of the oracle are recorded elsewhere."""
    run.test("armv5", "bitops", "test_bitop")
    run.log("armv5", "bitops", where, b"")
    expected = ("UNKNOWN", "guest-1: nothing records how it ended") if where == "guest-1" else ("PASS", "")
    assert verdict_of(run.finish(), tmp_path) == expected
    run.guest("armv5", "bitops", where.rpartition("/")[2], end="stopped")
    assert verdict_of(run.finish(), tmp_path) == ("PASS", "")


# Lost and broken records.


Loss = Literal["begun", "unwritten", "unterminated", "binary", "fused", "gone", "ledger"]


def lost(run: StoredRun, how: Loss) -> str:
    log = ended(run, END.format(pid=fakes.PID, signal=0))
    ledger = [1, 1]
    if how == "begun":
        ledger = [2, 1]
    elif how == "unwritten":
        ledger = [2, 2]
    elif how == "gone":
        log.unlink()
    elif how == "ledger":
        ledger = [1]
    else:
        damage = {
            "unterminated": b'{"event":"fault","pid"',
            "binary": b"\xff\xfe\n",
            "fused": b'{"event":"fau{"event"\n',
        }
        log.write_bytes(log.read_bytes() + damage[how])
    fault_log.ledger_of(log).write_bytes(b"".join(number.to_bytes(8, "little") for number in ledger))
    return how


@pytest.mark.parametrize("how", get_args(Loss))
def test_a_fault_log_that_lacks_records_is_unknown(run: StoredRun, tmp_path: Path, how: Loss) -> None:
    lost(run, how)
    judgement, code = concluded(tmp_path, run)
    assert (judgement.findings, code) == ([], ExitCode.INCONCLUSIVE)
    assert "guest-1: " in judgement.cells[1].reason


def test_a_record_after_a_cut_one_is_read(run: StoredRun, tmp_path: Path) -> None:
    run.fault("armv5", "bitops", "guest-1", fault(pc=run.place("armv5", "bitopCommand")))
    log = run.cell("armv5", "bitops") / "guest-1" / fault_log.NAME
    log.write_bytes(b'{"event":"fault","pid":100,"tid":1' + log.read_bytes())
    run.test("armv5", "bitops", "test_bitop", guest="guest-1", faults=(0, 1))
    judgement, code = concluded(tmp_path, run)
    assert ([finding.function for finding in judgement.findings], code) == (["bitopCommand"], ExitCode.FINDINGS)
    assert "line 1 of faults.jsonl is damaged" in judgement.cells[1].reason


@pytest.mark.parametrize(
    "log_text",
    [
        b"qemu-arm: -fault-log: a record was cut short: No space left on device\n",
        b"QEMU internal SIGSEGV {code=MAPERR}\n",
    ],
)
def test_an_emulator_in_trouble_is_no_finding_of_the_server(run: StoredRun, tmp_path: Path, log_text: bytes) -> None:
    run.log("armv5", "bitops", "guest-1", log_text)
    run.test("armv5", "bitops", "test_bitop", outcome="failed", message="closed by the server", guest="guest-1")
    run.guest("armv5", "bitops", "guest-1", end="signal", detail="killed by SIGSEGV", test="test_bitop")
    run.test("armv5", "bitops", "test_bitpos")
    judgement, code = concluded(tmp_path, run)
    assert (judgement.findings, code) == ([], ExitCode.INCONCLUSIVE)
    assert "its emulator" in judgement.cells[1].reason


def test_a_fault_that_an_emulator_could_not_record_leaves_a_doubt_although_its_server_stopped(
    run: StoredRun, tmp_path: Path
) -> None:
    run.log("armv5", "bitops", "guest-1", b"qemu-arm: -fault-log: a record was cut short: No space left on device\n")
    run.test("armv5", "bitops", "test_bitop", guest="guest-1")
    run.guest("armv5", "bitops", "guest-1", end="stopped", test="test_bitop")
    judgement, code = concluded(tmp_path, run)
    assert (judgement.findings, code) == ([], ExitCode.INCONCLUSIVE)
    assert judgement.cells[1].reason == "guest-1: its emulator could not write a record of a fault"


def test_fewer_records_than_during_the_tests_leave_a_doubt(run: StoredRun, tmp_path: Path) -> None:
    run.fault("armv5", "bitops", "guest-1", fault(pc=run.place("armv5", "bitopCommand"), handled=True))
    run.test("armv5", "bitops", "test_bitop", guest="guest-1", faults=(0, 2))
    judgement, _ = concluded(tmp_path, run)
    assert "guest-1: its fault log has 1 records, but there were 2 during its tests" in judgement.cells[1].reason
