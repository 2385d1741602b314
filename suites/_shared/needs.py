"""Skips a test whose server lacks what the test needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec


def require(cell: CellSpec, *needs: str) -> None:
    """Skip the test if the server does not meet one of these needs (harness.core.model.Abilities.lacks)."""
    if lacking := cell.lacks(*needs):
        pytest.skip(f"the server lacks what this test needs: {lacking}")
