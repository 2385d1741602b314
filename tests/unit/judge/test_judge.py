"""Stored evidence and its verdict. Silence is never PASS, and judging twice gives the same result."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import json_codec
from harness.core.errors import ExitCode, UsageError
from harness.core.finding import Verdict
from harness.judge.conclusion import conclude
from harness.judge.findings import judge
from harness.judge.verdict import CellOutcome, cell_verdicts
from harness.record import stored_run
from tests.support import fakes
from tests.support.stored import StoredRun, a_fault, concluded, entry, judged, known_file

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("fake_symbols")


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


def test_tests_that_were_all_skipped_are_unknown(tmp_path: Path, run: StoredRun) -> None:
    for name in ("test_bitop", "test_bitpos"):
        run.test("armv5", "bitops", name, outcome="skipped", message="Skipped: needs 7.0")
    judgement, code = concluded(tmp_path, run)
    (cell,) = [cell for cell in judgement.cells if cell.suite == "bitops"]
    judged = (cell.verdict, cell.reason, code)
    assert judged == ("UNKNOWN", "every test was skipped: needs 7.0", ExitCode.INCONCLUSIVE)


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
    assert judgement.cells[1].reason == "its canaries misbehaved"


def test_one_failed_canary_among_many_that_passed_is_enough(run: StoredRun) -> None:
    run.canary("armv5", outcome="failed", message="load-word@2: expected trap, got done")
    run.canary("armv5")
    run.test("armv5", "bitops", "test_bitop")
    assert judged(run)[1] == {"armv5/canary": "UNKNOWN", "armv5/bitops": "UNKNOWN"}


@pytest.mark.parametrize("recorded", [True, False])
def test_canaries_that_did_not_run_make_the_target_unknown(tmp_path: Path, *, recorded: bool) -> None:
    stored = StoredRun(tmp_path / "run")
    if not recorded:
        stored.left_out.add(("armv5", "canary"))
    stored.test("armv5", "bitops", "test_bitop")
    judgement, code = concluded(tmp_path, stored)
    assert ([cell.verdict for cell in judgement.cells], code) == (["UNKNOWN", "UNKNOWN"], ExitCode.INCONCLUSIVE)
    assert judgement.cells[1].reason == "its canaries did not run"


def test_a_signal_without_a_name_is_shown_by_its_number(tmp_path: Path, run: StoredRun) -> None:
    run.fault("armv5", "bitops", "guest-1", fakes.fault(pc=run.place("armv5", "bitopCommand"), number=200, code=0))
    run.test("armv5", "bitops", "test_bitop", outcome="failed", message="gone", guest="guest-1", faults=(0, 1))
    judgement, code = concluded(tmp_path, run)
    assert code == ExitCode.FINDINGS
    assert any("signal 200" in finding.title for finding in judgement.findings)


def test_canaries_whose_evidence_was_changed_make_the_target_unknown(tmp_path: Path, run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop")
    events = run.finish() / "armv5" / "canary" / "events.jsonl"
    events.write_bytes(events.read_bytes() + events.read_bytes())
    judgement, code = conclude(stored_run.read(run.folder), known_file(tmp_path), fakes.quiet())
    assert ([cell.verdict for cell in judgement.cells], code) == (["UNKNOWN", "UNKNOWN"], ExitCode.INCONCLUSIVE)
    assert judgement.cells[1].reason == "its canaries are in doubt"


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
def test_merging_takes_the_worst_verdict_and_none_is_unknown(verdicts: list[Verdict]) -> None:
    expected = next((v for v in (Verdict.FAIL, Verdict.UNKNOWN, Verdict.PASS, Verdict.XFAIL) if v in verdicts), None)
    assert (expected or (Verdict.SKIP if verdicts else Verdict.UNKNOWN)) == Verdict.merge(verdicts)


def test_a_folder_without_a_run_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run folder"):
        judge(stored_run.read(tmp_path))


def test_judging_twice_gives_the_same(tmp_path: Path, run: StoredRun) -> None:
    a_fault(run)
    run.test("armv5", "bitops", "test_wrong", outcome="failed", message="1 != 2")
    first, second = concluded(tmp_path, run), concluded(tmp_path, run)
    assert json_codec.encode(first[0]) == json_codec.encode(second[0])
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


def test_every_occasion_of_a_witness_is_kept_and_the_known_list_must_match_each(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run")
    run.canary("armv5")
    run.test("armv5", "bitops", "test_that_passes")
    for number, command in enumerate(("RESTORE k 0 x", "RESTORE k 0 y", "SETRANGE k 1 x")):
        run.log(
            "armv5", "bitops", f"guest-{number}", b"redis-server: sds.c:114: _sdsnewlen: Assertion `a > b' failed.\n"
        )
        run.test("armv5", "bitops", f"test_{number}", outcome="failed", guest=f"guest-{number}", command=command)
        run.guest("armv5", "bitops", f"guest-{number}", end="signal", detail="SIGABRT", test=f"test_{number}")
    entries = "".join(
        f"[[findings]]\n{entry('assertion-_sdsnewlen')}command = '{one}'\n" for one in ("RESTORE *", "S*")
    )
    for known, verdict in ((entries, "XFAIL"), (entries.partition("'S*'")[0] + "'GET *'\n", "FAIL")):
        listed = fakes.write(tmp_path / "known.toml", known)
        judgement, _ = conclude(stored_run.read(run.finish()), listed, fakes.quiet())
        (finding,) = judgement.findings
        (witness,) = finding.witnesses
        occasions = [(one.test, one.command) for one in witness.occasions]
        assert occasions == [("test_0", "RESTORE k 0 x"), ("test_1", "RESTORE k 0 y"), ("test_2", "SETRANGE k 1 x")]
        assert bool(finding.known) == (verdict == "XFAIL")
        assert judgement.cells[-1].verdict == verdict


@pytest.mark.parametrize(("failed", "verdict"), [(0, "PASS"), (1, "UNKNOWN")])
def test_a_cell_with_failed_tests_and_no_finding_does_not_pass(failed: int, verdict: str) -> None:
    """The explanation of a failure is a finding or a doubt. Without either, evidence was lost."""
    canaries = CellOutcome(
        target="armv5", suite="canary", seconds=1, passed=1, failed=0, skipped=0, doubts=[], unexplained=[]
    )
    outcome = msgspec.structs.replace(canaries, suite="bitops", passed=5, failed=failed)
    cell = cell_verdicts([canaries, outcome], [])[-1]
    assert (cell.verdict, cell.reason) == (verdict, "1 tests failed, and no finding shows why" if failed else "")
