"""The figures of docs/BENCH.md: the work of a run of `fuzz`, medians with goals, and commits side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from click.testing import CliRunner

from harness.core.errors import InfrastructureError
from tests.support.stored import StoredRun
from tools import goals
from tools.goals import Measured

if TYPE_CHECKING:
    from pathlib import Path


def fuzzing(folder: Path, *remarks: str) -> Path:
    stored = StoredRun(folder, suites=("canary", "fuzz"))
    stored.processor_seconds = {"armv5": 4.0}
    for number, remark in enumerate(remarks):
        stored.test("armv5", "fuzz", f"fuzz/test_streams.py::{number}", message=remark)
    return stored.finish()


def test_streams_and_commands_of_all_tests_are_divided_by_the_suites_own_time(tmp_path: Path) -> None:
    folder = fuzzing(
        tmp_path / "run", "300 examples, 4000 commands in 9.0 s", "20 examples, 100 commands in 1.0 s, all"
    )
    assert goals.fuzzed(folder) == (320, 4100, 4.0)


def test_a_run_without_streams_has_no_figure(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="no streams"):
        goals.fuzzed(fuzzing(tmp_path / "run", "it says something else"))


def measured(commit: str, **figures: list[float]) -> Measured:
    return Measured(commit=commit, date="2026-11-23", processors=2, load=0.1, figures=figures)


def test_a_table_has_medians_and_marks_missed_goals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goals, "STORED", tmp_path / "bench.json")
    goals.store(measured("old", quick=[160.0, 40.0, 162.0]))
    goals.store(measured("new", quick=[60.0, 61.0, 900.0], streams=[200.0]))
    goals.store(measured("new", streams=[1600.0, 1700.0]))
    rows = goals.rows()
    assert rows[0] == "| figure | goal | old, 2026-11-23 | new, 2026-11-23 |"
    assert "| quick check, six targets | ≤ 70 s | 160 s (3×, missed) | 61 s (3×) |" in rows
    assert any("| ≥ 1500 1/s | – | 1,650 1/s (2×) |" in row for row in rows)
    assert rows[-1] == "| processors, load before |  | 2, 0.1 | 2, 0.1 |"


def test_the_page_has_the_newest_value_of_each_figure_and_says_where_other_work_ran() -> None:
    stored = [
        measured("old", quick=[160.0], streams=[200.0]),
        msgspec.structs.replace(measured("new", quick=[60.0, 61.0, 900.0]), load=1.1),
    ]
    rows = goals.current_rows(stored)
    assert "| quick check, six targets | ≤ 70 s | 61 s (3×) | 2 processors, beside other work |" in rows
    assert any(row.endswith("| ≥ 1500 1/s | 200 1/s (1×, missed) | 2 processors |") for row in rows)
    assert "| first check with an empty cache | ≤ 600 s | not measured |  |" in rows


@pytest.mark.usefixtures("safe_checkout")
def test_a_failed_measurement_loses_no_earlier_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise InfrastructureError("plumb fuzz ended with status 1 and not 0")

    monkeypatch.setattr(goals, "STORED", tmp_path / "bench.json")
    monkeypatch.setitem(goals.MEASUREMENTS, "quick", lambda bench: bench.add("quick", 61.0))
    monkeypatch.setitem(goals.MEASUREMENTS, "fuzz", fails)
    result = CliRunner().invoke(goals.main, ["quick", "fuzz", "--rounds", "1"])
    assert isinstance(result.exception, InfrastructureError)
    assert [one.figures for one in goals.read()] == [{"quick": [61.0]}]
