"""The processor time of a cell is divided among what used it."""

from __future__ import annotations

import sys

from harness.core.processes import process, processor_time
from harness.run.session.cell_cost import CellCost

BUSY = "import time\nwhile time.process_time() < 0.2: pass\n"
BESIDE = 0.15
"""Seconds that this process uses between two readings, at most."""


def test_the_parts_of_a_cells_processor_time_are_the_whole() -> None:
    cost = CellCost(profiled=False)
    cost.begin_tests()
    assert process.run([sys.executable, "-SEc", BUSY], deadline_seconds=60).code == 0
    parts = cost.processor()
    whole = parts.start + parts.tests + parts.proxy + sum(parts.programs.values()) + parts.others
    assert abs(whole - processor_time.seconds()) < BESIDE
    assert cost.tests_seconds() >= 0.2
