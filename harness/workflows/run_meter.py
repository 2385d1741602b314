"""Measures what a run costs the host, from its request to its report, and writes RUN/cost.json.

Every run is measured: reading the clocks and the memory takes about 0.3 % of a processor. A profile, and the growth of
the cache, which takes a second or more to measure, are made only on request.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from harness.core.processes import processor_time
from harness.core.processes.memory_watch import MemoryWatch
from harness.core.processes.profiler import Profiler
from harness.record import run_cost
from harness.record.run_cost import PeakMemory, RunCost
from harness.workflows import cache_upkeep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from harness.workflows.workbench import Workbench

PHASE = "plumb"


@contextlib.contextmanager
def metered(bench: Workbench, folder: Path, *, profiled: bool = False) -> Iterator[None]:
    """Measure the block, and write its cost into the run folder if it succeeds."""
    began, own, programs = time.monotonic(), processor_time.own_seconds(), processor_time.by_program()
    cached = cache_upkeep.measure(bench.cache).bytes if profiled else 0
    profiler = Profiler(PHASE) if profiled else None
    stacks: Mapping[str, float] = {}
    if profiler is not None:
        profiler.start()
    try:
        with MemoryWatch() as memory:
            yield
    finally:
        if profiler is not None:
            stacks = profiler.stop()
    cost = RunCost(
        clock_seconds=round(time.monotonic() - began, 2),
        processors=os.cpu_count() or 1,
        stages={stage: round(used, 4) for stage, used in bench.progress.processor_seconds.items()},
        own_seconds=round(processor_time.own_seconds() - own, 2),
        programs=_more(processor_time.by_program(), programs),
        peak=PeakMemory(
            pss_bytes=memory.peak.pss_bytes, processes=memory.peak.processes, by_program=memory.peak.by_program
        ),
        cache_growth_bytes=cache_upkeep.measure(bench.cache).bytes - cached if profiled else None,
        stacks={stack: round(seconds, 4) for stack, seconds in stacks.items()},
    )
    run_cost.write(folder, cost)


def _more(now: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: round(used - before.get(name, 0.0), 2) for name, used in sorted(now.items())}
