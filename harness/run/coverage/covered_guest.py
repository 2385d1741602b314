"""A server that tells which code of its own it executed since the last mark.

The first mark is when it is ready. One that is started with files reads them before, so that all it does counts.

The emulator's counter keeps the executions of each block of the server's first thread. What forked children and other
threads execute is not looked at.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Self

from harness.analysis.executed_code import executed_addresses
from harness.record.instruction_counts import BlockTable, GateError
from harness.run.counted_server import CountedGuest

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.core.model import Build


class CoveredGuest(CountedGuest):
    """A server under the counter that runs freely but for moments at which it is looked at."""

    report: Callable[[frozenset[int]], None] | None = None
    """Receives the addresses of its program that it executed, as harness.analysis.executed_code has them, at each mark
    and at its end. Nothing is reported of a server that has ended by itself."""
    counts_start = False
    """Whether its start counts although it has no files."""
    _before: BlockTable | None = None

    def steadying(self, build: Build) -> list[str]:
        """No options: only what is executed matters, and not how often."""
        del build
        return []

    def __enter__(self) -> Self:
        """Start the server. Raises StartError."""
        super().__enter__()
        self._before = BlockTable(b"") if self.files or self.counts_start else self._table()
        return self

    def __exit__(self, *details: object) -> None:
        """Report what it executed, and stop it."""
        self.mark()
        super().__exit__(*details)

    def mark(self, *, reported: bool = True) -> None:
        """Report what it executed since the last mark, and begin anew. Without `reported` only the latter."""
        if self._before is None or not self.alive():
            return
        before, self._before = self._before, self._table()
        if self._before is None or not reported or self.report is None:
            self.counts.child_blocks()
            return
        blocks = self._before.since(before) + Counter(self.counts.child_blocks().executions())
        machine = self.runner.target.emulator.qemu
        with contextlib.suppress(OSError):
            self.report(executed_addresses(blocks, self.maps(), self.build.server_binary, machine))

    def _table(self) -> BlockTable | None:
        """What it has executed so far; None, for ever, if it does not come back to wait for events.

        Its timer brings it back, so that no client has to ask it anything.
        """
        self.counts.hold(held=True)
        try:
            self.counts.await_held(self.alive, deadline_seconds=self.deadline_seconds)
            return self.blocks()
        except GateError:
            return None
        finally:
            self.counts.hold(held=False)
            self.counts.go_on()
