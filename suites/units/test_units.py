"""The server's own functions agree with independent models at every offset and length.

units.toml lists the functions, drivers/ calls them from C, and expectations.py names the judge of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.run.unit_runner import WrongLineError
from suites.units.expectations import wrong_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.run.cell_spec import CellSpec


NO_ROOM = "no room for "
"""The beginning of a driver's line about memory that it could not allocate."""


def test_unit(unit: str, unit_lines: Callable[[str], list[str]], cell: CellSpec) -> None:
    lines = unit_lines(unit)
    lacking = [line for line in lines if line.startswith(NO_ROOM)]
    # An emulated machine has about 256 MiB. Everywhere else, a driver can allocate memory that it does not fill.
    assert not lacking or cell.runner.target.emulator.has_kernel, f"{unit}: {'; '.join(lacking)}"
    lines = [line for line in lines if line not in lacking]
    assert lines, f"{unit} wrote nothing"
    if wrong := wrong_line(unit, cell.runner.target.endianness, lines):
        raise WrongLineError(unit, *wrong)
