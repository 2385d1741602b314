"""How the servers of a run differ from those of the change's base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.analysis.code.code_map import CodeChange, differences
from harness.workflows.preparation.reach.reached_tests import added

if TYPE_CHECKING:
    from harness.analysis.code.code_map import CodeMap
    from harness.workflows.preparation.reach.changed_run import ChangedRun
    from harness.workflows.preparation.reach.noted_cells import NotedCells
    from harness.workflows.preparation.reach.program_codes import ProgramCodes

BASE = "BASE"
"""The name of the change's base, among the names of runs that kept a record."""


class BaseChange:
    """The difference of each target's server from the base's."""

    def __init__(self, run: ChangedRun, codes: ProgramCodes, cells: NotedCells) -> None:
        self._run = run
        self._codes = codes
        self._cells = cells

    def of(self, target: str) -> CodeChange | None:
        """Functions that the base lacks or that differ there, in the target's server or in the native build. None if
        unknown. Builds the base, unless that is in the cache.
        """
        codes = self._both(target)
        if codes is None:
            return None
        functions = self._codes.of(self._cells.server(target), target).function_names
        own, native = differences(*codes), self._run.base.code.native
        change = self._codes.with_native_change(own, BASE, native, functions, codes[1])
        return self._here(target, change, codes)

    def of_target(self, target: str) -> CodeChange | None:
        """The same of the target's server alone."""
        codes = self._both(target)
        return self._here(target, differences(*codes), codes) if codes is not None else None

    def _both(self, target: str) -> tuple[CodeMap, CodeMap] | None:
        """The code of the base and of this run; None if they cannot be compared."""
        old, new = self._run.base.code.targets.get(target), self.code_of(target)
        return (old, new) if old is not None and new is not None and old.recipe == new.recipe else None

    def _here(self, target: str, change: CodeChange, codes: tuple[CodeMap, CodeMap]) -> CodeChange:
        """The part of a change that is in the target's server."""
        functions = self._codes.of(self._cells.server(target), target).function_names
        here = (change.functions | added(*codes)).intersection(functions)
        elsewhere = change.elsewhere or (["functions that are gone"] if change.functions and not here else [])
        return CodeChange(functions=here, elsewhere=elsewhere)

    def code_of(self, target: str) -> CodeMap | None:
        """The code of a target's build; None if it has none, or its objects cannot be read."""
        built = self._run.prepared.built
        return self._codes.map_in(built[target].build.folder) if target in built else None
