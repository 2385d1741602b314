"""Fixtures of the programs suite: a program of the release, on the target and on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from suites.programs.program import Programs

if TYPE_CHECKING:
    from pathlib import Path

    from harness.run.cell_spec import CellSpec


@pytest.fixture
def programs(cell: CellSpec, family: str, tmp_path: Path) -> Programs:
    """The release's programs, in a folder of the present test."""
    return Programs(cell, family, tmp_path)
