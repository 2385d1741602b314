"""Cells that run without a server: their specification, and what pytest records about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.processes import environment, process
from harness.core.strict_toml import ROOT
from harness.record import cell_events, event_log
from harness.run.cell_spec import CellSpec, write_cell
from harness.workflows.cell_process import pytest_command

if TYPE_CHECKING:
    from pathlib import Path

    from harness.build.emulators.runner import Runner


def spec_of(suite: str, folder: Path, runner: Runner) -> CellSpec:
    """A cell of the quick tier that has only a target. All of its files are in one folder."""
    return CellSpec(
        suite=suite,
        folder=folder,
        shared=folder,
        sockets=folder,
        runner=runner,
        version=(7, 0, 15),
        build=None,
        canary=None,
        seed=1,
        tier="quick",
    )


def recorded(spec: CellSpec) -> tuple[str, dict[str, cell_events.TestEvent]]:
    """Run a cell as `plumb check` does. Returns pytest's output, and the record of each test by its parameter."""
    write_cell(spec.folder / "cell.json", spec)
    result = process.run(
        pytest_command([spec.suite], spec.folder / "cell.json"),
        deadline_seconds=120,
        folder=ROOT,
        environment=environment.for_cell(),
    )
    found = event_log.read_events(spec.folder / "events.jsonl")
    tests = [event for event in found if isinstance(event, cell_events.TestEvent)]
    return result.text, {test.name.partition("[")[2].rstrip("]"): test for test in tests}
