"""All that cells need of a target, or why it has none: emulator, builds, programs of ours, a machine and its kernel."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.build import initramfs, warning_pass
from harness.build.kernel import Kernels
from harness.build.qemu_user import Emulators, Runner, native_runner
from harness.build.server_build import Builder, BuildFailedError
from harness.build.server_module import build_module
from harness.core.errors import UsageError
from harness.isa import rules
from harness.judge import warning_findings
from harness.record import compiler_warnings
from harness.run import canary
from harness.run.cell_spec import PeerServer
from harness.run.selftests import build_program
from harness.run.unit_runner import PLACES
from harness.run.vm.guest import CANARY, SERVER, VmImage
from harness.run.vm.snapshot import snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.build.sources.archives import Fetcher
    from harness.build.unit_drivers import Units
    from harness.core.cache import Cache
    from harness.core.model import Allocator, Build, Program, SourceTree, Target, Toolchain
    from harness.core.progress import Progress
    from harness.plan.catalog import Catalog
    from harness.plan.plan import Plan
    from harness.plan.request import Request


class PreparedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A target with all that its cells need, or why it has none."""

    target: Target
    runner: Runner
    build: Build | None
    problem: str = ""
    """Why there is no build."""
    complaints: frozenset[str] = frozenset()
    """What compilers and others said of it: harness.analysis.compiler_output.complaints."""
    blameless: bool = False
    """Whether the tree fails alike for this machine, so that the problem is none of the target's."""
    machine: VmImage | None = None
    units: dict[Program, Units] = {}
    module: Path | None = None


class Preparation:
    """What a run's cells need, made before the first of them: emulators, builds, machines."""

    def __init__(
        self, catalog: Catalog, store: Cache, progress: Progress, fetcher: Fetcher, request: Request, plan: Plan
    ) -> None:
        self.catalog = catalog
        self.store = store
        self.progress = progress
        self.fetcher = fetcher
        self.request = request
        self.plan = plan
        self.builder = Builder(store, progress)

    def targets(self, tree: SourceTree) -> dict[str, PreparedTarget]:
        """Every target of the plan, as many at a time as the request says; what does not compile has its reason."""
        emulators = Emulators(self.store, self.fetcher, self.progress, flavour=self.request.emulator)
        targets = [self.catalog.targets[name] for name in self.plan.targets]
        programs = emulators.prepare([target.emulator for target in targets])

        def prepare(target: Target) -> PreparedTarget:
            tools = self.catalog.toolchain_of(target)
            policy = rules.policy_for(self.catalog.policies, self.request.policy, target)
            runner = emulators.runner(target, tools, policy, programs)
            built_for = self.catalog.targets[rules.userland(target)]
            try:
                # First: what compiles the server for units leaves it in the cache.
                units = self._programs(tree, built_for)
                build = self.builder.build(tree, built_for, tools, self.request.optimisation, self.request.allocator)
            except BuildFailedError as error:
                self.progress.say(str(error))
                problem = f"{error.what}: {error.because}"
                return PreparedTarget(
                    target=target, runner=runner, build=None, problem=problem, complaints=error.complaints
                )
            module = self._module(tree, built_for, tools)
            machine = self._machine(target, runner, build, units)
            return PreparedTarget(
                target=target, runner=runner, build=build, machine=machine, units=units, module=module
            )

        with ThreadPoolExecutor(self.request.jobs) as pool:
            return {one.target.name: one for one in pool.map(prepare, targets)}

    def peers(self, tree: SourceTree, prepared: dict[str, PreparedTarget]) -> dict[str, PeerServer]:
        """The servers that cells start beside their own; a machine of the kernel tier is nobody's peer.

        Without `native`, the oracle, where the tree does not compile for this machine.
        """
        found = {
            name: PeerServer(
                runner=one.runner, build=one.build, module=one.module, selftests=one.units.get("selftests")
            )
            for name, one in prepared.items()
            if one.build is not None and not one.target.emulator.has_kernel
        }
        native = self.catalog.targets["native"]
        try:
            oracle = self.builder.build(tree, native, self.catalog.toolchain_of(native), self.request.optimisation)
        except BuildFailedError as error:
            self.progress.say(str(error))
            return found
        oracle_runner = native_runner(self.catalog)
        module = self._module(tree, native, self.catalog.toolchain_of(native))
        # The oracle of what else is run instead of a server is a model.
        selftests = self._programs(tree, native, only="selftests").get("selftests")
        peer = PeerServer(runner=oracle_runner, build=oracle, module=module, selftests=selftests)
        return {native.name: peer, **found}

    def blamed(self, tree: SourceTree, prepared: dict[str, PreparedTarget]) -> dict[str, PreparedTarget]:
        """The same where the oracle does not compile: what fails for this machine as well is not a target's fault."""
        failed = [one for one in prepared.values() if one.build is None]
        if not failed:
            return prepared
        native = self.catalog.targets["native"]
        tools = self.catalog.toolchain_of(native)
        everywhere = self.builder.complaints(tree, native, tools, self.request.optimisation)
        blameless = {
            one.target.name: msgspec.structs.replace(
                one, problem=f"it does not compile for this machine either: {one.problem}", blameless=True
            )
            for one in failed
            if one.complaints <= everywhere
        }
        return prepared | blameless

    def warnings(self, tree: SourceTree, prepared: dict[str, PreparedTarget]) -> None:
        """Have each target's compiler, and the oracle's, look at the tree; what they say goes beside the evidence."""
        native = self.catalog.targets["native"]
        plain = [
            one.target for one in prepared.values() if one.build is not None and warning_findings.looked_at(one.target)
        ]
        if self.request.warnings == "off" or not [target for target in plain if target != native]:
            return

        def look(target: Target) -> None:
            tools = self.catalog.toolchain_of(target)
            said = warning_pass.look(self.builder, tree, target, tools, self.request.optimisation)
            compiler_warnings.write(self.request.run, target.name, said)

        with ThreadPoolExecutor(self.request.jobs) as pool:
            list(pool.map(look, {one.name: one for one in [native, *plain]}.values()))

    def _module(self, tree: SourceTree, target: Target, tools: Toolchain) -> Path | None:
        """The module that servers load, where a suite of the plan has one that suits the server's release."""
        suites = [self.catalog.suites[name] for name in self.plan.suites]
        sources = [suite.path / suite.module for suite in suites if suite.module and tree.version >= suite.since]
        return build_module(self.store, sources[0], tree, target, tools) if sources else None

    def _programs(self, tree: SourceTree, target: Target, *, only: Program | None = None) -> dict[Program, Units]:
        """What the plan's suites run instead of a server."""
        suites = (self.catalog.suites[name] for name in self.plan.suites)
        kinds = dict.fromkeys(suite.program for suite in suites if suite.program and only in {None, suite.program})
        tools = self.catalog.toolchain_of(target)
        # The oracle's memory is libc's, as its servers' is.
        chosen: Allocator = "libc" if only else self.request.allocator
        return {
            kind: build_program(kind, self.builder, tree, target, tools, self.request.optimisation, chosen)
            for kind in kinds
        }

    def _machine(self, target: Target, runner: Runner, build: Build, units: Mapping[Program, Units]) -> VmImage | None:
        """The emulated computer of a target of the kernel tier: kernel, root file system, and its state after boot."""
        if not target.emulator.has_kernel:
            return None
        tools = self.catalog.toolchain_of(target)
        programs = {SERVER: build.server_binary, CANARY: canary.compile_canary(self.store, target, tools)}
        programs |= {PLACES[kind]: one.program for kind, one in units.items() if one.program is not None}
        return prepare_machine(
            self.catalog, self.store, self.fetcher, self.progress, target, programs, mode=runner.policy.mode
        )


def prepare_machine(
    catalog: Catalog,
    store: Cache,
    fetcher: Fetcher,
    progress: Progress,
    target: Target,
    programs: Mapping[str, Path],
    *,
    mode: int | None,
    counted: bool = False,
) -> VmImage:
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
    return VmImage(
        kernel=kernel,
        initramfs=archive,
        snapshot=state,
        mode=mode if rules.has_switch(target) else None,
        counted=counted,
    )


def machine_target(catalog: Catalog, name: str) -> Target:
    """A target of the kernel tier. Raises UsageError for one without a kernel of its own."""
    target = catalog.targets[name]
    if not target.emulator.has_kernel:
        raise UsageError(f"{name} has no kernel of its own", where="--target", remedy="--target kernel")
    return target
