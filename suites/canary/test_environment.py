"""An environment kills the programs that it must kill and no others, and the records contain the cause of each death.
If a case behaves differently, the target's results are UNKNOWN. The usual environment does not collect this file.
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
