"""The target's detector reports every planted error, in the right function, and never the correct twin of an error. If
a case behaves differently, the target's results are UNKNOWN. Targets without a detector do not collect this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.run.detector_canary import outcome

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec


def test_detector(cell: CellSpec, detector_case: tuple[str, str]) -> None:
    case, expected = detector_case
    assert cell.detector_canary is not None
    actual = outcome(cell.detector_canary, cell.runner, case)
    assert actual == expected, f"{case} on {cell.runner.target.name}: expected {expected}, got {actual}"
