"""One run of a changed tree: its preparation, and its data about the cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.model import Cell, Suite
    from harness.plan.request import Request
    from harness.workflows.preparation.prepared_run import PreparedRun
    from harness.workflows.preparation.reach.base_code import BaseCode
    from harness.workflows.preparation.reach.edited_lines import EditedLines
    from harness.workflows.workbench import Workbench


class ChangedRun(NamedTuple):
    """One run of a changed tree."""

    bench: Workbench
    request: Request
    prepared: PreparedRun
    base: BaseCode
    edited: EditedLines

    def suite(self, cell: Cell) -> Suite:
        """The suite of a cell."""
        return self.bench.catalog.suites[cell.suite]

    def folder_of(self, cell: Cell) -> Path:
        """A cell's part of the run folder."""
        return self.request.run / cell.target / cell.suite

    def has_run(self, cell: Cell) -> bool:
        """Whether servers of a cell may have entered something."""
        return self.suite(cell).needs_server and self.folder_of(cell).is_dir()

    def compares(self, cell: Cell) -> bool:
        """Whether a cell's tests compare servers with the native build. Its units are compared with models."""
        return not self.suite(cell).program
