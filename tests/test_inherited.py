"""What the base shows too is known, cell by cell and target by target; nothing else is excused by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness import inherited, runs
from harness.checkout import Base
from harness.errors import ExitCode, UsageError
from tests import fakes
from tests.stored import StoredRun

if TYPE_CHECKING:
    from pathlib import Path

    from harness.judge import Judgement

BASE = Base(commit="0123456789abcdef" * 2, subject="before", why="because")
WRONG = "wrong-result-test_bitop"


@pytest.fixture
def stored(tmp_path: Path) -> StoredRun:
    """A run in which a test fails on two targets."""
    run = StoredRun(tmp_path / "run", targets=("armv5", "sparc64"))
    for target in run.targets:
        run.canary(target)
        run.test(target, "bitops", "test_bitop", outcome="failed", message="1 != 2")
    return run


def concluded(
    stored: StoredRun, findings: dict[str, list[str]], *, untold: dict[str, str] | None = None, known: str = ""
) -> tuple[Judgement, ExitCode]:
    folder = stored.finish()
    inherited.write(folder, inherited.Inherited(base=BASE, findings=findings, untold=untold or {}))
    listed = fakes.write(folder / "known.toml", known or "findings = []\n")
    return runs.conclude(folder, listed, fakes.quiet())


def test_without_a_base_everything_is_blamed(stored: StoredRun, tmp_path: Path) -> None:
    listed = fakes.write(tmp_path / "known.toml", "findings = []\n")
    judgement, code = runs.conclude(stored.finish(), listed, fakes.quiet())
    assert (code, judgement.base) == (ExitCode.FINDINGS, "")


def test_what_the_base_shows_on_all_its_targets_is_known_and_passes(stored: StoredRun) -> None:
    judgement, code = concluded(stored, {WRONG: ["armv5", "sparc64"]})
    assert code == ExitCode.PASS
    (finding,) = judgement.findings
    assert finding.known == "also in BASE 0123456789ab"
    assert [cell.verdict for cell in judgement.cells if cell.suite == "bitops"] == ["XFAIL", "XFAIL"]
    assert judgement.base.startswith("0123456789ab 'before'")


def test_what_the_base_does_not_show_is_blamed(stored: StoredRun) -> None:
    judgement, code = concluded(stored, {"wrong-result-test_bitcount": ["armv5", "sparc64"]})
    assert (code, judgement.findings[0].known) == (ExitCode.FINDINGS, "")


def test_what_comes_to_another_target_is_new_there_and_the_reader_is_told(stored: StoredRun) -> None:
    judgement, code = concluded(stored, {WRONG: ["armv5"]})
    assert (code, judgement.findings[0].known) == (ExitCode.FINDINGS, "")
    assert judgement.remarks == [f"{WRONG} is new on sparc64; BASE shows it on armv5"]


def test_an_unknown_cell_stays_unknown_whatever_the_base_shows(stored: StoredRun) -> None:
    stored.canary("sparc64", outcome="failed", message="it did not fault")
    judgement, code = concluded(stored, {WRONG: ["armv5", "sparc64"]})
    assert (code, judgement.verdict) == (ExitCode.INCONCLUSIVE, "UNKNOWN")


def test_a_base_that_could_not_be_judged_excuses_nothing_and_the_reader_is_told(stored: StoredRun) -> None:
    judgement, code = concluded(stored, {}, untold={"armv5/bitops": "its canaries did not behave"})
    assert code == ExitCode.FINDINGS
    assert "BASE could not be judged on armv5/bitops" in judgement.remarks[0]
    assert judgement.remarks[0].endswith(": its canaries did not behave")


def test_the_known_list_goes_before_the_base_and_its_expired_and_unused_entries_are_told(
    stored: StoredRun,
) -> None:
    entries = [(WRONG, "2999-01-01", "for now"), ("gone", "2999-01-01", "fixed"), ("old", "2001-01-01", "forgotten")]
    listed = "".join(
        f'[[findings]]\nid = "{name}"\nserver = "*"\ntargets = ["*"]\nreason = "{why}"\nexpires = {day}\n'
        for name, day, why in entries
    )
    judgement, code = concluded(stored, {WRONG: ["armv5", "sparc64"]}, known=listed)
    assert (code, judgement.findings[0].known) == (ExitCode.PASS, "for now")
    assert judgement.remarks == [
        "known finding gone (*) was not seen in this run",
        "known finding old (*) expired on 2001-01-01: forgotten",
    ]


def test_a_judgement_of_the_base_is_remembered_with_its_unknown_cells(stored: StoredRun, tmp_path: Path) -> None:
    stored.canary("sparc64", outcome="failed", message="it did not fault")
    listed = fakes.write(tmp_path / "known.toml", "findings = []\n")
    judgement, _ = runs.conclude(stored.finish(), listed, fakes.quiet())
    found = inherited.of_judgement(BASE, judgement)
    assert found.findings == {WRONG: ["armv5", "sparc64"]}
    assert set(found.untold) == {"sparc64/canary", "sparc64/bitops"}
    inherited.write(tmp_path, found)
    assert inherited.read(tmp_path) == found


def test_a_damaged_file_is_told(stored: StoredRun) -> None:
    fakes.write(stored.finish() / inherited.NAME, "{")
    with pytest.raises(UsageError, match="what the base shows is damaged"):
        inherited.read(stored.folder)
