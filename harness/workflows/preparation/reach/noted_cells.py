"""The cells of a run of a changed tree that record what their tests execute, and the programs that the tests
execute.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from harness.run.cell_spec import ExecutionSpec
from harness.workflows.preparation.prepared_run import UnbuiltTarget
from harness.workflows.target_setup import blocks_plugin

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.model import Cell
    from harness.workflows.preparation.prepared_run import BuiltTarget
    from harness.workflows.preparation.reach.changed_run import ChangedRun
    from harness.workflows.preparation.reach.program_codes import ProgramCodes


class NotedCells:
    """What the cells of a run record."""

    def __init__(self, run: ChangedRun, codes: ProgramCodes) -> None:
        self._run = run
        self._codes = codes
        cells = run.request.plan.cells
        self._programs = {cell: program for cell in cells if (program := self._program_of(cell))}
        self.noted = list(self._programs)
        """The cells that record the functions that their target's servers enter."""
        self._beside = {cell: programs for cell in cells if (programs := self._programs_beside(cell))}
        """The cells that record which edited lines the client and the benchmark execute, with those programs."""

    def execution(self, cell: Cell) -> ExecutionSpec | None:
        """The settings with which a cell records what its tests execute; None if that cannot be recorded.

        The target's canaries run as its other cells do.
        """
        if cell in self._beside:
            programs = dict.fromkeys(self._beside[cell], cell.target)
            programs[self.server(cell.target)] = cell.target
        elif self._run.suite(cell).needs_server:
            if cell not in self.noted:
                return None
            programs = {self.program(cell): cell.target}
            if not self.is_alone(cell):
                # Its tests start servers of the run's other targets, too.
                others = [one for one in self.noted if one.suite == cell.suite]
                programs |= {self.program(one): one.target for one in others}
        elif any(one.target == cell.target for one in self.noted):
            programs = {self._run.prepared.targets[cell.target].setup.canary(): cell.target}
        else:
            return None
        files = {str(program): self._codes.file_of(program, target) for program, target in programs.items()}
        return ExecutionSpec(plugin=self.plugin, programs=files, kept="functions")

    def _program_of(self, cell: Cell) -> Path | None:
        """The program that a cell's tests execute. None if it has not compiled or cannot be recorded: it must run under
        the project's emulator, and the tests must start it.
        """
        suite, target = self._run.suite(cell), self._run.prepared.targets[cell.target]
        if isinstance(target, UnbuiltTarget) or not self._can_note(target):
            return None
        # Of the programs that tests with TLS start, only the server is recorded.
        if not suite.needs_server or suite.upstream or suite.plain_programs or suite.program == "selftests":
            return None
        if suite.program:
            return target.units["units"].program
        if suite.tls:
            return target.with_tls.server_binary if target.with_tls is not None else None
        return target.build.server_binary

    def _can_note(self, target: BuiltTarget) -> bool:
        """Whether a target's programs run under the project's emulator, and nothing interferes with the plugin."""
        return (
            target.machine is None
            and target.runner.reports_edges
            and not target.target.emulator.detector
            # Other environments, for example with a filter of system calls, may interfere with it.
            and self._run.request.environment == "usual"
        )

    def is_alone(self, cell: Cell) -> bool:
        """Whether all servers of a cell's tests run its own target and program, and are compared only with servers
        whose code is known.
        """
        suite = self._run.suite(cell)
        tested = [suite, *(self._run.bench.catalog.suites[name] for name in suite.tests_of)]
        several = len(self._run.request.plan.targets) > 1
        combined = any(one.combines_targets(self._run.request.tier) for one in tested)
        alone = not any(one.tls for one in tested) and not (several and combined)
        return alone and (self._codes.native is not None or not self._run.compares(cell))

    def _programs_beside(self, cell: Cell) -> list[Path]:
        """The client and the benchmark, if a cell's tests run them and can be recorded. All other programs are the
        server's binary under another name.
        """
        suite, target = self._run.suite(cell), self._run.prepared.targets[cell.target]
        if isinstance(target, UnbuiltTarget) or not suite.plain_programs or target.programs is None:
            return []
        if not self._can_note(target):
            return []
        family = self._run.prepared.tree.family
        found = [target.programs / f"{family}-{name}" for name in ("cli", "benchmark")]
        return [program for program in found if self._codes.lines_in(program)]

    def other_programs(self, target: str) -> dict[Cell, list[Path]]:
        """The cells of a target that note which edited lines other programs than its server execute: the client and the
        benchmark, or the server with TLS.
        """
        with_tls = {cell: [self.program(cell)] for cell in self.noted if self._run.suite(cell).tls}
        return {cell: programs for cell, programs in (self._beside | with_tls).items() if cell.target == target}

    def program(self, cell: Cell) -> Path:
        """The program that the tests of a recorded cell execute."""
        return self._programs[cell]

    def server(self, target: str) -> Path:
        """The server of a target, which has compiled."""
        return self._run.prepared.built[target].build.server_binary

    def functions_of(self, cell: Cell) -> list[str]:
        """All functions of the program that a cell's tests execute."""
        return self._codes.of(self.program(cell), cell.target).function_names

    @cached_property
    def plugin(self) -> Path:
        """The recording plugin of the emulator. Raises InfrastructureError without it: nobody would know then whether
        a test executes the change.
        """
        return blocks_plugin(self._run.bench)
