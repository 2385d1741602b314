"""Selects the canary suite's files that a target runs."""

from __future__ import annotations

from pathlib import Path

import pytest  # noqa: TC002 - pytest reads the hook's annotations

from harness.run.cell_spec import read_cell


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not collect the detectors' canaries on targets without a detector, instead of showing a skipped test."""
    cell = config.getoption("--plumb-cell")
    if collection_path.name == "test_detector.py" and cell is not None:
        return not read_cell(Path(cell)).runner.target.emulator.detector or None
    return None
