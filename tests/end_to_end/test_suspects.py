"""A bug is planted whose finding names no place: the ranking of functions has the changed one among the first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import ExitCode
from harness.workflows.mutation_testing import campaign, mutations
from tests.end_to_end.machines import quiet_workbench
from tests.end_to_end.plumb_runs import PLUMB, run

pytestmark = pytest.mark.end_to_end

FIRST = 5


@pytest.fixture(scope="module")
def planted() -> Path:
    """The run of a check that finds GETRANGE wrong, as the native build of the same source is."""
    row = campaign.mutate(quiet_workbench(), mutations.mutations()["getrange-length-type"], targets=["armv5"])
    assert row.caught
    return Path(row.run)


def finding_of(folder: Path) -> dict[str, Any]:
    read = json.loads((folder / "findings.json").read_text("utf-8"))
    (found,) = [one for one in read["findings"] if one["kind"] == "wrong-result" and not one["known"]]
    assert isinstance(found, dict)
    return found


def test_the_changed_function_is_among_the_first_though_the_oracle_has_the_bug_too(planted: Path) -> None:
    before = finding_of(planted)
    assert before["suspects"] == []
    finished = run("suspects", planted, before["id"], "--json", program=PLUMB)
    assert finished.returncode == ExitCode.PASS, finished.stderr
    ranking = json.loads(finished.stdout)
    named = [one["function"] for one in ranking["suspects"]]
    assert "getrangeCommand" in named[:FIRST], ranking
    assert ranking["passing"] > ranking["failing"] > 0
    assert finding_of(planted)["suspects"] == ranking["suspects"]
    shown = run("show", planted, before["id"], program=PLUMB).stdout
    assert "suspects      1. " in shown
    # Whoever judges the run again keeps the ranking.
    run("judge", planted, program=PLUMB)
    assert finding_of(planted)["suspects"] == ranking["suspects"]


def test_a_finding_that_is_none_says_what_to_type(planted: Path) -> None:
    finished = run("suspects", planted, "wrong-result-of-nothing", program=PLUMB)
    assert finished.returncode == ExitCode.USAGE, finished.stderr
    assert "no finding 'wrong-result-of-nothing'" in finished.stderr
