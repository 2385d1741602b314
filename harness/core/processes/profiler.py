"""Profiles a process of Plumbline: stacks of the main thread, at regular intervals of processor time.

It owns one interval timer of this process. A sample costs about 20 µs, which have a stack of their own. The
process' children inherit neither the timer nor the samples.
"""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

INTERVAL_SECONDS = 0.005
"""Processor time between two samples. The kernel rounds it up to its tick (setitimer(2)), 4 or 10 ms as a rule."""
SEPARATOR = ";"
"""Between the functions of a stack, the outermost first, as in the folded stacks of flame graphs."""
SAMPLING = f"{__name__}:sampling"
"""The function that the profiler's own time is charged to."""
_PLUMBING = ("_pytest.", "pluggy.", "pytest.", "runpy", "__main__", "click.", "concurrent.", "threading")
"""Modules whose functions only call other functions: forty such frames are below every test."""
_LEAST_SHARE = 0.2
"""The part of an interval that the main thread must have used for a sample to count for it, and not for another
thread.
"""


class Profiler:
    """Charges the main thread's processor time to its stacks, by phase. Its caller is the main thread."""

    def __init__(self, phase: str) -> None:
        self._phase = phase
        self._latest = phase
        """The phase's latest stack."""
        self._stacks: defaultdict[str, float] = defaultdict(float)
        self._charged = 0.0

    @property
    def phase(self) -> str:
        """The current phase of the process: the outermost part of the stacks that follow."""
        return self._phase

    @phase.setter
    def phase(self, name: str) -> None:
        # On a busy machine, the timer is late. Time that it has not reported yet belongs to the phase that ends.
        self._charge(self._latest)
        self._phase = self._latest = name

    def start(self) -> None:
        """Begin to sample. Time from before counts for nothing."""
        self._charged = time.thread_time()
        signal.signal(signal.SIGPROF, self._sample)
        # A system call that the signal interrupts continues.
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)

    def stop(self) -> Mapping[str, float]:
        """End it. Returns seconds by stack."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        # A signal may be pending, and would end the process by default.
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        self._charge(self._latest)
        return dict(self._stacks)

    def _sample(self, _signal: int, frame: FrameType | None) -> None:
        now = time.thread_time()
        if now - self._charged < INTERVAL_SECONDS * _LEAST_SHARE:
            # The timer counts all threads' time.
            return
        self._latest = SEPARATOR.join([self._phase, *_functions(frame)])
        self._charge(self._latest, now)
        own, self._charged = self._charged, time.thread_time()
        self._stacks[SEPARATOR.join([self._phase, SAMPLING])] += self._charged - own

    def _charge(self, stack: str, now: float | None = None) -> None:
        """Charge the time since the latest charge to a stack."""
        now = time.thread_time() if now is None else now
        self._stacks[stack] += now - self._charged
        self._charged = now


def _functions(frame: FrameType | None) -> list[str]:
    """The functions of a stack, the outermost first, each `module:name`, without those that only call on."""
    found: list[str] = []
    while frame is not None:
        module = str(frame.f_globals.get("__name__", "?"))
        if not module.startswith(_PLUMBING):
            # Imports are a separate function for each part of a module's name.
            name = "import" if module.startswith("importlib.") else f"{module}:{frame.f_code.co_qualname}"
            if not found or found[-1] != name:
                found.append(name.replace(SEPARATOR, ","))
        frame = frame.f_back
    return found[::-1]
