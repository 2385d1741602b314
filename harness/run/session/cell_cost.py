"""What a cell costs: the processor time of its tests and, on request, the profile of its own code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.processes import processor_time
from harness.core.processes.profiler import Profiler
from harness.record import cell_events, run_cost
from harness.record.proxy.forwarding import PURPOSE

if TYPE_CHECKING:
    from pathlib import Path


class CellCost:
    """The cost of this process's cell, measured from now on."""

    def __init__(self, *, profiled: bool) -> None:
        self._used_before = self._start_seconds = 0.0
        self._profiler = Profiler(cell_events.BEFORE_TESTS) if profiled else None
        if self._profiler is not None:
            self._profiler.start()

    def begin_tests(self) -> None:
        """The processor time of tests counts from here on."""
        self._used_before, self._start_seconds = processor_time.seconds(), processor_time.own_seconds()
        if self._profiler is not None:
            self._profiler.phase = cell_events.IN_TESTS

    def tests_seconds(self) -> float:
        """The processor time since then, of all processes."""
        return processor_time.seconds() - self._used_before

    def write_profile(self, folder: Path) -> None:
        """End the profile, if there is one, and write it into the cell's folder."""
        if self._profiler is not None:
            run_cost.write_profile(folder, self._profiler.stop())

    def processor(self) -> cell_events.ProcessorTime:
        """The processor time so far, by what used it."""
        programs = processor_time.by_program()
        proxy = processor_time.by_thread().get(PURPOSE, 0.0)
        own = processor_time.own_seconds()
        others = processor_time.seconds() - own - sum(programs.values())
        return cell_events.ProcessorTime(
            start=round(self._start_seconds, 2),
            tests=round(own - self._start_seconds - proxy, 2),
            proxy=round(proxy, 2),
            programs={name: round(used, 2) for name, used in sorted(programs.items())},
            others=max(0.0, round(others, 2)),
        )
