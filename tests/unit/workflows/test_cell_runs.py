"""A suite that tests a part of a changed file runs on one target of each kind, and on others if that shows anything."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from harness.core.model import CANARY_SUITE, Cell
from harness.judge.conclusion import EndedCell
from harness.plan.catalog import Catalog
from harness.record.run_record import CellRecord
from harness.run.scheduler import CellCount
from harness.workflows.cell_process import TESTS_FAILED
from harness.workflows.cell_runs import CellRuns, representatives

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

CATALOG = Catalog()
SUITES = (CANARY_SUITE, "bitops", "threads")


def cells_of(*targets: str) -> list[Cell]:
    return [Cell(target=target, server="redis-7.0.15", suite=suite) for target in targets for suite in SUITES]


def standing_for(*targets: str) -> dict[str, str]:
    found = representatives(
        [Cell(target=one, server="redis-7.0.15", suite="threads") for one in targets], CATALOG.targets
    )
    return {cell.target: other.target for cell, other in found.items()}


def test_the_target_that_demands_most_stands_for_its_kind() -> None:
    assert standing_for("armv7", "armv6", "armv5", "armv7-time64", "aarch64", "sparc32plus", "sparc64") == {
        "armv7": "armv5",
        "armv6": "armv5",
        "armv5": "armv5",
        "armv7-time64": "armv7-time64",
        "aarch64": "aarch64",
        "sparc32plus": "sparc32plus",
        "sparc64": "sparc64",
    }


class Runs(CellRuns):
    """Cells that end as they are told to."""

    def __init__(self, folder: Path, ends: Mapping[str, CellRecord], known: Collection[str]) -> None:
        self.ran: list[str] = []
        self._ends = ends
        nothing: Any = None
        bench: Any = SimpleNamespace(catalog=CATALOG, refuse_damage=lambda: None, board=None)
        request: Any = SimpleNamespace(jobs=2, run=folder)
        prepared: Any = SimpleNamespace(
            targets={name: SimpleNamespace(target=one) for name, one in CATALOG.targets.items()}
        )
        super().__init__(
            bench,
            request,
            prepared,
            nothing,
            server=nothing,
            one_failure=False,
            until=math.inf,
            store=lambda _: None,
            judged=lambda _: EndedCell(known=set(known), new=not known),
            sampled={"threads"},
        )

    def _run_cell(self, cell: Cell) -> CellRecord:
        name = f"{cell.target}/{cell.suite}"
        self.ran.append(name)
        return self._ends.get(name, CellRecord(target=cell.target, suite=cell.suite, seconds=1, status=0))


def threads_ran(runs: Runs, cells: Sequence[Cell]) -> tuple[list[str], dict[str, str]]:
    """The targets whose `threads` ran, and the reasons of the others."""
    records = runs.run(cells, CellCount(len(cells)))
    assert [(one.target, one.suite) for one in records] == [(cell.target, cell.suite) for cell in cells]
    ran = sorted(name.partition("/")[0] for name in runs.ran if name.endswith("/threads"))
    return ran, {one.target: one.problem for one in records if one.problem_kind == "absent"}


TARGETS = ("aarch64", "armv5", "armv6", "sparc64")


def test_a_suite_that_is_sampled_runs_once_for_each_kind(tmp_path: Path) -> None:
    runs = Runs(tmp_path, {}, ())
    ran, absent = threads_ran(runs, cells_of(*TARGETS))
    assert ran == ["aarch64", "armv5", "sparc64"]
    assert absent == {"armv6": "armv5, of the same width and byte order, showed nothing new in it"}
    assert len(runs.ran) == len(TARGETS) * len(SUITES) - 1, "the other suites run on all"


@pytest.mark.parametrize(
    ("end", "known", "others"),
    [
        ({"status": TESTS_FAILED}, (), True),
        ({"status": TESTS_FAILED}, ("test_old",), False),
        ({"status": 0, "problem": "it exceeded its limit", "problem_kind": "deadline"}, (), True),
    ],
    ids=["a failure", "a known failure", "no result"],
)
def test_what_one_target_shows_the_others_of_its_kind_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: dict[str, Any], known: Collection[str], *, others: bool
) -> None:
    monkeypatch.setattr("harness.workflows.cell_runs.failed_tests", lambda _: ["test_old"])
    ended = CellRecord(target="armv5", suite="threads", seconds=1, **end)
    ran, _ = threads_ran(Runs(tmp_path, {"armv5/threads": ended}, known), cells_of(*TARGETS))
    assert ("armv6" in ran) == others
