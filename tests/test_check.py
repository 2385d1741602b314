"""A run of cells: what it says of those that go on."""

from __future__ import annotations

import re

from harness.core.model import Cell
from harness.workflows.check import CellCount


def test_a_run_says_how_many_cells_have_ended_and_which_go_on() -> None:
    def cell(suite: str) -> Cell:
        return Cell(target="armv5", server="redis-7.0.15", suite=suite)

    cells = CellCount(3)
    assert cells.state() == "0/3 ended"
    with cells.running(cell("bitops")):
        with cells.running(cell("fuzz")):
            going_on = re.sub(r"\d+ s", "0 s", cells.state())
            assert going_on == "0/3 ended, armv5/bitops for 0 s, armv5/fuzz for 0 s"
        assert cells.state().startswith("1/3 ended, armv5/bitops for ")
    assert cells.state() == "2/3 ended"
