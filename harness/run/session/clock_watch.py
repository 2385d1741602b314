"""Notices that the machine's clock was set while a cell's tests ran, or that the machine slept.

Servers measure keys' times to live, and many of their other limits, by the time of day. After a step, a key is gone
early or too late, and a test that fails says nothing about the target.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LEAST_SECONDS = 0.1
"""The smallest step that counts. The shortest times to live in tests are of this size."""
LARGEST_RATE = 0.001
"""How much faster or slower a service may make the clock run without a step: ntpd keeps to half of it (adjtimex(8))."""
_CLOSE_SECONDS = 0.001
_READINGS = 10


class ClockWatch:
    """Compares the time of day with a clock that nobody can set."""

    def __init__(self, read: Callable[[], tuple[float, float]] | None = None) -> None:
        """`read`: both clocks at one moment, in seconds: the time of day, and the steady one."""
        self._read = read or _both
        self._last = self._read()
        self.moved_seconds = 0.0
        """The largest step so far, negative if the clock was set back; 0 if there was none."""

    def look(self) -> None:
        """Compare the clocks' ways since the last look."""
        last, self._last = self._last, self._read()
        day, steady = (now - then for now, then in zip(self._last, last, strict=True))
        step = day - steady
        if abs(step) > max(LEAST_SECONDS + LARGEST_RATE * steady, abs(self.moved_seconds)):
            self.moved_seconds = step

    @property
    def doubt(self) -> str:
        """Why a failed test says nothing about the target; empty if the clock went on evenly."""
        if not self.moved_seconds:
            return ""
        way = "forward" if self.moved_seconds > 0 else "back"
        step = f"{way} by {abs(self.moved_seconds):.1f} s"
        return f"the machine's clock was set {step} during the cell, or the machine slept; servers measure time by it"


def _both() -> tuple[float, float]:
    """The time of day and the steady clock. A process that loses its processor between them reads them again."""
    for _ in range(_READINGS):
        before = time.monotonic()
        day = time.time()
        after = time.monotonic()
        if after - before < _CLOSE_SECONDS:
            break
    return day, before
