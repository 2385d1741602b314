"""Keeps which code the servers of a cell's target executed in each of its tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.record.instruction_counts import ExecutedTest, append_executed
from harness.run.coverage.covered_guest import CoveredGuest

if TYPE_CHECKING:
    from pathlib import Path

    from harness.run.server_process import Guest


class TestCoverage:
    """The coverage of the present test, by all its covered servers."""

    __test__ = False
    """Its name does not make it a class of tests."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the cell's."""
        self._folder = folder
        self._executed: set[int] = set()

    def watch(self, guest: Guest) -> None:
        """Have a server report to this object, if it can."""
        if isinstance(guest, CoveredGuest):
            guest.report = self._executed.update

    def begin(self, guest: Guest | None) -> None:
        """A test begins. `guest`: the server that the cell's tests share, if it runs."""
        if isinstance(guest, CoveredGuest):
            guest.mark(reported=False)
        self._executed.clear()

    def look(self, guest: Guest | None) -> None:
        """See what the shared server executed, before it may be ended."""
        if isinstance(guest, CoveredGuest):
            guest.mark()

    def end(self, test: str, *, failed: bool) -> None:
        """A test has ended, and the servers that it started for itself."""
        append_executed(self._folder, ExecutedTest.of(test, self._executed, failed=failed))
