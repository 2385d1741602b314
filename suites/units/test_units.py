"""The server's own functions, at every offset and length, give what independent models say.

What is called is data (units.toml), how is C (drivers/), what must come of it is Python (expectations.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.unit_run import WrongLineError
from suites.units.expectations import judge_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.cell import CellSpec


def test_unit(unit: str, unit_lines: Callable[[str], list[str]], cell: CellSpec) -> None:
    lines = unit_lines(unit)
    assert lines, f"{unit} wrote nothing"
    judge = judge_of(unit, cell.runner.target.endianness)
    for line in lines:
        key, _, values = line.partition(":")
        complaint = judge(key, values.split())
        if complaint:
            raise WrongLineError(unit, line, complaint)
