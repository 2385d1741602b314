"""Threads see the outcomes of litmus tests that the target's memory order allows, and no others. If an outcome that it
forbids is seen, or one that the emulator shows is not, the target's results are UNKNOWN. Without `--memory-order weak`,
this file is not collected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.run.environments import litmus

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec


def test_litmus(cell: CellSpec, litmus_case: litmus.LitmusCase) -> None:
    assert cell.litmus is not None
    wrong = litmus.disagreement(cell.litmus, cell.runner, litmus_case)
    assert not wrong, f"{litmus_case.name} on {cell.runner.target.name}: its outcome was {wrong}"
