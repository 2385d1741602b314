"""Skips a test whose server lacks what the test needs, or whose tier is too short for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec


def require(cell: CellSpec, *needs: str) -> None:
    """Skip the test if the server does not meet one of these needs (harness.core.model.Abilities.lacks)."""
    if lacking := cell.lacks(*needs):
        pytest.skip(f"the server lacks what this test needs: {lacking}")


def skip_in_short_tiers(cell: CellSpec, why: str) -> None:
    """Skip the test in the tiers quick and kernel, for this reason."""
    if cell.tier in {"quick", "kernel"}:
        pytest.skip(why)
