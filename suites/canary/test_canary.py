"""Every access that the target must trap traps, its aligned twin passes, and what hardware allows is allowed.

The cases are data: `[canaries]` of targets/*.toml. A case that does not behave makes the target's results UNKNOWN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.canary import outcome

if TYPE_CHECKING:
    from pathlib import Path

    from harness.canary import Expected
    from harness.cell import CellSpec


def test_canary(cell: CellSpec, canary_case: tuple[str, Expected], tmp_path: Path) -> None:
    name, expected = canary_case
    assert cell.canary is not None
    actual = outcome(cell.canary, cell.runner, name, tmp_path / "faults.jsonl")
    assert actual == expected, f"{name} on {cell.runner.target.name}: expected {expected}, got {actual}"
