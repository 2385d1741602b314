"""Runs the cell of canaries of a target that has no server: the proof that the target's emulator enforces alignment."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.core.model import CANARY_SUITE
from harness.record import evidence_seal, run_folder
from harness.run.cell_spec import CellSpec
from harness.workflows.cell_process import run_cell

if TYPE_CHECKING:
    from harness.build.emulators.runner import Runner
    from harness.core.processes.fork_server import ForkServer
    from harness.record.run_record import CellRecord
    from harness.workflows.target_setup import TargetSetup


def run_canaries(setup: TargetSetup, runner: Runner, run: Path, server: ForkServer | None = None) -> CellRecord:
    """Run the canaries of a target, and seal their evidence in the run folder. `runner`: how its programs run.

    Raises InfrastructureError if the canary program does not compile.
    """
    with tempfile.TemporaryDirectory(prefix="plumbline-") as sockets:
        spec = CellSpec(
            suite=CANARY_SUITE,
            folder=run / setup.target.name / CANARY_SUITE,
            shared=run / run_folder.SHARED,
            sockets=Path(sockets),
            runner=runner,
            version=(),
            build=None,
            canary=setup.canary(),
            litmus=setup.litmus(runner),
            triple=setup.toolchain.triple,
            seed=0,
            tier="quick",
        )
        record = run_cell(spec, setup.bench.progress, server=server)
    return msgspec.structs.replace(record, seal=evidence_seal.seal(spec.folder))
