"""The main job: prepares a run, runs every cell in a process of its own, and has the evidence judged at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from harness.build import host_packages
from harness.build.allocator import check_supported, refuse_unused_options
from harness.build.environments import guest_environment
from harness.build.qemu_user import Runner, with_alignment
from harness.build.sources import source_tree
from harness.build.sources.archives import archive_name
from harness.build.sources.server_package import debian_architecture, package_named
from harness.build.toolchain import check_level
from harness.build.unit_drivers import Units  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.core.errors import ExitCode, UsageError
from harness.core.model import CANARY_SUITE, DEFAULT_OPTIMISATION
from harness.core.target_model import DEFAULT_FAMILY, ORACLE
from harness.isa import rules
from harness.judge import known_findings, unchecked_changes
from harness.judge.conclusion import KnownLists, conclude
from harness.record import evidence_seal, fault_log, run_folder, stored_run
from harness.record.run_folder import CellRecord, RunRecord
from harness.run.scheduler import CellCount, side_by_side
from harness.run.selftests import why_none
from harness.workflows.cell_process import TESTS_FAILED, cell_server, run_cell
from harness.workflows.git_checkout import revision_of
from harness.workflows.preparation.cell_specs import CellSpecs
from harness.workflows.preparation.changed_run import ChangedRun
from harness.workflows.preparation.reach_selection import ReachSelection
from harness.workflows.preparation.run_setup import RunSetup
from harness.workflows.preparation.untested_change import UntestedChange

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from harness.core.model import Build, Cell, SourceTree
    from harness.core.processes.fork_server import ForkServer
    from harness.judge.findings import Judgement
    from harness.plan.catalog import Catalog
    from harness.plan.request import Request
    from harness.run.cell_spec import CellSpec
    from harness.workflows.preparation.base_code import BaseCode
    from harness.workflows.preparation.edited_lines import EditedLines
    from harness.workflows.preparation.run_setup import PreparedRun
    from harness.workflows.workbench import Workbench


class CheckedChange(NamedTuple):
    """The change for which a tree is checked."""

    files: Sequence[str]
    """The files that it changes."""
    known_in_base: str
    """The base's own list of known findings, or empty."""
    base_code: BaseCode
    edited: EditedLines
    every_test: bool
    """Whether tests run, too, that ended as expected in an earlier run and that no change since can reach."""


class Check:
    """One run of the main job."""

    def __init__(
        self,
        bench: Workbench,
        request: Request,
        *,
        change: CheckedChange | None = None,
        without: Collection[str] = (),
        one_failure: bool = False,
        patient: bool = False,
    ) -> None:
        """`change`: what the tree is checked for. `without`: names of tests that do not run. `one_failure`: no cell
        starts after one in which a test failed. `patient`: as in CellSpec.
        """
        self.bench = bench
        self.request = request
        self.change = change
        self.without = sorted(without)
        self.one_failure = one_failure
        self.patient = patient
        self._failed_cell = ""

    @cached_property
    def tree(self) -> SourceTree:
        """The server's source, opened on first use. Raises UsageError for a name or a path that is no server."""
        tree = self.bench.open_server(self.request.server, self.request.settings, packages=True)
        return source_tree.with_newer(tree, self.change.files) if self.change is not None else tree

    def run(self) -> tuple[Judgement, ExitCode]:
        """Prepare, run every cell, judge. Raises PlumblineError for a problem that is not the server's fault."""
        request, progress = self.request, self.bench.progress
        self._check_request()
        refuse_unused_options(self.tree, request.settings, request.allocator)
        known_in_tree = known_findings.text_in(self.tree.path)
        setup = RunSetup(self.bench, request, self.tree)
        prepared = setup.prepare()
        request.run.mkdir(parents=True, exist_ok=True)
        setup.record_warnings(prepared)
        change = self.change
        known_findings.record(request.run, known_in_tree, None if change is None else change.known_in_base)
        # The plan is stored first: in a run that is killed, the cells that did not start are then judged UNKNOWN.
        planned = self._record(prepared, [])
        run_folder.write_run(request.run, planned)
        before = os.getloadavg()[0]
        cells = CellCount(len(request.plan.cells))
        with (
            progress.stage("suites", f"running {len(request.plan.cells)} cells, {request.jobs} at a time") as stage,
            tempfile.TemporaryDirectory(prefix="plumbline-") as sockets,
            cell_server() as server,
        ):
            stage.shows(cells.state)
            selection = None
            if change is not None:
                selection = ReachSelection(
                    ChangedRun(self.bench, request, prepared, change.base_code, change.edited),
                    KnownLists.read(request.run, planned, request.known),
                    every_test=change.every_test,
                    folder=Path(sockets),
                )
            if selection is not None and selection.left_out:
                progress.say(f"left out: {selection.left_out} tests that the change cannot reach")
            specs = CellSpecs(
                self.bench,
                request,
                prepared,
                sockets=Path(sockets),
                without=self.without,
                selection=selection,
                patient=self.patient,
            )
            records = self._run_cells(request.plan.cells, prepared, specs, cells, server)
            if selection is not None and (again := selection.unproven()):
                records = self._run_whole(again, records, selection, prepared, specs, server)
        self.bench.refuse_damage(read_again=True)
        unentered = UntestedChange(selection).unentered() if selection is not None else {}
        record = msgspec.structs.replace(
            self._record(prepared, records),
            load=(round(before, 2), round(os.getloadavg()[0], 2)),
            unentered=unentered,
            uncompared=selection is not None and not unentered,
        )
        run_folder.write_run(request.run, record)
        stored = stored_run.read(request.run)
        judgement, code = conclude(stored, request.known, progress, tree=self.tree.content, made_here=True)
        if selection is not None:
            selection.keep(judgement, record)
        return judgement, code

    def _check_request(self) -> None:
        """Raise UsageError for a policy, an allocator or an environment that a target cannot have; install packages."""
        catalog, request = self.bench.catalog, self.request
        if package_named(request.server):
            _refuse_for_package(catalog, request)
        for target in (catalog.targets[name] for name in request.plan.targets):
            tools = catalog.toolchain_of(target)
            rules.check_toolchain(rules.policy_for(catalog.policies, request.policy, target), target, tools)
            check_supported(request.allocator, target, tools)
            guest_environment.check_supported(request.environment, target, tools, request.emulator)
            check_level(tools, request.optimisation)
        diagnosis = host_packages.diagnose(catalog, request.plan.targets, emulator=request.emulator)
        host_packages.install_missing(diagnosis, self.bench.progress, install=request.install)

    def _run_whole(
        self,
        again: Sequence[Cell],
        records: Sequence[CellRecord],
        selection: ReachSelection,
        prepared: PreparedRun,
        specs: CellSpecs,
        server: ForkServer,
    ) -> list[CellRecord]:
        """Run cells again, with all of their tests. Returns the records of all cells."""
        names = ", ".join(f"{cell.target}/{cell.suite}" for cell in again)
        self.bench.progress.say(f"{names}: what differs was not entered as before, so that all tests run")
        for cell in again:
            shutil.rmtree(self.request.run / cell.target / cell.suite)
        selection.run_whole(again)
        new = self._run_cells(again, prepared, specs, CellCount(len(again)), server)
        by_cell = {(one.target, one.suite): one for one in [*records, *new]}
        return list(by_cell.values())

    def _run_cells(
        self, planned: Sequence[Cell], prepared: PreparedRun, specs: CellSpecs, cells: CellCount, server: ForkServer
    ) -> list[CellRecord]:
        def run(cell: Cell) -> CellRecord:
            if self._failed_cell and cell.suite != CANARY_SUITE:
                why = f"a test of {self._failed_cell} failed before"
                return CellRecord(target=cell.target, suite=cell.suite, seconds=0, problem=why, problem_kind="absent")
            with cells.running(cell):
                record = self._run_cell(cell, prepared, specs, server)
            if self.one_failure and record.status == TESTS_FAILED:
                self._failed_cell = f"{cell.target}/{cell.suite}"
            self.bench.refuse_damage()
            return record

        def io_bound(cell: Cell) -> bool:
            # A machine of the kernel tier takes memory and processor time even while its programs wait.
            return self.bench.catalog.suites[cell.suite].io_bound and prepared.targets[cell.target].machine is None

        return side_by_side(planned, run, io_bound=io_bound, jobs=self.request.jobs)

    def _run_cell(self, cell: Cell, prepared: PreparedRun, specs: CellSpecs, server: ForkServer) -> CellRecord:
        suite = self.bench.catalog.suites[cell.suite]
        target = prepared.targets[cell.target]
        if (missing := specs.missing(cell)) is not None:
            return missing
        spec = specs.of(cell)
        if spec.units is not None and (why := why_none(spec.units)):
            return CellRecord(target=cell.target, suite=cell.suite, seconds=0, problem=why, problem_kind="absent")
        record = msgspec.structs.replace(self._run_sealed(spec, server), left_out=specs.left_out(cell))
        if record.problem_kind == "absent":
            return record
        if spec.units is not None and spec.units.broken and not record.problem:
            record = msgspec.structs.replace(record, problem=_broken(spec.units), problem_kind="units")
        can_audit = target.target.emulator.can_audit and not rules.is_audit(self.request.policy)
        # An audit would run hours of tests again, to show what the other suites' audits show as well.
        if (
            suite.needs_server
            and not suite.upstream
            and can_audit
            and not self.request.fail_fast
            and _died_misaligned(spec.folder)
        ):
            audit = self._run_sealed(_audit_of(spec), server)
            record = msgspec.structs.replace(record, audit=audit.problem or "done", audit_seal=audit.seal)
        return record

    def _run_sealed(self, spec: CellSpec, server: ForkServer) -> CellRecord:
        """Run a cell and seal its evidence, so that a later change of it is noticed."""
        record = run_cell(spec, self.bench.progress, fail_fast=self.request.fail_fast, server=server)
        return msgspec.structs.replace(record, seal=evidence_seal.seal(spec.folder))

    def _record(self, prepared: PreparedRun, records: list[CellRecord]) -> RunRecord:
        catalog, request, tree = self.bench.catalog, self.request, prepared.tree
        oracle = catalog.targets[ORACLE]
        machines = {oracle.name: oracle, **{name: each.target for name, each in prepared.targets.items()}}
        # The oracle may crash too, and as a rule is not among the targets.
        builds: dict[str, Build | None] = {name: peer.build for name, peer in prepared.peers.items()}
        builds |= {name: each.build for name, each in prepared.targets.items()}
        is_release = request.server in catalog.servers
        return RunRecord(
            server=_server_name(request.server, tree, is_release=is_release),
            family=tree.family,
            policy=request.policy,
            optimisation="" if tree.package else request.optimisation,
            emulator=request.emulator,
            seed=request.seed,
            targets=request.plan.targets,
            suites=request.plan.suites,
            binaries={name: str(build.server_binary) for name, build in builds.items() if build},
            triples={name: catalog.toolchain_of(machine).prefix for name, machine in machines.items()},
            machines=machines,
            stages=self.bench.progress.stages,
            cells=records,
            allocator=request.allocator,
            toolchain=catalog.family,
            environment=request.environment,
            io=request.io,
            tests=request.tests,
            tier=request.tier,
            release=".".join(map(str, tree.version)),
            development=tree.development,
            warnings=request.warnings,
            mixed=request.mixed,
            target_clients=request.target_clients,
            beside=unchecked_changes.digests(request.run),
            policies=rules.recorded_policies(catalog.policies, request.policy, machines.values()),
            source=archive_name(tree.name, tree.digest) if is_release else "",
            settings=request.settings,
            revision="" if is_release else revision_of(tree.path),
        )


def _refuse_for_package(catalog: Catalog, request: Request) -> None:
    """Raise UsageError where a distribution's package is not what the options describe."""
    compiled = {
        "--toolchain": catalog.family != DEFAULT_FAMILY,
        "--allocator": request.allocator != "libc",
        "--optimisation": request.optimisation != DEFAULT_OPTIMISATION,
        "--cflags, --make": bool(request.settings.words),
    }
    for option, given in compiled.items():
        if given:
            raise UsageError(
                f"{option} says how a server is compiled, and {request.server} is a package",
                where=option,
                remedy=f"leave it out; or --server {next(iter(catalog.servers))}",
            )
    for target in (catalog.targets[name] for name in request.plan.targets):
        if target.emulator.has_kernel or target.emulator.detector or target.time_bits > target.width_bits:
            raise UsageError(
                f"{target.name} runs what is compiled for it, and {request.server} is a package",
                where="--target",
                remedy="docs/howto/packages.md lists the targets that have packages",
            )
        debian_architecture(catalog.toolchain_of(target), target)


def _server_name(name: str, tree: SourceTree, *, is_release: bool) -> str:
    """What `--server` would take to have the same server again."""
    if tree.package is not None:
        return tree.package.title
    return name if is_release else str(tree.path)


def _audit_of(spec: CellSpec) -> CellSpec:
    """The same cell with every forbidden access let through: it shows what the first crash hides."""
    peers = {name: msgspec.structs.replace(peer, runner=_audited(peer.runner)) for name, peer in spec.peers.items()}
    return msgspec.structs.replace(
        spec,
        runner=_audited(spec.runner),
        peers=peers,
        folder=spec.folder / run_folder.AUDIT,
        # It learns nothing: under an audit, a stream that kills a server looks like any other.
        corpus=None,
        execution=None,
    )


def _audited(runner: Runner) -> Runner:
    policy = rules.audited(runner.policy)
    return msgspec.structs.replace(runner, policy=policy, options=with_alignment(runner.options, policy))


def _broken(units: Units) -> str:
    """Which units were not called because the project's drivers for them do not compile."""
    by_error: dict[str, list[str]] = {}
    for name, error in units.broken.items():
        by_error.setdefault(error, []).append(name)
    reasons = "; ".join(f"{', '.join(names)}: {error}" for error, names in by_error.items())
    return f"{len(units.broken)} units do not compile, and were not run: {reasons}"


def _died_misaligned(folder: Path) -> bool:
    """Whether a misaligned access raised a signal in one of a cell's guests."""
    logs = [*folder.glob("guest-*/faults.jsonl"), *folder.glob(f"{run_folder.PEERS}/*/guest-*/faults.jsonl")]
    return any(
        fault_log.is_misaligned(fault) and fault.event == "fault"
        for log in logs
        for fault in fault_log.read_faults(log)
    )
