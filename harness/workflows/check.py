"""The main job: prepare, run every cell in a process of its own, judge. Evidence first, judgement last."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.build import host_packages
from harness.build.allocator import check_supported
from harness.build.qemu_user import Runner, with_alignment
from harness.build.sources.archives import Fetcher, archive_name
from harness.build.sources.server_tree import open_server
from harness.build.unit_drivers import Units  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.core.errors import ExitCode, InfrastructureError
from harness.core.processes import environment, process
from harness.core.strict_toml import ROOT
from harness.isa import rules
from harness.judge import unchecked_changes
from harness.judge.conclusion import conclude
from harness.plan.plan import Plan, make_plan
from harness.record import evidence_seal, fault_log, run_folder, stored_run
from harness.record.run_folder import CellRecord, RunRecord
from harness.run import canary
from harness.run.cell_spec import CellSpec, PeerServer, write_cell
from harness.run.detector_canary import compile_detector_canary
from harness.run.scheduler import side_by_side
from harness.run.selftests import why_none, without_native_faults
from harness.workflows.target_setup import Preparation, PreparedTarget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.core.cache import Cache
    from harness.core.model import Cell, SourceTree, Suite
    from harness.core.progress import Progress
    from harness.judge.findings import Judgement
    from harness.plan.catalog import Catalog
    from harness.plan.request import Request
    from harness.record.run_folder import ProblemKind

CELL_SECONDS = {"quick": 420.0, "full": 1500.0, "thorough": 5400.0, "kernel": 1500.0}
"""Deadline of a cell, by tier: a target that faults for ever is ended, not waited for."""
NO_TESTS_COLLECTED = 5
"""pytest.ExitCode's; importing pytest for it would cost every command some time."""
MARGIN_SECONDS = 300.0
"""What a cell that was given a time may take beyond it: a failure found at the end is still made small."""


class Check:
    """One run of the main job."""

    def __init__(self, catalog: Catalog, store: Cache, progress: Progress, request: Request) -> None:
        self.catalog = catalog
        self.progress = progress
        self.request = request
        self.store = store
        self.fetcher = Fetcher(store, progress, offline=request.offline)

    @cached_property
    def tree(self) -> SourceTree:
        """The server's, opened when it is first asked for. Raises UsageError for what is no server."""
        return open_server(self.catalog, self.fetcher, self.request.server)

    def run(self) -> tuple[Judgement, ExitCode]:
        """Everything, from plan to judgement. Raises PlumblineError for what is not the server's fault."""
        plan = make_plan(
            self.catalog,
            targets=self.request.targets,
            server=self.request.server,
            suites=self.request.suites,
            tier=self.request.tier,
        )
        for name in plan.targets:
            rules.policy_for(self.catalog.policies, self.request.policy, self.catalog.targets[name])
            check_supported(self.request.allocator, self.catalog.targets[name])
        diagnosis = host_packages.diagnose(self.catalog, plan.targets, emulator=self.request.emulator)
        host_packages.install_missing(diagnosis, self.progress, install=self.request.install)
        tree = self.tree
        preparation = Preparation(self.catalog, self.store, self.progress, self.fetcher, self.request, plan)
        prepared = preparation.targets(tree)
        peers = preparation.peers(tree, prepared)
        if "native" not in peers:
            prepared = preparation.blamed(tree, prepared)
        self.request.run.mkdir(parents=True, exist_ok=True)
        preparation.warnings(tree, prepared)
        # A run that is killed has its plan: what it did not come to is UNKNOWN to whoever judges it.
        run_folder.write_run(self.request.run, self._record(plan, tree, prepared, peers, []))
        before = os.getloadavg()[0]
        with (
            self.progress.stage("suites", f"running {len(plan.cells)} cells, {self.request.jobs} at a time"),
            tempfile.TemporaryDirectory(prefix="plumbline-") as sockets,
        ):
            records = self._run_cells(plan, tree, prepared, peers, Path(sockets))
        self._refuse_damage(read_again=True)
        record = self._record(plan, tree, prepared, peers, records)
        record = msgspec.structs.replace(record, load=(round(before, 2), round(os.getloadavg()[0], 2)))
        run_folder.write_run(self.request.run, record)
        stored = stored_run.read(self.request.run)
        return conclude(stored, self.request.known, self.progress, tree=tree.content, made_here=True)

    def _refuse_damage(self, *, read_again: bool = False) -> None:
        """Raise InfrastructureError where what has run is not what was built: nothing of it says anything."""
        if damaged := self.store.damage(read_again=read_again):
            raise InfrastructureError(
                "the cache was damaged while the run used it",
                where=str(self.store.root),
                because="\n".join(damaged),
                remedy="run again: what is damaged is made anew",
            )

    def _run_cells(
        self,
        plan: Plan,
        tree: SourceTree,
        prepared: dict[str, PreparedTarget],
        peers: dict[str, PeerServer],
        sockets: Path,
    ) -> list[CellRecord]:
        def run(cell: Cell) -> CellRecord:
            record = self._run_cell(prepared[cell.target], cell.suite, tree, peers, sockets)
            self._refuse_damage()
            return record

        def io_bound(cell: Cell) -> bool:
            # An emulated computer takes memory, and its processor's time, whatever its programs do.
            return self.catalog.suites[cell.suite].io_bound and prepared[cell.target].machine is None

        return side_by_side(plan.cells, run, io_bound=io_bound, jobs=self.request.jobs)

    def _run_cell(
        self,
        prepared: PreparedTarget,
        suite: str,
        tree: SourceTree,
        peers: dict[str, PeerServer],
        sockets: Path,
    ) -> CellRecord:
        target = prepared.target.name
        chosen = self.catalog.suites[suite]
        needs_server, guided = chosen.needs_server, chosen.guided
        if tree.version < chosen.since:
            why = f"what it tests came with release {'.'.join(map(str, chosen.since))}"
            return CellRecord(target=target, suite=suite, seconds=0, problem=why, problem_kind="absent")
        if needs_server and prepared.build is None:
            kind: ProblemKind = "crash" if prepared.blameless else "build"
            return CellRecord(target=target, suite=suite, seconds=0, problem=prepared.problem, problem_kind=kind)
        if needs_server and "native" not in peers:
            why = f"{tree.name} does not compile for this machine, and without the oracle nothing is compared"
            return CellRecord(target=target, suite=suite, seconds=0, problem=why, problem_kind="crash")
        folder = self.request.run / target / suite
        tools = self.catalog.toolchain_of(prepared.target)
        spec = CellSpec(
            suite=suite,
            folder=folder,
            shared=self.request.run / "shared",
            sockets=sockets,
            runner=prepared.runner,
            version=tree.version,
            development=bool(tree.development),
            build=prepared.build,
            canary=None if needs_server else canary.compile_canary(self.store, prepared.target, tools),
            detector_canary=None if needs_server else compile_detector_canary(self.store, prepared.target, tools),
            seed=self.request.seed,
            tier=self.request.tier,
            machine=prepared.machine,
            coverage=guided and self.request.tier == "thorough" and prepared.runner.reports_edges,
            peers=peers,
            units=_units_of(chosen, prepared, peers),
            module=prepared.module,
            # Without its canary a machine proves nothing, whatever is looked for.
            tests=self.request.tests if needs_server else [],
            limit_seconds=self.request.limit_seconds,
            limit_count=self.request.limit_count,
            corpus=self.store.path("corpus", f"{tree.name}-{target}") if self.request.learns else None,
        )
        if spec.units is not None and (why := why_none(spec.units)):
            return CellRecord(target=target, suite=suite, seconds=0, problem=why, problem_kind="absent")
        record = self._run_spec(spec)
        record = msgspec.structs.replace(record, seal=evidence_seal.seal(folder))
        if record.problem_kind == "absent":
            return record
        if spec.units is not None and spec.units.broken and not record.problem:
            record = msgspec.structs.replace(record, problem=_broken(spec.units), problem_kind="units")
        can_audit = prepared.target.emulator.can_audit and not rules.is_audit(self.request.policy)
        if needs_server and can_audit and not self.request.fail_fast and _died_misaligned(folder):
            audited = self._audit_of(spec)
            audit = self._run_spec(audited)
            sealed = evidence_seal.seal(audited.folder)
            record = msgspec.structs.replace(record, audit=audit.problem or "done", audit_seal=sealed)
        return record

    def _run_spec(self, spec: CellSpec) -> CellRecord:
        """One cell in a process of its own."""
        target = spec.runner.target.name
        folder = spec.folder
        folder.mkdir(parents=True)
        write_cell(folder / "cell.json", spec)
        result = process.run(
            [*pytest_command(spec.suite, folder / "cell.json"), *(["--exitfirst"] if self.request.fail_fast else [])],
            deadline_seconds=max(CELL_SECONDS[self.request.tier], (self.request.limit_seconds or 0) + MARGIN_SECONDS),
            log=folder / "pytest.log",
            folder=ROOT,
            environment=environment.for_cell(),
            watch=(lambda: self._tell(f"{target}/{spec.suite}", folder / run_folder.PROGRESS))
            if self.request.limit_seconds
            else None,
        )
        problem = cell_problem(result, folder)
        kind: ProblemKind = "deadline" if result.expired else "crash" if problem else ""
        if spec.tests and result.code == NO_TESTS_COLLECTED:
            problem, kind = f"none of its tests fits --test {' '.join(spec.tests)}", "absent"
        what = " (audit)" if folder.name == run_folder.AUDIT else ""
        self.progress.say(f"{target}/{spec.suite}{what}: {_last_line(result.text)}")
        return CellRecord(
            target=target,
            suite=spec.suite,
            seconds=round(result.seconds, 2),
            problem=problem,
            problem_kind=kind,
            status=result.code,
        )

    def _tell(self, cell: str, progress: Path) -> None:
        """How far a suite has come that says so."""
        if progress.is_file():
            self.progress.say(f"{cell}: {progress.read_text('utf-8')}")

    def _audit_of(self, spec: CellSpec) -> CellSpec:
        """The same cell with every forbidden access let through: what the first crash hides."""
        peers = {name: msgspec.structs.replace(peer, runner=_audited(peer.runner)) for name, peer in spec.peers.items()}
        runner = _audited(spec.runner)
        # It learns nothing: a stream that kills is as good as another here.
        folder = spec.folder / run_folder.AUDIT
        return msgspec.structs.replace(spec, runner=runner, peers=peers, folder=folder, corpus=None)

    def _record(
        self,
        plan: Plan,
        tree: SourceTree,
        prepared: dict[str, PreparedTarget],
        peers: dict[str, PeerServer],
        records: list[CellRecord],
    ) -> RunRecord:
        native = self.catalog.targets["native"]
        machines = {native.name: native, **{name: one.target for name, one in prepared.items()}}
        # The oracle may end badly as well, and is no target as a rule.
        builds = {name: one.build for name, one in peers.items()} | {name: one.build for name, one in prepared.items()}
        is_release = self.request.server in self.catalog.servers
        return RunRecord(
            server=self.request.server if is_release else str(tree.path),
            family=tree.family,
            policy=self.request.policy,
            optimisation=self.request.optimisation,
            emulator=self.request.emulator,
            seed=self.request.seed,
            targets=plan.targets,
            suites=plan.suites,
            binaries={name: str(build.server_binary) for name, build in builds.items() if build},
            triples={name: self.catalog.toolchain_of(machine).triple for name, machine in machines.items()},
            machines=machines,
            stages=self.progress.stages,
            cells=records,
            allocator=self.request.allocator,
            tests=self.request.tests,
            development=tree.development,
            warnings=self.request.warnings,
            beside=unchecked_changes.digests(self.request.run),
            policies=rules.recorded_policies(self.catalog.policies, self.request.policy, machines.values()),
            source=archive_name(tree.name, tree.digest) if is_release else "",
        )


def _audited(runner: Runner) -> Runner:
    policy = rules.audited(runner.policy)
    return msgspec.structs.replace(runner, policy=policy, options=with_alignment(runner.options, policy))


def _units_of(suite: Suite, prepared: PreparedTarget, peers: Mapping[str, PeerServer]) -> Units | None:
    """What a suite runs instead of a server."""
    units = prepared.units[suite.program] if suite.program else None
    native = peers["native"].selftests if "native" in peers else None
    # What does not compile for this machine either is no target's fault, and this machine's as a target.
    if units is None or native is None or suite.program != "selftests" or prepared.target.name == "native":
        return units
    return without_native_faults(units, native)


def _broken(units: Units) -> str:
    """What of a server was not called, because drivers of ours do not fit it."""
    by_error: dict[str, list[str]] = {}
    for name, error in units.broken.items():
        by_error.setdefault(error, []).append(name)
    told = "; ".join(f"{', '.join(names)}: {error}" for error, names in by_error.items())
    return f"{len(units.broken)} units do not compile, and were not run: {told}"


def _died_misaligned(folder: Path) -> bool:
    """Whether a misaligned access raised a signal in one of a cell's guests."""
    logs = [*folder.glob("guest-*/faults.jsonl"), *folder.glob(f"{run_folder.PEERS}/*/guest-*/faults.jsonl")]
    return any(
        fault_log.is_misaligned(fault) and fault.event == "fault"
        for log in logs
        for fault in fault_log.read_faults(log)
    )


def pytest_command(suite: str, cell: Path) -> list[str | Path]:
    """The command that runs one cell; a person may type it as well, while the run goes on.

    Python is isolated (-I): no PYTHON* variable, nothing of the user's site, no module of the folder at hand. What
    configures pytest is named, so that no file above ours does.
    """
    configuration: list[str | Path] = ["--config-file", ROOT / "pyproject.toml", "--rootdir", ROOT]
    options = ["-q", "--tb=short", "--no-header", "-p", "no:cacheprovider", "--import-mode=importlib"]
    # No suite uses other people's plugins, which are a quarter of what a short cell costs.
    options.append("--disable-plugin-autoload")
    pytest: list[str | Path] = [sys.executable, "-I", "-B", "-m", "pytest"]
    return [*pytest, ROOT / "suites" / suite, "--plumb-cell", cell, *configuration, *options]


def cell_problem(result: process.Result, folder: Path) -> str:
    """Why a cell's process gives no trustworthy end; empty when pytest said passed (0) or failed (1)."""
    if result.code == ExitCode.INFRASTRUCTURE and (folder / run_folder.PROBLEM).is_file():
        return (folder / run_folder.PROBLEM).read_text("utf-8").strip().removeprefix("error: ")
    if result.expired:
        return f"it did not end within {result.seconds:.0f} s"
    if result.code in {0, 1}:
        return ""
    return f"its test process ended with status {result.code}: {_last_line(result.text)}"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return re.sub(r"^=+ | =+$", "", lines[-1]) if lines else "no output"
