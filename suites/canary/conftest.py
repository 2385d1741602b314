"""Selects the canary suite's files that a target runs."""

from __future__ import annotations

from pathlib import Path

import pytest  # noqa: TC002 - pytest reads the hook's annotations

from harness.run.cell_spec import read_cell


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not collect the canaries of a detector, an environment or a memory order if the cell has none. They are not
    skipped.
    """
    cell = config.getoption("--plumb-cell")
    if cell is None or collection_path.name not in {"test_detector.py", "test_environment.py", "test_litmus.py"}:
        return None
    runner = read_cell(Path(cell)).runner
    if collection_path.name == "test_detector.py":
        return not runner.target.emulator.detector or None
    if collection_path.name == "test_litmus.py":
        return not runner.memory_order or None
    return runner.guest_environment == "usual" or None
