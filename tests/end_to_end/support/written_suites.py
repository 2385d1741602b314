"""Runs a suite that a test writes as text, in a separate process, as a run does with a cell."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.run.cell_spec import write_cell

if TYPE_CHECKING:
    from pathlib import Path

    from harness.run.cell_spec import CellSpec


def run_written(suite: str, test: Path, cell: CellSpec, *, deadline_seconds: float) -> process.Result:
    """Write a suite's text to the file `test` and run it as the cell, whose folder exists and gets the evidence."""
    test.write_text(suite, "utf-8")
    place = cell.folder / "cell.json"
    write_cell(place, cell)
    command: list[str | Path] = [sys.executable, "-m", "pytest", test, "--plumb-cell", place, "-q"]
    command += ["-c", ROOT / "pyproject.toml", "-p", "harness.run.pytest_plugin", "--rootdir", test.parent]
    # Not the folder of all sessions, of which it would remove what earlier ones have left.
    command += ["--basetemp", test.parent / "temporary"]
    return process.run(command, deadline_seconds=deadline_seconds, folder=ROOT)
