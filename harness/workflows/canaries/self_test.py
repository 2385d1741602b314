"""Proves an installation: the canaries of every emulator in the cache, or of targets that are named: plumb self-test.

It takes half a minute, and needs neither a server nor a network. What it cannot prove, it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.build import host_packages, toolchain
from harness.core.errors import InfrastructureError, NothingSelectedError
from harness.core.model import CANARY_SUITE, Record
from harness.isa import rules
from harness.judge.conclusion import conclude
from harness.record import run_folder, stored_run
from harness.record.run_record import CellRecord, RunRecord
from harness.run.scheduler import side_by_side
from harness.workflows.canaries.canary_cell import run_canaries
from harness.workflows.cell_process import cell_server
from harness.workflows.target_setup import emulated_target, set_up_targets

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.errors import ExitCode
    from harness.core.processes.fork_server import ForkServer
    from harness.core.target_model import Target
    from harness.judge.findings import Judgement
    from harness.workflows.target_setup import TargetSetup
    from harness.workflows.workbench import Workbench

TITLE = "self-test"
"""The name that the run folder records instead of a server."""
POLICY = "signal"


class Selection(Record, frozen=True):
    """The scope of a self-test, and what it omits."""

    targets: list[str]
    remarks: list[str]
    """Sentences on the targets that it leaves out, with the reason."""
    named: bool
    """Whether the user named the targets: their missing parts are then installed and built."""


def select(bench: Workbench, patterns: Sequence[str]) -> Selection:
    """The targets that patterns select; without patterns, those whose emulator and compiler are here.

    Raises UsageError for a target without a user-mode emulator, and NothingSelectedError if nothing is built.
    """
    catalog = bench.catalog
    if patterns:
        names = [emulated_target(catalog, name).name for name in catalog.select_targets(patterns)]
        return Selection(targets=names, remarks=[], named=True)
    emulated = [target for target in catalog.targets.values() if target.emulator.is_qemu_user]
    built = bench.emulators().cached([target.emulator for target in emulated])
    ready = [target for target in emulated if target.emulator.qemu in built]
    without = {one.name: toolchain.missing_packages(tuple(catalog.toolchain_of(one).packages)) for one in ready}
    chosen = [target.name for target in ready if not without[target.name]]
    unbuilt = [target.name for target in emulated if target.emulator.qemu not in built]
    remarks = []
    if unbuilt:
        listed = ", ".join(unbuilt)
        remarks.append(f"no emulator is built for {listed}; plumb self-test --target {unbuilt[0]} builds one")
    remarks += [
        (
            f"no compiler is installed for {name}, whose emulator is built; plumb doctor --target "
            f"{name} lists what it needs"
        )
        for name, packages in without.items()
        if packages
    ]
    if not chosen:
        raise NothingSelectedError(
            "there is nothing to test",
            because="\n".join(remarks),
            remedy="plumb self-test --target required builds the emulators of the required targets, in minutes",
        )
    return Selection(targets=chosen, remarks=remarks, named=False)


def prove(
    bench: Workbench, selection: Selection, run: Path, *, known: Path, install: bool, jobs: int
) -> tuple[Judgement, ExitCode]:
    """Run the canaries of the selected targets, and judge. Builds the emulators of targets that the user named.

    Raises InfrastructureError if the host lacks packages, or an emulator does not build.
    """
    if selection.named:
        diagnosis = host_packages.diagnose(bench.catalog, selection.targets, emulator="pinned")
        host_packages.install_missing(diagnosis, bench.progress, install=install)
    targets = [bench.catalog.targets[name] for name in selection.targets]
    setups = set_up_targets(bench, targets)
    run.mkdir(parents=True, exist_ok=True)
    # Stored first: a run that is killed is then judged UNKNOWN.
    run_folder.write_run(run, _record(bench, targets, []))
    with (
        bench.progress.stage("suites", f"running the canaries of {len(targets)} targets"),
        cell_server(timeout_multiplier=bench.catalog.timeout_multiplier) as server,
    ):
        records = side_by_side(
            setups.values(), lambda setup: _cell(setup, run, server), io_bound=lambda _: False, jobs=jobs
        )
    bench.refuse_damage(read_again=True)
    run_folder.write_run(run, _record(bench, targets, records))
    judgement, code = conclude(stored_run.read(run), known, bench.progress, made_here=True)
    return msgspec.structs.replace(judgement, remarks=[*judgement.remarks, *selection.remarks]), code


def _cell(setup: TargetSetup, run: Path, server: ForkServer) -> CellRecord:
    """The canaries of one target. A canary that does not compile costs this target its proof, and no other one."""
    try:
        return run_canaries(setup, setup.runner(POLICY), run, server)
    except InfrastructureError as error:
        problem = str(error).removeprefix("error: ")
        return CellRecord(
            target=setup.target.name, suite=CANARY_SUITE, seconds=0, problem=problem, problem_kind="crash"
        )


def _record(bench: Workbench, targets: list[Target], records: list[CellRecord]) -> RunRecord:
    catalog = bench.catalog
    return RunRecord(
        server=TITLE,
        family="",
        policy=POLICY,
        optimisation="",
        emulator="pinned",
        seed=0,
        timeout_multiplier=catalog.timeout_multiplier,
        targets=[target.name for target in targets],
        suites=[CANARY_SUITE],
        binaries={},
        triples={target.name: catalog.toolchain_of(target).triple for target in targets},
        machines={target.name: target for target in targets},
        stages=bench.progress.stages,
        cells=records,
        policies=rules.recorded_policies(catalog.policies, POLICY, targets),
    )
