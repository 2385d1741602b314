"""The part of a change that no test has entered, after all cells of a run have ended. The code is compared with the
base's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.record import run_folder
from harness.record.executed_blocks import cell_reach
from harness.record.run_record import Unentered
from harness.workflows.preparation.reach.base_code import functions_of_files
from harness.workflows.preparation.reach.reached_tests import entered

if TYPE_CHECKING:
    from harness.analysis.code.line_code import LineCode
    from harness.core.model import Cell
    from harness.workflows.preparation.reach.reach_selection import ReachSelection


class UntestedChange:
    """The parts of a run's change that its tests have not entered."""

    def __init__(self, selection: ReachSelection) -> None:
        self._selection = selection
        self._run = selection.run
        self._codes = selection.codes
        self._cells = selection.cells
        self._change = selection.change

    def unentered(self) -> dict[str, Unentered]:
        """`RunRecord.unentered`, after all cells have run. Builds the base, unless that is in the cache."""
        found = {}
        for target in self._run.request.plan.targets:
            change = self._change.of(target)
            if change is None:
                return {}
            own = self._codes.lines_in(self._cells.server(target))
            lines, whole = self._run.edited.with_code(own)
            there, unnoted = self._entered(target, change.functions)
            beside, executed = self._lines_beside(target)
            with_beside, whole_beside = self._run.edited.with_code([*own, *beside])
            with_beside -= lines
            found[target] = Unentered(
                functions=sorted(change.functions - there),
                of=len(change.functions),
                data_differ=bool(change.elsewhere),
                unnoted=unnoted,
                lines=[f"{file}:{line}" for file, line in self._run.edited.not_executed(lines, there)],
                of_lines=len(lines),
                whole=whole,
                beside=[f"{file}:{line}" for file, line in self._run.edited.not_executed(with_beside, executed)],
                of_beside=len(with_beside),
                whole_beside=whole_beside,
            )
        return found

    def _lines_beside(self, target: str) -> tuple[list[LineCode], set[str]]:
        """The edited lines' code in the programs beside the server, and the names of what those have executed. Nothing
        for programs whose tests did not run, or were not recorded.
        """
        lines: list[LineCode] = []
        executed: set[str] = set()
        for cell, programs in self._cells.other_programs(target).items():
            noted = cell_reach.read(self._run.folder_of(cell)) if self._run.has_run(cell) else None
            if noted is not None and not noted.problem:
                lines += [line for program in programs for line in self._codes.lines_in(program)]
                executed |= entered(noted) | self._entered_in_audit(cell)
        return lines, executed

    def _entered(self, target: str, differing: frozenset[str]) -> tuple[set[str], list[str]]:
        """All functions of a target's servers that its tests have entered, now or when they ran before and were left
        out; and the suites that have run and of which that is not known. `differing`: what matters of it.
        """
        cells = [cell for cell in self._cells.noted if cell.target == target and self._run.has_run(cell)]
        found: set[str] = set()
        unnoted = []
        for cell in cells:
            noted = cell_reach.read(self._run.folder_of(cell))
            if noted is None or noted.problem:
                unnoted.append(cell.suite)
                continue
            found |= entered(noted) | self._entered_in_audit(cell)
            found |= self._selection.entered_before(cell)
        rest = [
            cell for cell in self._run.request.plan.cells if cell.target == target and cell not in self._cells.noted
        ]
        others = [cell.suite for cell in rest if self._run.has_run(cell)]
        return found, [*unnoted, *(name for name in others if not cells or self._covers(name, target, differing))]

    def _entered_in_audit(self, cell: Cell) -> set[str]:
        """The functions that the tests of the audit that followed a cell have entered: a server that does not start
        otherwise runs its tests there.
        """
        noted = cell_reach.read(self._run.folder_of(cell) / run_folder.AUDIT)
        return entered(noted) if noted is not None else set()

    def _covers(self, suite: str, target: str, functions: frozenset[str]) -> bool:
        """Whether a suite tests files that have one of these functions. The release's own tests cover nothing that
        others do not.
        """
        about = self._run.bench.catalog.suites[suite]
        globs = [*about.source_globs, *about.partial_globs]
        return not functions_of_files(self._change.code_of(target), self._run.prepared.tree.content, globs).isdisjoint(
            functions
        )
