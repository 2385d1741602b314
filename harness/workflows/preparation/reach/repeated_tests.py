"""Leaves out tests of suites that repeat those of others with other settings, by what these have shown in the same run.

Each test of `threads` is one of `protocol` or `fuzz` that waits for threads, and its cells run one at a time. A change
of one command's function would cost a minute on each target. What a test asks for decides which functions it enters. So
a test that ended well in the other suite and entered no changed function there does not run again, if its target's
tests in the other suites have entered all of the change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.record import run_folder
from harness.record.executed_blocks import cell_reach
from harness.record.run_record import LeftOut
from harness.workflows.preparation.reach.reached_tests import EVERY_TEST, CellSelection, entered

if TYPE_CHECKING:
    from harness.core.model import Cell
    from harness.record.executed_blocks.cell_reach import CellReach
    from harness.workflows.preparation.reach.base_change import BaseChange
    from harness.workflows.preparation.reach.changed_run import ChangedRun


class RepeatedTests:
    """The tests of suites whose further targets cost much, in a run in which the suites that they repeat have ended."""

    def __init__(self, run: ChangedRun, change: BaseChange) -> None:
        self._run = run
        self._change = change

    def of(self, cell: Cell) -> CellSelection:
        """The selection of a cell's tests, when it starts: all of them unless a record shows that some need not run."""
        suite = self._run.suite(cell)
        repeated = suite.tests_of if suite.costly and not self._run.request.tests else ()
        found = [self._reach(msgspec.structs.replace(cell, suite=name)) for name in repeated]
        reaches = [one for one in found if one is not None and not one.problem]
        if not found or len(reaches) < len(found):
            return EVERY_TEST
        # The native build is the same in both suites: what it does differently has shown.
        change = self._change.of_target(cell.target)
        if change is None or change.elsewhere or not change.functions:
            return EVERY_TEST
        always = {name for one in reaches for name in one.every}
        if change.functions & always or not change.functions <= set().union(*map(entered, reaches)):
            return EVERY_TEST
        tests = {name: functions for one in reaches for name, functions in one.tests.items()}
        without = sorted(name for name, functions in tests.items() if change.functions.isdisjoint(functions))
        if not without:
            return EVERY_TEST
        return CellSelection(
            without=without,
            left_out=LeftOut(
                tests=len(without),
                of=sum(one.count for one in reaches),
                functions=sorted(change.functions),
                before=f"{' and '.join(repeated)} of this run",
            ),
        )

    def _reach(self, cell: Cell) -> CellReach | None:
        """What the tests of a cell of this run entered, or those of its audit, if servers started there alone."""
        folder = self._run.folder_of(cell)
        own, audit = cell_reach.read(folder), cell_reach.read(folder / run_folder.AUDIT)
        return audit if audit is not None and (own is None or not own.tests) else own
