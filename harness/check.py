"""The main job: prepare (set-up, fetch, emulators, builds), run every cell, judge. Evidence first, judgement last."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness import alignment, canary, doctor, events, initramfs, process, source
from harness.allocator import refuse_nonsense
from harness.build import Builder, BuildFailedError
from harness.cell import CellSpec, Peer, Tier, write_cell
from harness.detector_canary import compile_detector_canary
from harness.emulator import Emulators, Flavour, Runner, native_runner, with_alignment
from harness.errors import ExitCode, InfrastructureError, UsageError
from harness.events import CellRecord, RunRecord
from harness.fetch import Fetcher
from harness.kernel import Kernels
from harness.load import ROOT, select
from harness.loadable import build_module
from harness.machine_guest import CANARY, SERVER, PreparedMachine
from harness.model import Allocator, Noun, Program
from harness.plan import Plan, make_plan
from harness.runs import conclude
from harness.selftests import build_program, why_none, without_native_faults
from harness.snapshot import snapshot
from harness.unit_run import PLACES
from harness.units import Units  # noqa: TC001 - msgspec reads the annotations when it decodes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.console import Progress
    from harness.judge import Judgement
    from harness.load import Catalog
    from harness.model import Build, Server, SourceTree, Suite, Target, Toolchain
    from harness.store import Store

CELL_SECONDS = {"quick": 420.0, "full": 1500.0, "thorough": 5400.0, "kernel": 1500.0}
"""Deadline of a cell, by tier: a target that faults for ever is ended, not waited for."""
MARGIN_SECONDS = 300.0
"""What a cell that was given a time may take beyond it: a failure found at the end is still made small."""


class Request(Noun, frozen=True):
    """What the user asked for."""

    targets: list[str]
    server: str
    suites: list[str]
    tier: Tier
    policy: str
    optimisation: str
    emulator: Flavour
    jobs: int
    seed: int
    offline: bool
    install: bool
    known: Path
    run: Path
    allocator: Allocator = "libc"
    fail_fast: bool = False
    """A cell ends with its first failed test, and no audit follows."""
    limit_seconds: float | None = None
    """How long suites that can go on for ever should; None: as long as the tier says."""
    limit_count: int | None = None
    """How many examples they should try; None: as many as the tier says."""
    learns: bool = False
    """Whether they keep what they learn in the cache, and begin with it: then a seed does not say all."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A target with all that its cells need, or why it has none."""

    target: Target
    runner: Runner
    build: Build | None
    problem: str = ""
    machine: PreparedMachine | None = None
    units: dict[Program, Units] = {}
    module: Path | None = None


class Check:
    """One run of the main job."""

    def __init__(self, catalog: Catalog, store: Store, progress: Progress, request: Request) -> None:
        self.catalog = catalog
        self.progress = progress
        self.request = request
        self.store = store
        self.fetcher = Fetcher(store, progress, offline=request.offline)
        self.builder = Builder(store, progress)

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
            alignment.policy_for(self.catalog.policies, self.request.policy, self.catalog.targets[name])
            refuse_nonsense(self.request.allocator, self.catalog.targets[name])
        diagnosis = doctor.diagnose(self.catalog, plan.targets, emulator=self.request.emulator)
        doctor.mend(diagnosis, self.progress, install=self.request.install)
        tree = open_server(self.catalog, self.fetcher, self.request.server)
        prepared = self._prepare(plan, tree)
        peers = self._peers(plan, tree, prepared)
        self.request.run.mkdir(parents=True, exist_ok=True)
        before = os.getloadavg()[0]
        with (
            self.progress.stage("suites", f"running {len(plan.cells)} cells, {self.request.jobs} targets at a time"),
            tempfile.TemporaryDirectory(prefix="plumbline-") as sockets,
        ):
            records = self._run_cells(plan, tree, prepared, peers, Path(sockets))
        record = self._record(plan, tree, prepared, records)
        record = msgspec.structs.replace(record, load=(round(before, 2), round(os.getloadavg()[0], 2)))
        events.write_run(self.request.run, record)
        return conclude(self.request.run, self.request.known, self.progress, tree=tree.path)

    def _prepare(self, plan: Plan, tree: SourceTree) -> dict[str, Prepared]:
        emulators = Emulators(self.store, self.fetcher, self.progress, flavour=self.request.emulator)
        targets = [self.catalog.targets[name] for name in plan.targets]
        programs = emulators.prepare([target.emulator for target in targets])

        def prepare(target: Target) -> Prepared:
            tools = self.catalog.toolchain_of(target)
            policy = alignment.policy_for(self.catalog.policies, self.request.policy, target)
            runner = emulators.runner(target, tools, policy, programs)
            built_for = self.catalog.targets[alignment.userland(target)]
            try:
                # First: what compiles the server for units leaves it in the cache.
                units = self._programs(plan, tree, built_for)
                build = self.builder.build(tree, built_for, tools, self.request.optimisation, self.request.allocator)
            except BuildFailedError as error:
                self.progress.say(str(error))
                return Prepared(target=target, runner=runner, build=None, problem=f"{error.what}: {error.because}")
            module = self._module(plan, tree, built_for, tools)
            machine = self._machine(target, runner, build, units)
            return Prepared(target=target, runner=runner, build=build, machine=machine, units=units, module=module)

        with ThreadPoolExecutor(self.request.jobs) as pool:
            return {one.target.name: one for one in pool.map(prepare, targets)}

    def _module(self, plan: Plan, tree: SourceTree, target: Target, tools: Toolchain) -> Path | None:
        """The module that servers load, where a suite has one."""
        wanted = any(self.catalog.suites[name].needs_module for name in plan.suites)
        return build_module(self.store, tree, target, tools) if wanted else None

    def _programs(self, plan: Plan, tree: SourceTree, target: Target) -> dict[Program, Units]:
        """What the plan's suites run instead of a server."""
        kinds = dict.fromkeys(suite.program for name in plan.suites if (suite := self.catalog.suites[name]).program)
        tools = self.catalog.toolchain_of(target)
        return {
            kind: build_program(kind, self.builder, tree, target, tools, self.request.optimisation) for kind in kinds
        }

    def _machine(
        self, target: Target, runner: Runner, build: Build, units: Mapping[Program, Units]
    ) -> PreparedMachine | None:
        """The emulated computer of a target of the kernel tier: kernel, root file system, and its state after boot."""
        if target.emulator.kind != "system":
            return None
        tools = self.catalog.toolchain_of(target)
        programs = {SERVER: build.server_binary, CANARY: canary.compile_canary(self.store, target, tools)}
        programs |= {PLACES[kind]: one.program for kind, one in units.items() if one.program is not None}
        return prepare_machine(
            self.catalog, self.store, self.fetcher, self.progress, target, programs, mode=runner.policy.mode
        )

    def _run_cells(
        self, plan: Plan, tree: SourceTree, prepared: dict[str, Prepared], peers: dict[str, Peer], sockets: Path
    ) -> list[CellRecord]:
        def run_target(name: str) -> list[CellRecord]:
            return [self._run_cell(prepared[name], suite, tree, peers, sockets) for suite in plan.suites]

        with ThreadPoolExecutor(self.request.jobs) as pool:
            return [record for records in pool.map(run_target, plan.targets) for record in records]

    def _peers(self, plan: Plan, tree: SourceTree, prepared: dict[str, Prepared]) -> dict[str, Peer]:
        """The servers that cells start beside their own; a machine of the kernel tier is nobody's peer.

        Without `native`, the oracle, where the tree does not compile for this machine.
        """
        found = {
            name: Peer(runner=one.runner, build=one.build, module=one.module, selftests=one.units.get("selftests"))
            for name, one in prepared.items()
            if one.build is not None and one.target.emulator.kind != "system"
        }
        native = self.catalog.targets["native"]
        try:
            oracle = self.builder.build(tree, native, self.catalog.toolchain_of(native), self.request.optimisation)
        except BuildFailedError as error:
            self.progress.say(str(error))
            return found
        oracle_runner = native_runner(self.catalog)
        module = self._module(plan, tree, native, self.catalog.toolchain_of(native))
        selftests = self._programs(plan, tree, native).get("selftests")
        peer = Peer(runner=oracle_runner, build=oracle, module=module, selftests=selftests)
        return {native.name: peer, **found}

    def _run_cell(
        self,
        prepared: Prepared,
        suite: str,
        tree: SourceTree,
        peers: dict[str, Peer],
        sockets: Path,
    ) -> CellRecord:
        target = prepared.target.name
        needs_server, guided = self.catalog.suites[suite].needs_server, self.catalog.suites[suite].guided
        if needs_server and prepared.build is None:
            return CellRecord(target=target, suite=suite, seconds=0, problem=prepared.problem, problem_kind="build")
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
            build=prepared.build,
            canary=None if needs_server else canary.compile_canary(self.store, prepared.target, tools),
            detector_canary=None if needs_server else compile_detector_canary(self.store, prepared.target, tools),
            seed=self.request.seed,
            tier=self.request.tier,
            machine=prepared.machine,
            coverage=guided and self.request.tier == "thorough" and prepared.runner.reports_edges,
            peers=peers,
            units=_units_of(self.catalog.suites[suite], prepared, peers),
            module=prepared.module,
            limit_seconds=self.request.limit_seconds,
            limit_count=self.request.limit_count,
            corpus=self.store.path("corpus", f"{tree.name}-{target}") if self.request.learns else None,
        )
        if spec.units is not None and (why := why_none(spec.units)):
            return CellRecord(target=target, suite=suite, seconds=0, problem=why, problem_kind="absent")
        record = self._run_spec(spec)
        if spec.units is not None and spec.units.broken and not record.problem:
            record = msgspec.structs.replace(record, problem=_broken(spec.units), problem_kind="units")
        can_audit = prepared.target.emulator.kind == "user" and not alignment.is_audit(self.request.policy)
        if needs_server and can_audit and not self.request.fail_fast and _died_misaligned(folder):
            audit = self._run_spec(self._audit_of(spec))
            record = msgspec.structs.replace(record, audit=audit.problem or "done")
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
            environment=process.environment_with(LC_ALL="C.UTF-8", PYTHONDONTWRITEBYTECODE="1"),
            watch=(lambda: self._tell(f"{target}/{spec.suite}", folder / events.PROGRESS))
            if self.request.limit_seconds
            else None,
        )
        problem = cell_problem(result, folder)
        what = " (audit)" if folder.name == events.AUDIT else ""
        self.progress.say(f"{target}/{spec.suite}{what}: {_last_line(result.text)}")
        return CellRecord(
            target=target,
            suite=spec.suite,
            seconds=round(result.seconds, 2),
            problem=problem,
            problem_kind="deadline" if result.expired else "crash" if problem else "",
        )

    def _tell(self, cell: str, progress: Path) -> None:
        """How far a suite has come that says so."""
        if progress.is_file():
            self.progress.say(f"{cell}: {progress.read_text('utf-8')}")

    def _audit_of(self, spec: CellSpec) -> CellSpec:
        """The same cell with every forbidden access let through: what the first crash hides."""
        peers = {name: Peer(runner=_audited(peer.runner), build=peer.build) for name, peer in spec.peers.items()}
        runner = _audited(spec.runner)
        # It learns nothing: a stream that kills is as good as another here.
        folder = spec.folder / events.AUDIT
        return msgspec.structs.replace(spec, runner=runner, peers=peers, folder=folder, corpus=None)

    def _record(
        self, plan: Plan, tree: SourceTree, prepared: dict[str, Prepared], records: list[CellRecord]
    ) -> RunRecord:
        ready = list(prepared.values())
        native = self.catalog.targets["native"]
        return RunRecord(
            server=self.request.server if self.request.server in self.catalog.servers else str(tree.path),
            family=tree.family,
            policy=self.request.policy,
            optimisation=self.request.optimisation,
            emulator=self.request.emulator,
            seed=self.request.seed,
            targets=plan.targets,
            suites=plan.suites,
            binaries={one.target.name: str(one.build.server_binary) for one in ready if one.build},
            triples={one.target.name: self.catalog.toolchain_of(one.target).triple for one in ready},
            machines={native.name: native, **{one.target.name: one.target for one in ready}},
            stages=self.progress.stages,
            cells=records,
            allocator=self.request.allocator,
        )


def _audited(runner: Runner) -> Runner:
    policy = alignment.audited(runner.policy)
    return msgspec.structs.replace(runner, policy=policy, options=with_alignment(runner.options, policy))


def _units_of(suite: Suite, prepared: Prepared, peers: Mapping[str, Peer]) -> Units | None:
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
    logs = [*folder.glob("guest-*/faults.jsonl"), *folder.glob(f"{events.PEERS}/*/guest-*/faults.jsonl")]
    return any(
        events.is_misaligned(fault) and fault.event == "fault" for log in logs for fault in events.read_faults(log)
    )


def pytest_command(suite: str, cell: Path) -> list[str | Path]:
    """The command that runs one cell; a person may type it as well."""
    options = ["-q", "--tb=short", "--no-header", "-p", "no:cacheprovider", "--import-mode=importlib"]
    return [sys.executable, "-m", "pytest", ROOT / "suites" / suite, "--plumb-cell", cell, *options]


def cell_problem(result: process.Result, folder: Path) -> str:
    """Why a cell's process gives no trustworthy end; empty when pytest said passed (0) or failed (1)."""
    if result.code == ExitCode.INFRASTRUCTURE and (folder / events.PROBLEM).is_file():
        return (folder / events.PROBLEM).read_text("utf-8").strip().removeprefix("error: ")
    if result.expired:
        return f"it did not end within {result.seconds:.0f} s"
    if result.code in {0, 1}:
        return ""
    return f"its test process ended with status {result.code}: {_last_line(result.text)}"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return re.sub(r"^=+ | =+$", "", lines[-1]) if lines else "no output"


def prepare_machine(
    catalog: Catalog,
    store: Store,
    fetcher: Fetcher,
    progress: Progress,
    target: Target,
    programs: Mapping[str, Path],
    *,
    mode: int | None,
    counted: bool = False,
) -> PreparedMachine:
    """Kernel and root file system with programs (guest path -> file), and a saved state to go on from.

    A machine whose instructions are counted has none: it boots.
    Raises InfrastructureError when something of it cannot be made.
    """
    spec = catalog.kernels[target.emulator.machine]
    kernel_tools = catalog.toolchains[spec.toolchain]
    kernel = Kernels(store, fetcher, progress).build(spec, kernel_tools)
    places = initramfs.with_libraries(programs, catalog.toolchain_of(target))
    archive = initramfs.assemble(
        store, initramfs.compile_init(store, kernel_tools), places, memory_bytes=spec.machine.memory_mib << 20
    )
    state = None
    if spec.machine.snapshots and not counted:
        with progress.stage("boot", f"booting {spec.name}"), tempfile.TemporaryDirectory(prefix="plumb-") as short:
            state = snapshot(store, kernel, archive, sockets=Path(short))
    return PreparedMachine(
        kernel=kernel,
        initramfs=archive,
        snapshot=state,
        mode=mode if alignment.has_switch(target) else None,
        counted=counted,
    )


def machine_target(catalog: Catalog, name: str) -> Target:
    """A target of the kernel tier. Raises UsageError for one without a kernel of its own."""
    target = catalog.targets[name]
    if target.emulator.kind != "system":
        raise UsageError(f"{name} has no kernel of its own", where="--target", remedy="--target kernel")
    return target


def known_server(catalog: Catalog, name: str) -> Server | Path:
    """A release by name, or the path of a tree. Raises UsageError for what is neither, before any work is done."""
    path = Path(name).expanduser()
    if name not in catalog.servers and (path.exists() or os.sep in name):
        return source.open_tree(path, digest="not needed yet").path
    chosen = select("server", [name], catalog.servers)
    if len(chosen) > 1:
        raise UsageError(
            f"'{name}' names {len(chosen)} servers", where="--server", remedy="one of: " + ", ".join(chosen)
        )
    return catalog.servers[chosen[0]]


def open_server(catalog: Catalog, fetcher: Fetcher, name: str) -> SourceTree:
    """The tree of a release, fetched if need be, or of a path. Raises UsageError for what is neither."""
    known = known_server(catalog, name)
    return source.open_tree(known) if isinstance(known, Path) else fetcher.server(known)


def stored_tree(catalog: Catalog, store: Store, folder: Path, progress: Progress) -> Path | None:
    """The source that a stored run was made of, if the cache has it. A path's may have changed since: it has none."""
    server = catalog.servers.get(events.read_run(folder).server)
    try:
        return Fetcher(store, progress, offline=True).server(server).path if server else None
    except InfrastructureError:
        return None
