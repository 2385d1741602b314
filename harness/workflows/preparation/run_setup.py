"""Sets a run up before its first cell: every target of the plan with its builds, and the servers that cells compare.

A tree that does not compile for a target is a result and not an error: the target's cells then say why they did not
run.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING

import msgspec

from harness.build.emulators.runner import Runner  # noqa: TC001 - msgspec reads the annotations
from harness.build.sources import openssl
from harness.build.sources.server_package import PackageUnavailableError
from harness.build.workshop import build_warnings
from harness.build.workshop.build_failure import BuildFailedError
from harness.core.errors import InconclusiveError
from harness.core.target_model import DEFAULT_FAMILY, ORACLE
from harness.judge import warning_findings
from harness.plan.plan import TIERS
from harness.record import compiler_warnings
from harness.record.compiler_warnings import CompilerReport
from harness.run.cell_spec import PeerServer
from harness.run.upstream.test_files import has_tests, selected, upstream_files
from harness.workflows.target_setup import oracle_setup, set_up_targets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.build.unit_drivers import Units
    from harness.core.model import Allocator, Build, Program, SourceTree, Suite
    from harness.core.target_model import Target
    from harness.plan.request import Request
    from harness.run.vm.vm_image import VmImage
    from harness.workflows.target_setup import TargetSetup
    from harness.workflows.workbench import Workbench


class PreparedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A target with everything that its cells require, or the reason why it has no build."""

    setup: TargetSetup
    runner: Runner
    build: Build | None
    problem: str = ""
    """Why there is no build."""
    with_tls: Build | None = None
    """The server with TLS, if a suite of the plan needs it."""
    tls_problem: str = ""
    """Why that does not compile."""
    complaints: frozenset[str] = frozenset()
    """The errors of compilers and linkers, as harness.analysis.compiler_output.complaints returns them."""
    blameless: bool = False
    """Whether the target is not at fault: the tree fails in the same way for this machine, or the archive has no
    package for the target.
    """
    machine: VmImage | None = None
    units: dict[Program, Units] = {}
    modules: dict[str, Path] = {}
    """Suite -> the module that its servers load, as `PeerServer.modules`."""
    preloads: dict[str, Path] = {}
    """Suite -> the shared object that its servers may preload."""
    upstream: Path | None = None
    """The programs that the release's own tests run; None if no suite of the plan runs these tests."""
    programs: Path | None = None
    """The folder of the release's programs; None if no suite of the plan runs them, or a real kernel would."""

    @property
    def target(self) -> Target:
        """The target itself."""
        return self.setup.target


class PreparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that can start: the server's source, the plan's targets, and the servers that cells compare."""

    tree: SourceTree
    targets: dict[str, PreparedTarget]
    native_upstream: Path | None = None
    """The programs that the release's own tests run on this machine."""
    native_programs: Path | None = None
    """The folder of the release's programs for this machine."""
    upstream_files: tuple[str, ...] = ()
    """The release's own test files that may contain requested tests."""
    upstream_left_out: tuple[str, ...] = ()
    """Tests of these files that do not run: globs of `FILE::TEST`."""
    peers: dict[str, PeerServer]
    """Target -> its server, outside the kernel tier. The oracle is missing where the tree does not compile for it."""

    @property
    def has_oracle(self) -> bool:
        """Whether there is a native server to compare with."""
        return ORACLE in self.peers


class RunSetup:
    """Makes a PreparedRun of a request: emulators, builds, machines, the oracle."""

    def __init__(self, bench: Workbench, request: Request, tree: SourceTree) -> None:
        self.bench = bench
        self.request = request
        self.tree = tree
        self._unavailable: list[PackageUnavailableError] = []
        self.suites = [bench.catalog.suites[name] for name in request.plan.suites]

    @cached_property
    def upstream_files(self) -> tuple[str, ...]:
        """The release's own test files that may have wanted tests; none if no suite of the plan runs them.

        Raises UsageError for a selection that names no file, and where nothing else runs, for a tree without tests.
        """
        suite, others = self._upstream_suite, self._beside_others
        if suite is None or suite.absent_from(self.tree) or (others and not has_tests(self.tree.content)):
            return ()
        every = upstream_files(self.tree.content, shown=self.tree.path)
        short = suite.quick_files if others and TIERS[self.request.tier] == 0 else None
        return tuple(file.name for file in selected(every, self.request.tests, unnamed=short, beside_others=others))

    @property
    def upstream_left_out(self) -> tuple[str, ...]:
        """Tests of the release's own that do not run, as globs of `FILE::TEST`: none if tests are selected."""
        quick = self._beside_others and TIERS[self.request.tier] == 0 and not self.request.tests
        return self._upstream_suite.quick_leaves_out if quick and self._upstream_suite is not None else ()

    @property
    def _upstream_suite(self) -> Suite | None:
        return next((suite for suite in self.suites if suite.upstream), None)

    @property
    def _beside_others(self) -> bool:
        """Whether the plan contains Plumbline's own suites, besides canaries."""
        return any(not each.upstream and each.role == "" for each in self.suites)

    def prepare(self) -> PreparedRun:
        """Set up the oracle, and then every target of the plan, as many at a time as the request allows.

        Raises InfrastructureError if this machine cannot make a part, or no target's package can be fetched, and
        InconclusiveError if the request needs an oracle and the tree does not compile for it.
        """
        _ = self.upstream_files  # refuses requests before anything is built
        # First: most errors of a change show here, before emulators and targets take their minutes.
        oracle = self._build_oracle()
        chosen = [self.bench.catalog.targets[name] for name in self.request.plan.targets]
        setups = set_up_targets(self.bench, chosen, flavour=self.request.emulator)
        with ThreadPoolExecutor(self.request.jobs) as pool:
            targets = dict(zip(setups, pool.map(self._prepare, setups.values()), strict=True))
        if len(self._unavailable) == len(targets):
            raise self._unavailable[0]
        peers = self._peers(targets, oracle)
        run = PreparedRun(
            tree=self.tree,
            targets=targets,
            peers=peers,
            native_upstream=self._upstream(oracle_setup(self.bench), "libc") if ORACLE in peers else None,
            native_programs=self._programs(oracle_setup(self.bench), "libc") if ORACLE in peers else None,
            upstream_files=self.upstream_files,
            upstream_left_out=self.upstream_left_out,
        )
        return run if run.has_oracle else msgspec.structs.replace(run, targets=self.without_blame(targets))

    def _prepare(self, setup: TargetSetup) -> PreparedTarget:
        runner = setup.runner(self.request.policy, self.request.environment)
        try:
            # First, because compiling the server for units leaves it in the cache.
            units = self._units(setup, self.request.allocator)
            build = setup.build(self.tree, self.request.optimisation, self.request.allocator)
        except BuildFailedError as error:
            self.bench.progress.say(str(error))
            problem = f"{error.what}: {error.because}"
            return PreparedTarget(setup=setup, runner=runner, build=None, problem=problem, complaints=error.complaints)
        except PackageUnavailableError as error:
            # One machine's package may be missing in the archive for days. The others still get a result.
            self.bench.progress.say(str(error))
            self._unavailable.append(error)
            return PreparedTarget(setup=setup, runner=runner, build=None, problem=str(error), blameless=True)
        with_tls, tls_problem = self._with_tls(setup, self.request.allocator)
        return PreparedTarget(
            setup=setup,
            runner=runner,
            build=build,
            with_tls=with_tls,
            tls_problem=tls_problem,
            machine=setup.server_image(build, units.values(), runner.policy),
            units=units,
            modules=self._modules(setup),
            preloads=self._preloads(setup),
            upstream=self._upstream(setup, self.request.allocator),
            programs=self._programs(setup, self.request.allocator),
        )

    def _build_oracle(self) -> Build | None:
        """The server of this machine; None if it does not compile. Raises InconclusiveError if the request needs it."""
        setup = oracle_setup(self.bench)
        try:
            if ORACLE in self.request.plan.targets:
                # As for every target: compiling the server for units leaves it in the cache.
                self._units(setup, self.request.allocator)
            return setup.build(self.tree, self.request.optimisation)
        except BuildFailedError as error:
            if self.request.needs_native:
                raise InconclusiveError(
                    f"{self.tree.name} does not compile for this machine",
                    where=error.where,
                    because=error.because,
                    remedy="fix it and run again: nothing was checked",
                    log=error.log,
                ) from error
            self.bench.progress.say(str(error))
            return None

    def _peers(self, prepared: Mapping[str, PreparedTarget], oracle: Build | None) -> dict[str, PeerServer]:
        """The servers that cells may start beside their own: the oracle, and every target outside the kernel tier."""
        peers = {
            name: PeerServer(
                runner=each.runner,
                build=each.build,
                with_tls=each.with_tls,
                modules=each.modules,
                selftests=each.units.get("selftests"),
            )
            for name, each in prepared.items()
            if each.build is not None and not each.target.emulator.has_kernel
        }
        if oracle is None:
            return peers
        setup = oracle_setup(self.bench)
        # A model is the oracle of the other programs. Its memory is libc's, as its servers' is.
        selftests = self._units(setup, "libc", only="selftests").get("selftests")
        runner, modules = setup.runner("signal"), self._modules(setup)
        with_tls, _ = self._with_tls(setup, "libc")
        peer = PeerServer(runner=runner, build=oracle, with_tls=with_tls, modules=modules, selftests=selftests)
        return {ORACLE: peer, **peers}

    def without_blame(self, prepared: dict[str, PreparedTarget]) -> dict[str, PreparedTarget]:
        """The same targets, with those marked as blameless whose errors all occur on this machine, too."""
        failed = [each for each in prepared.values() if each.build is None]
        if not failed:
            return prepared
        oracle = oracle_setup(self.bench)
        everywhere = self.bench.builder.complaints(oracle.plan(self.tree, self.request.optimisation))
        blameless = {
            each.target.name: msgspec.structs.replace(
                each, problem=f"it does not compile for this machine either: {each.problem}", blameless=True
            )
            for each in failed
            if each.complaints <= everywhere
        }
        return prepared | blameless

    def record_warnings(self, prepared: PreparedRun) -> None:
        """Store the warnings of each target's compiler, and of the oracle's, with the evidence."""
        builds = {
            name: each.build
            for name, each in prepared.targets.items()
            if each.build is not None
            and name != ORACLE
            and not each.setup.toolchain.family
            and warning_findings.looked_at(each.target)
        }
        # Only warnings of the same compiler can be compared.
        if (
            self.tree.package is not None
            or self.bench.catalog.family != DEFAULT_FAMILY
            or self.request.warnings == "off"
            or not builds
        ):
            return
        reports = {name: build_warnings.read(build) for name, build in builds.items()}
        for name, report in {**reports, ORACLE: self._oracle_warnings(prepared)}.items():
            compiler_warnings.write(self.request.run, name, report)

    def _oracle_warnings(self, prepared: PreparedRun) -> CompilerReport:
        """The warnings of this machine's compiler, if it compiles the same files, which depend on the allocator."""
        problem = "the tree does not compile for this machine"
        if prepared.has_oracle:
            oracle, optimisation = oracle_setup(self.bench), self.request.optimisation
            linked = oracle.plan(self.tree, optimisation, self.request.allocator).linked
            try:
                return build_warnings.read(oracle.build(self.tree, optimisation, linked))
            except BuildFailedError as error:
                problem = error.what
        return CompilerReport(warnings=[], problem=problem)

    def _modules(self, setup: TargetSetup) -> dict[str, Path]:
        """The module that the servers of each suite load, if it has one for the server's release.

        Nothing if a real kernel runs them: its machine's file system has no modules.
        """
        if setup.target.emulator.has_kernel:
            return {}
        return self._loaded(setup, lambda suite: suite.module)

    def _preloads(self, setup: TargetSetup) -> dict[str, Path]:
        """The shared object that servers may preload, likewise; nothing if a real kernel or a detector runs them."""
        emulator = setup.target.emulator
        if emulator.has_kernel or emulator.detector:
            return {}
        return self._loaded(setup, lambda suite: suite.preload)

    def _loaded(self, setup: TargetSetup, source_of: Callable[[Suite], str]) -> dict[str, Path]:
        """The objects that servers load, of each suite that has such a source; nothing if the servers contain their C
        library.
        """
        if setup.toolchain.is_static:
            return {}
        return {
            suite.name: setup.module(suite.path / source_of(suite), self.tree)
            for suite in self.suites
            if source_of(suite) and not suite.absent_from(self.tree)
        }

    def _upstream(self, setup: TargetSetup, allocator: Allocator) -> Path | None:
        """The programs that the release's own tests run on a target, if the plan has a suite of them."""
        if not self.upstream_files:
            return None
        # Files of a suite's short list start servers and nothing else: no client, no module.
        short = {file for suite in self.suites for file in suite.quick_files}
        programs = setup.upstream_server if short.issuperset(self.upstream_files) else setup.upstream
        return programs(self.tree, self.request.optimisation, allocator)

    def _programs(self, setup: TargetSetup, allocator: Allocator) -> Path | None:
        """The folder of the release's programs, if the plan has a suite that runs them."""
        suited = [suite for suite in self.suites if suite.plain_programs and not suite.absent_from(self.tree)]
        if not suited or setup.target.emulator.has_kernel:
            return None
        return setup.upstream(self.tree, self.request.optimisation, allocator) / "src"

    def _with_tls(self, setup: TargetSetup, allocator: Allocator) -> tuple[Build | None, str]:
        """The server with TLS, if a suite of the plan needs it and the target supports it; or why there is none."""
        suited = [suite for suite in self.suites if suite.tls and not suite.absent_from(self.tree)]
        if not suited or setup.target.emulator.has_kernel or openssl.why_none(setup.toolchain):
            return None, ""
        try:
            return setup.build(self.tree, self.request.optimisation, allocator, tls=True), ""
        except BuildFailedError as error:
            self.bench.progress.say(str(error))
            return None, f"with TLS, {error.what}: {error.because}"

    def _units(self, setup: TargetSetup, allocator: Allocator, *, only: Program | None = None) -> dict[Program, Units]:
        """The programs that the plan's suites run instead of a server."""
        kinds = dict.fromkeys(
            suite.program
            for suite in self.suites
            if suite.program and only in {None, suite.program} and not suite.absent_from(self.tree)
        )
        return {kind: setup.units(kind, self.tree, self.request.optimisation, allocator) for kind in kinds}
