"""What a cell's folder stores for each test: the functions, in reach.json, or the addresses, in executed.jsonl."""

from __future__ import annotations

import time
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from harness.record.executed_blocks import cell_reach
from harness.record.executed_blocks.cell_reach import CellReach
from harness.record.executed_blocks.executed_tests import ExecutedTest, append_executed

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.cell_events import Outcome
    from harness.record.executed_blocks.block_map import ProgramCode
    from harness.record.executed_blocks.process_blocks import Executed

LATE_SECONDS = 0.25
"""A server that has something to do later does it within 0.1 s: its timer runs ten times a second."""


class Keeper(Protocol):
    """Receives the executed code, in chronological order."""

    def of_shared(self, code: ProgramCode, executed: Executed, *, between: bool) -> None:
        """Code that the tests' shared server executed; `between` tests, or when it ended."""

    def of_own(self, code: ProgramCode, executed: Executed) -> None:
        """Code that a process of only the present test, or of an example of it, executed."""

    def of_all(self, code: ProgramCode, executed: Executed) -> None:
        """Code that cannot be attributed to a test."""

    def end_test(self, name: str, outcome: Outcome) -> None:
        """The present test has ended."""

    def finish(self, count: int, problem: str) -> None:
        """The last of so many tests has ended. `problem`: why something may be missing."""


class FunctionKeeper:
    """Stores the functions, for every test.

    A server postpones some work, so a test also gets the code that begins within LATE_SECONDS of its end. Code of other
    threads and of children of a shared server cannot be attributed, so it counts for every test.
    """

    def __init__(self, cell: Path) -> None:
        self._cell = cell
        self._every: set[str] = set()
        self._test: set[str] = set()
        self._tests: dict[Outcome, dict[str, set[str]]] = {"passed": {}, "failed": {}, "skipped": {}}
        self._late: deque[tuple[float, set[str]]] = deque()
        """When tests ended whose postponed work may show yet, and the functions of each."""
        self._collected = 0.0
        """When the shared server was last sampled."""

    def of_shared(self, code: ProgramCode, executed: Executed, *, between: bool) -> None:
        """Code that is executed between tests counts for the next one."""
        del between
        entered = code.names_in(chain(executed.serving, executed.apart))
        self._test |= entered
        self._every |= code.names_in(chain(executed.beside, executed.beside_apart))
        while self._late and self._late[0][0] < self._collected - LATE_SECONDS:
            self._late.popleft()
        for _, earlier in self._late:
            earlier.update(entered)
        self._collected = time.monotonic()

    def of_own(self, code: ProgramCode, executed: Executed) -> None:
        """All of it is the test's."""
        self._test |= code.names_in(chain(*executed))

    def of_all(self, code: ProgramCode, executed: Executed) -> None:
        """It counts for every test."""
        self._every |= code.names_in(chain(*executed))

    def end_test(self, name: str, outcome: Outcome) -> None:
        """The present test has ended."""
        self._late.append((time.monotonic(), self._test))
        self._tests[outcome][name] = self._test
        self._test = set()

    def finish(self, count: int, problem: str) -> None:
        """Write reach.json."""
        passed, failed, skipped = self._tests["passed"], self._tests["failed"], self._tests["skipped"]
        # Whatever runs, its servers are stopped.
        every = self._every | self._test
        every |= set.intersection(*passed.values()) if passed else set()
        found = CellReach(
            every=sorted(every),
            tests={name: sorted(entered - every) for name, entered in passed.items()},
            failed={name: sorted(entered - every) for name, entered in failed.items()},
            skipped={name: sorted(entered - every) for name, entered in skipped.items()},
            count=count,
            problem=problem,
        )
        cell_reach.write(self._cell, found)


class AddressKeeper:
    """Stores the addresses, for every test: those that its own commands have executed.

    They exclude the start and the end of servers, and everything between tests.
    """

    def __init__(self, cell: Path) -> None:
        self._cell = cell
        self._test: set[int] = set()

    def of_shared(self, code: ProgramCode, executed: Executed, *, between: bool) -> None:
        """Only code that is executed while the test runs counts."""
        if not between:
            self.of_own(code, executed)

    def of_own(self, code: ProgramCode, executed: Executed) -> None:
        """The blocks that the process executed while it served."""
        self._test |= code.addresses(chain(executed.serving, executed.beside))

    def of_all(self, code: ProgramCode, executed: Executed) -> None:
        """Nothing: it explains no test's result."""

    def end_test(self, name: str, outcome: Outcome) -> None:
        """Add the test to executed.jsonl."""
        append_executed(self._cell, ExecutedTest.of(name, self._test, failed=outcome == "failed"))
        self._test.clear()

    def finish(self, count: int, problem: str) -> None:
        """Nothing is left to write."""
