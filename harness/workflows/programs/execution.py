"""Runs a command with every program of a target under its emulator, and has the evidence judged: plumb exec."""

from __future__ import annotations

import os
import signal
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it decodes
from typing import TYPE_CHECKING

import msgspec

from harness.build import host_packages
from harness.build.emulators.runner import with_root
from harness.build.sources.library_packages import library_root
from harness.core.model import CANARY_SUITE, MemoryOrder, Record
from harness.isa import rules
from harness.judge.change import unchecked_changes
from harness.judge.conclusion import conclude
from harness.judge.known import tree_list
from harness.record import evidence_seal, program_launch, run_folder, stored_run
from harness.record.program_launch import CommandRecord
from harness.record.run_record import CellRecord, RunRecord
from harness.run.programs.command_events import write_events
from harness.run.programs.program_builds import note_builds
from harness.run.programs.program_file import check_command
from harness.run.programs.traced_command import check_machine, prepare_tracing, run_traced
from harness.workflows.canaries.canary_cell import run_canaries
from harness.workflows.git.checkout import revision_of
from harness.workflows.programs.built_libraries import built_root, is_built
from harness.workflows.programs.cross_environment import cross_environment
from harness.workflows.target_setup import emulated_target, oracle_setup, set_up_target
from harness.workflows.trials.program_trials import tried_again

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.build.emulators.runner import Runner
    from harness.core.errors import ExitCode
    from harness.core.target_model import Target
    from harness.judge.findings import Judgement
    from harness.run.programs.traced_command import Tracing
    from harness.workflows.target_setup import TargetSetup
    from harness.workflows.workbench import Workbench


class Execution(Record, frozen=True):
    """What to run, and where."""

    target: str
    policy: str
    words: list[str]
    folder: Path
    """The working folder."""
    run: Path
    """The run folder."""
    known: Path
    install: bool
    prints_document: bool = False
    """Whether standard output is for a JSON document."""
    sysroot: Path | None = None
    """The target's root folder, with the loader and the libraries of its programs; None: the cross compiler's."""
    libraries: tuple[str, ...] = ()
    """Packages of Debian with libraries of the target, which replace the compiler's libraries in a root folder."""
    memory_order: MemoryOrder = "usual"
    seed: int = 0
    """Of that order."""
    counts_from: Path | None = None
    """The file that the command writes when its tests begin: earlier programs are no reason to pass. None: every
    program is one.
    """


def tracing_of(setup: TargetSetup, runner: Runner, sysroot: Path | None = None) -> Tracing:
    """How to trace programs of a target. `sysroot`: their root folder, if it is not the compiler's."""
    tools = oracle_setup(setup.bench).toolchain
    if sysroot is not None:
        runner = with_root(runner, sysroot)
    return prepare_tracing(setup.bench.cache, tools, runner, setup.canary())


def environment_for(setup: TargetSetup, root: Path | None = None) -> dict[str, str]:
    """The caller's environment, with the variables that make build systems compile for the target.

    `root`: the root folder of further libraries.
    """
    return {**os.environ, **cross_environment(setup.bench.cache, setup.target, setup.toolchain, root)}


def root_with(bench: Workbench, target: Target, names: Sequence[str]) -> Path | None:
    """The root folder with libraries of Debian for a target; None without libraries.

    If Debian has no packages for it, their sources are built first. Raises as `library_root` and `built_root` do.
    """
    if not names:
        return None
    tools = bench.catalog.toolchain_of(target)
    if is_built(target, tools):
        return built_root(bench, target, names)
    return library_root(bench.cache, bench.progress, tools, target, names, offline=bench.offline)


def execute(bench: Workbench, asked: Execution) -> tuple[Judgement, ExitCode]:
    """Run the canaries and the command, and judge. The command has the terminal, and the caller's environment.

    Raises UsageError for a command that cannot run, InfrastructureError if the host lacks something, and
    KeyboardInterrupt if Ctrl-C ended the command.
    """
    target = emulated_target(bench.catalog, asked.target)
    rules.check_toolchain(
        rules.policy_for(bench.catalog.policies, asked.policy, target), target, bench.catalog.toolchain_of(target)
    )
    program = check_command(asked.words, os.environ, asked.folder)
    root = root_with(bench, target, asked.libraries)
    if root is not None:
        asked = msgspec.structs.replace(asked, sysroot=root)
    diagnosis = host_packages.diagnose(bench.catalog, [target.name], emulator="pinned")
    host_packages.install_missing(diagnosis, bench.progress, install=asked.install)
    setup = set_up_target(bench, target)
    runner = setup.runner(asked.policy, "usual", asked.memory_order, asked.seed)
    tracing, environment = tracing_of(setup, runner, asked.sysroot), environment_for(setup, root)
    check_machine(tracing, asked.words[0], program)
    asked.run.mkdir(parents=True, exist_ok=True)
    tree_list.record(asked.run, tree_list.text_in(asked.folder), None)
    # Stored first: a run that is killed is then judged UNKNOWN.
    revision = revision_of(asked.folder)
    run_folder.write_run(asked.run, record_of(setup, asked, [], revision))
    records = [run_canaries(setup, runner, asked.run)]
    with bench.progress.stage("suites", f"running {command_of(asked).title} with programs of {target.name} emulated"):
        records.append(run_command(tracing, setup, asked, environment))
    bench.refuse_damage(read_again=True)
    run_folder.write_run(asked.run, record_of(setup, asked, records, revision))
    stored = stored_run.read(asked.run)
    return conclude(stored, asked.known, bench.progress, tree=asked.folder, made_here=True)


def command_of(asked: Execution) -> CommandRecord:
    """The command, as the run folder records it."""
    sysroot = str(asked.sysroot) if asked.sysroot is not None else ""
    return CommandRecord(words=asked.words, folder=str(asked.folder), sysroot=sysroot)


def run_command(tracing: Tracing, setup: TargetSetup, asked: Execution, environment: Mapping[str, str]) -> CellRecord:
    """Run the command, and seal the evidence that it left. If it fails, programs that failed while stores waited run
    again.
    """
    target = tracing.runner.target.name
    cell = asked.run / target / program_launch.SUITE
    cell.mkdir(parents=True)
    end = run_traced(
        tracing,
        cell,
        command_of(asked),
        environment=environment,
        prints_document=asked.prints_document,
    )
    if end.code == -signal.SIGINT:
        raise KeyboardInterrupt
    note_builds(cell, setup.target, setup.toolchain.triple)
    status = write_events(cell, command_of(asked), target, end, counts_from=asked.counts_from)
    record = CellRecord(
        target=target,
        suite=program_launch.SUITE,
        seconds=round(end.seconds, 2),
        status=status,
        emulator=tracing.runner.emulator_digest,
        seal=evidence_seal.seal(cell),
    )
    if not status or not tracing.runner.memory_order:
        return record
    ordered, delayed = tried_again(tracing, setup, cell, command_of(asked), environment)
    return msgspec.structs.replace(record, ordered=ordered, delayed=delayed)


def record_of(setup: TargetSetup, asked: Execution, records: list[CellRecord], revision: str) -> RunRecord:
    """The record of a run with these cells."""
    catalog, target = setup.bench.catalog, setup.target
    return RunRecord(
        server=command_of(asked).title,
        family="",
        policy=asked.policy,
        optimisation="",
        emulator="pinned",
        seed=asked.seed,
        memory_order=asked.memory_order,
        timeout_multiplier=catalog.timeout_multiplier,
        targets=[target.name],
        suites=[CANARY_SUITE, program_launch.SUITE],
        binaries={},
        triples={target.name: setup.toolchain.triple},
        machines={target.name: target},
        stages=setup.bench.progress.stages,
        cells=records,
        beside=unchecked_changes.digests(asked.run),
        revision=revision,
        policies=rules.recorded_policies(catalog.policies, asked.policy, [target]),
    )
