"""What an environment must kill dies in it, what it must not kill lives, and the records say of what.

A case that does not behave makes the target's results UNKNOWN. In the usual environment this file is not collected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.run.environments.environment_canary import outcome

if TYPE_CHECKING:
    from pathlib import Path

    from harness.run.cell_spec import CellSpec


def test_environment(cell: CellSpec, environment_case: tuple[str, str], tmp_path: Path) -> None:
    case, expected = environment_case
    assert cell.environment_canary is not None
    actual = outcome(cell.environment_canary, cell.runner, case, tmp_path / "faults.jsonl")
    where = f"{case} on {cell.runner.target.name} in {cell.runner.guest_environment}"
    assert actual == expected, f"{where}: expected {expected}, got {actual}"
