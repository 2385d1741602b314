"""CELL/reach.json: which functions of the server each test of a cell entered, as its emulator noted them.

A test owns what its program enters from the end of the test before it until its own end. Work that a server postpones
shows late, so that a test also owns what begins within LATE_SECONDS of its end. What cannot be told apart counts for
every test: the start of a server that tests share, its other threads and children, and fixtures that outlive a test.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.model import Record
from harness.record.reach.function_map import FunctionMap

if TYPE_CHECKING:
    from pathlib import Path

NAME = "reach.json"
LATE_SECONDS = 0.25
"""A server that has something to do later does it within 0.1 s: its timer runs ten times a second."""
MAIN = "main"
"""The function that every program enters: where it was not noted, nothing was."""


class CellReach(Record, frozen=True):
    """What the tests of a cell that passed entered."""

    every: list[str]
    """Functions that count for every test."""
    tests: dict[str, list[str]]
    """Test -> the functions that it entered besides."""
    count: int
    """How many tests the cell has, those included that did not pass."""
    problem: str = ""
    """Why this may lack some; empty if nothing says so."""


def read(cell: Path) -> CellReach | None:
    """A cell's reach; None where it was not noted, or cannot be read."""
    try:
        return json_codec.decode((cell / NAME).read_bytes(), CellReach)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


class ReachRecorder:
    """Notes what the tests of one cell enter, while they run."""

    def __init__(self, plugin: Path, blanks: dict[str, Path], folder: Path) -> None:
        """`plugin`: what the emulator loads. `blanks`: program -> its map before it runs. `folder`: where the maps of
        processes are, while these run.
        """
        self._plugin = plugin
        self._blanks = {program: path.read_bytes() for program, path in blanks.items()}
        self._folder = folder
        self._count = 0
        self._shared: FunctionMap | None = None
        self._own: list[FunctionMap] = []
        self._every: set[str] = set()
        self._test: set[str] = set()
        self._tests: dict[str, set[str]] = {}
        self._late: deque[tuple[float, str]] = deque()
        """Tests whose postponed work may show yet, and when they ended."""
        self._collected = 0.0
        """When the functions that the shared server entered were last looked at."""
        self._ended = 0
        self._problem = ""

    def plugin_for(self, program: Path, *, shared: bool = False) -> str:
        """What the emulator loads for a process that is about to run a program: for the present test alone, or for all
        tests.

        Nothing for a program whose functions are not known: then the cell's reach is not known either.
        """
        blank = self._blanks.get(str(program))
        if blank is None:
            self._problem = self._problem or f"the functions of {program.name} were not noted"
            return ""
        self._count += 1
        made = FunctionMap(self._folder / f"reach-{self._count}", blank)
        if shared:
            self.retire()
            self._shared = made
        else:
            self._own.append(made)
        return f"{self._plugin},map={made.path},of={program}"

    def ready(self) -> None:
        """The server that tests share is ready: so far, it has entered what every test needs."""
        if self._shared is not None:
            entered = self._shared.take()
            self._every |= entered
            if MAIN not in entered:
                self._problem = self._problem or "a server entered no function"

    def retire(self) -> None:
        """The server that tests share has ended."""
        if self._shared is not None:
            self._collect()
            self._shared.close()
            self._shared = None

    def begin_example(self) -> None:
        """A test, or an example of one, begins: servers of the one before have ended."""
        self._end_own()
        self._collect()

    def begin_fixture(self) -> None:
        """Something is set up that outlives the present test."""
        self._collect()

    def end_fixture(self) -> None:
        """It is set up: whatever tests use it need what it entered."""
        if self._shared is not None:
            self._every |= self._shared.take()

    def end_test(self, name: str, *, passed: bool) -> None:
        """A test has ended. One that did not pass is forgotten: whatever changes, it has to run."""
        self._end_own()
        self._collect()
        self._ended += 1
        if passed:
            self._tests[name] = set(self._test)
            self._late.append((time.monotonic(), name))
        self._test.clear()

    def write(self, cell: Path) -> None:
        """Write reach.json, after the last test."""
        self._end_own()
        self.retire()
        # Whatever runs, its servers are stopped.
        self._every |= self._test
        common = set.intersection(*self._tests.values()) if self._tests else set()
        every = self._every | common
        found = CellReach(
            every=sorted(every),
            tests={name: sorted(entered - every) for name, entered in self._tests.items()},
            count=self._ended,
            problem=self._problem,
        )
        (cell / NAME).write_bytes(json_codec.encode(found))

    def _collect(self) -> None:
        """Look at what the shared server entered since this was last done."""
        if self._shared is None:
            return
        entered = self._shared.take()
        self._test |= entered
        self._every |= self._shared.beside()
        while self._late and self._late[0][0] < self._collected - LATE_SECONDS:
            self._late.popleft()
        for _, earlier in self._late:
            self._tests[earlier] |= entered
        self._collected = time.monotonic()

    def _end_own(self) -> None:
        for one in self._own:
            entered = one.take() | one.beside()
            if MAIN not in entered:
                self._problem = self._problem or "a program entered no function"
            self._test |= entered
            one.close()
        self._own.clear()
