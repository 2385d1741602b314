"""Every error that the target's detector must report is reported, in its own function; its well-behaved twin is not.

A case that does not behave makes the target's results UNKNOWN. Targets without a detector do not collect this file.
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
