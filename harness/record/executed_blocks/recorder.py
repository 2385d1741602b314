"""Records what the tests of one cell execute, while they run, and determines which test it belongs to.

A test owns the code that its program executes from the end of the previous test until its own end. Code that cannot be
attributed counts for every test: the start of a server that tests share, and fixtures that outlive a test. A keeper
decides which part of it is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from harness.core import json_codec
from harness.record.executed_blocks.block_map import ProgramCode
from harness.record.executed_blocks.keepers import AddressKeeper, FunctionKeeper
from harness.record.executed_blocks.process_blocks import ProcessBlocks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.record.cell_events import Outcome
    from harness.record.executed_blocks.keepers import Keeper

Kept = Literal["functions", "addresses"]
"""What a cell's folder stores for each test: for `plumb premerge`, and for `plumb suspects`."""


class ExecutionRecorder:
    """Records what the tests of one cell execute."""

    def __init__(self, plugin: Path, programs: Mapping[str, Path], cell: Path, folder: Path, *, kept: Kept) -> None:
        """`plugin`: the plugin for the emulator to load. `programs`: program -> the file of its ProgramCode. `cell`:
        the cell's folder. `folder`: where the maps of processes are, while these run.
        """
        self._plugin = plugin
        self._codes = {program: read_code(path) for program, path in programs.items()}
        self._folder = folder
        self._keeper: Keeper = FunctionKeeper(cell) if kept == "functions" else AddressKeeper(cell)
        self._tells_between = kept == "addresses"
        """Whether the keeper distinguishes a test's own commands from what happens between tests. Each sample takes
        time.
        """
        self._count = 0
        self._shared: ProcessBlocks | None = None
        self._own: list[ProcessBlocks] = []
        self._ended = 0
        self._problem = ""

    def process(self, program: Path, *, shared: bool = False, counts_start: bool = False) -> ProcessBlocks | None:
        """A process that is about to run a program, for only the present test or for all tests. `counts_start`: as in
        ProcessBlocks.

        None for a program whose code is unknown. It is then also unknown what the cell's tests execute.
        """
        code = self._codes.get(str(program))
        if code is None:
            self._problem = self._problem or f"the functions of {program.name} were not noted"
            return None
        self._count += 1
        place = self._folder / f"blocks-{self._count}"
        made = ProcessBlocks(self._plugin, program, place, code, counts_start=counts_start)
        if shared:
            self.retire()
            self._shared = made
        else:
            self._own.append(made)
        return made

    def knows(self, program: Path) -> bool:
        """Whether the code of a program is known."""
        return str(program) in self._codes

    def plugin_for(self, program: Path) -> str:
        """The plugin that the emulator loads for a process of the present test other than a server; empty if nothing is
        recorded.
        """
        made = self.process(program, counts_start=True)
        return made.plugin if made is not None else ""

    def ready(self) -> None:
        """The server that tests share is ready: so far, it has executed what every test needs."""
        if self._shared is not None:
            self._keeper.of_all(self._shared.code, self._shared.take())
            self._note_problem(self._shared)

    def retire(self) -> None:
        """The server that tests share has ended."""
        if self._shared is not None:
            self._look(between=True)
            self._note_problem(self._shared)
            self._shared.close()
            self._shared = None

    def begin_test(self) -> None:
        """A test begins: servers of the one before have ended."""
        self._end_own()
        if self._tells_between:
            self._look(between=True)

    def begin_example(self) -> None:
        """An example of the present test begins: servers of the one before have ended."""
        self._end_own()

    def end_commands(self) -> None:
        """The present test, or an example of it, sends no more commands: what follows explains how it went."""
        if self._tells_between:
            self._look(between=False)

    def begin_fixture(self) -> None:
        """Something is set up that outlives the present test."""
        self._look(between=False)

    def end_fixture(self) -> None:
        """It is set up: every test that uses it needs the code executed so far."""
        if self._shared is not None:
            self._keeper.of_all(self._shared.code, self._shared.take())

    def end_test(self, name: str, outcome: Outcome) -> None:
        """A test has ended."""
        self._end_own()
        self._look(between=False)
        self._ended += 1
        self._keeper.end_test(name, outcome)

    def finish(self) -> None:
        """Complete the cell's file, after the last test."""
        self._end_own()
        self.retire()
        self._keeper.finish(self._ended, self._problem)

    def _look(self, *, between: bool) -> None:
        """Read which blocks the shared server has executed since the last call."""
        if self._shared is not None:
            self._keeper.of_shared(self._shared.code, self._shared.take(), between=between)

    def _end_own(self) -> None:
        for one in self._own:
            self._keeper.of_own(one.code, one.take())
            self._note_problem(one)
            one.close()
        self._own.clear()

    def _note_problem(self, process: ProcessBlocks) -> None:
        self._problem = self._problem or process.problem


def read_code(path: Path) -> ProgramCode:
    """The code of a program, from the file of it."""
    return json_codec.decode(path.read_bytes(), ProgramCode)
