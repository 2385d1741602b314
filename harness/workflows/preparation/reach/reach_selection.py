"""Selects the tests that a change can reach, from the records of earlier runs and the machine code.

A run in which all tests of a cell run records which functions each of them enters (harness.record.executed_blocks). The
cache keeps this record with the code of the server, if the cell was judged and had nothing new. In a later run, a test
is skipped if it ended as expected then and entered no function whose code has changed since. It would do the same
again. A test that failed with a known finding ended as expected, unless chance was involved or an audit followed.

In case of doubt, tests run: for a cell without a record, a build whose data or link differ, a suite with servers of
other targets, another seed, another list of known findings, another version of a file of Plumbline. Of several such
runs, the newest of the same checkout counts, because the code of another checkout may differ more.

Functions that a server calls by its clock count for the test that is running, and may be missing when fewer tests run.
Therefore the selected tests are also recorded. If they do not enter what they entered before, their cell runs again as
a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.analysis.code.code_map import CodeChange, differences
from harness.core.finding import Verdict
from harness.record.executed_blocks import cell_reach
from harness.workflows.preparation.reach.base_change import BaseChange
from harness.workflows.preparation.reach.noted_cells import NotedCells
from harness.workflows.preparation.reach.program_codes import ProgramCodes
from harness.workflows.preparation.reach.reach_store import ReachStore
from harness.workflows.preparation.reach.reached_tests import (
    EVERY_TEST,
    CellSelection,
    KeptReach,
    not_entered,
    select,
    settled,
)
from harness.workflows.preparation.reach.repeated_tests import RepeatedTests

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.core.finding import Finding
    from harness.core.model import Cell
    from harness.judge.conclusion import KnownLists
    from harness.judge.findings import Judgement
    from harness.record.run_record import RunRecord
    from harness.workflows.preparation.reach.changed_run import ChangedRun


class ReachSelection:
    """The tests of one run of a changed tree."""

    def __init__(self, run: ChangedRun, known: KnownLists, *, every_test: bool, idle: bool, folder: Path) -> None:
        """`folder` lasts as long as the cells run, and is for what they share. `every_test`: skip none. `idle`: as in
        `select`.
        """
        self.run = run
        self.codes = ProgramCodes(run, folder)
        self.cells = NotedCells(run, self.codes)
        self.change = BaseChange(run, self.codes, self.cells)
        self._known = known
        alone = [cell for cell in self.cells.noted if self.cells.is_alone(cell)]
        found = {cell: self.codes.map_in(self.cells.program(cell).parent) for cell in alone}
        self._codes = {cell: code for cell, code in found.items() if code}
        """The cells whose tests may be left out -> their programs' code."""
        self._store = ReachStore(run, known, self._codes)
        self._kept = {cell: one for cell in self._codes if (one := self._store.newest(cell)) is not None}
        self._changes = {cell: self._change(cell, one) for cell, one in self._kept.items()}
        self._repeated = RepeatedTests(run, self.change) if not every_test else None
        self._later: dict[Cell, CellSelection] = {}
        """The selections of cells that other cells of this run have shown, once they start."""
        able = not every_test and bool(self._kept)
        self._selections = select(self._kept, self._changes, idle=idle) if able else {}

    def of(self, cell: Cell) -> CellSelection:
        """The tests of a cell that starts, or has run."""
        if cell in self._selections or self._repeated is None:
            return self._selections.get(cell, EVERY_TEST)
        if cell not in self._later:
            self._later[cell] = self._repeated.of(cell)
        return self._later[cell]

    @property
    def left_out(self) -> int:
        """How many tests do not run."""
        return sum(len(one.without) for one in self._selections.values())

    def unproven(self) -> list[Cell]:
        """The cells whose selected tests passed again, but did not enter all the differing code that they had entered
        before.
        """
        found = []
        for cell, one in self._selections.items():
            noted = cell_reach.read(self.run.folder_of(cell))
            if not one.without or noted is None:
                continue
            kept = self._kept[cell]
            # A failure now would be lost if the cell ran again, and the result cannot be a PASS anyway.
            passed_again = noted.tests.keys() >= kept.reach.tests.keys() - set(one.without)
            if passed_again and not_entered(kept, self._changes[cell], self.cells.functions_of(cell), noted):
                found.append(cell)
        return found

    def run_whole(self, cells: Iterable[Cell]) -> None:
        """Choose all tests of these cells."""
        self._selections |= dict.fromkeys(cells, EVERY_TEST)

    def entered_before(self, cell: Cell) -> set[str]:
        """The functions that the tests of a cell that do not run entered when they ran."""
        without = self._selections.get(cell, EVERY_TEST).without
        before = self._kept[cell].as_expected if without else {}
        return {function for name in without for function in before[name]}

    def keep(self, judgement: Judgement, run: RunRecord) -> None:
        """Keep the records of the cells that were judged and have no new finding. They include tests that failed with
        known findings.
        """
        judged = {(one.target, one.suite) for one in judgement.cells if one.verdict in {Verdict.PASS, Verdict.XFAIL}}
        audited = {(one.target, one.suite) for one in run.cells if one.audit}
        known = self._known.after_judging(self.run.request.run)
        chance = [one for one in judgement.findings if not known.lasting(one)]
        for cell, code in self._codes.items():
            noted = cell_reach.read(self.run.folder_of(cell))
            if noted is None or noted.problem or not noted.tests or self.of(cell).without:
                continue
            if (cell.target, cell.suite) not in judged:
                continue
            reach, excused = settled(
                noted,
                _tests_of(judgement.findings, cell),
                _tests_of(chance, cell),
                audited=(cell.target, cell.suite) in audited,
            )
            kept = KeptReach(
                code=code,
                native=self.codes.native if self.run.compares(cell) else None,
                reach=reach,
                functions=self.cells.functions_of(cell),
                run=str(self.run.request.run),
                excused=excused,
            )
            self._store.keep(cell, kept)

    def _change(self, cell: Cell, kept: KeptReach) -> CodeChange:
        """What has changed since then, of everything on which a cell's tests depend."""
        return self.codes.with_native_change(
            differences(kept.code, self._codes[cell]), kept.run, kept.native, kept.functions, self._codes[cell]
        )


def _tests_of(findings: Iterable[Finding], cell: Cell) -> set[str]:
    """The tests of a cell that findings were seen in."""
    name = f"{cell.target}/{cell.suite}"
    return {test for one in findings for each in one.witnesses if name in each.cells for test in each.tests}
