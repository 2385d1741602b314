"""Sets a target up: its emulator, how to run programs under a policy, its builds, and the machine of the kernel tier.

Every workflow that compiles for a target or runs something on it does so through `set_up_targets`. The emulator is
ready when that function returns. Every other part is made, or taken from the cache, when a workflow requests it.
"""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.build import initramfs
from harness.build.emulators.guest_root import guest_root
from harness.build.emulators.runner import target_runner, with_order
from harness.build.environments import guest_environment
from harness.build.executed_blocks import compile_blocks
from harness.build.instruction_counter import call_numbers, compile_counter
from harness.build.kernel import Kernels
from harness.build.server_module import build_module
from harness.build.sources.openssl import provide_openssl
from harness.build.upstream_programs import build_upstream, server_program
from harness.build.workshop.build_plan import BuildPlan
from harness.core.digests import key_of
from harness.core.errors import InfrastructureError, UsageError
from harness.core.target_model import ORACLE
from harness.isa import rules
from harness.run import canary
from harness.run.boards.board_probe import compile_probe, probe
from harness.run.boards.reached_machine import CANARY as CANARY_THERE
from harness.run.boards.reached_machine import SERVER as SERVER_THERE
from harness.run.boards.reached_machine import ReachedMachine
from harness.run.cell_spec import UpstreamSpec
from harness.run.counting.counted_server import Counter
from harness.run.detector_canary import compile_detector_canary
from harness.run.environments.environment_canary import compile_environment_canary
from harness.run.environments.litmus import compile_litmus
from harness.run.selftests import build_program
from harness.run.unit_runner import PLACES
from harness.run.upstream.launches import compile_launcher
from harness.run.vm.guest import CANARY, SERVER, module_place
from harness.run.vm.snapshot import snapshot
from harness.run.vm.vm_image import VmImage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harness.build.emulators.runner import Runner
    from harness.build.unit_drivers import Units
    from harness.core.model import Allocator, Build, Flavour, GuestEnvironment, MemoryOrder, Program, SourceTree
    from harness.core.target_model import Policy, Target, Toolchain
    from harness.plan.catalog import Catalog
    from harness.record.run_record import BoardFacts
    from harness.run.boards.board_image import BoardImage
    from harness.workflows.workbench import Workbench


class TargetSetup(msgspec.Struct, frozen=True, kw_only=True):
    """A target whose emulator is ready, and everything that can be made for it."""

    bench: Workbench
    target: Target
    flavour: Flavour = "pinned"
    programs: dict[str, Path]
    """QEMU name -> emulator of that flavour."""

    @property
    def toolchain(self) -> Toolchain:
        """The compilers for the target."""
        return self.bench.toolchain_of(self.target)

    @property
    def userland(self) -> Target:
        """The target whose builds it runs: itself, or for the kernel tier its user-mode counterpart."""
        return self.bench.catalog.targets[rules.userland(self.target)]

    @property
    def guest_root(self) -> Path:
        """The folder in which the emulator looks for the target's libraries."""
        return guest_root(self.bench.cache, self.toolchain)

    def runner(
        self,
        policy: str,
        environment: GuestEnvironment = "usual",
        memory_order: MemoryOrder = "usual",
        seed: int = 0,
    ) -> Runner:
        """How to run the target's programs under a policy, in an environment, with an order of memory accesses.

        `seed`: of that order. Raises UsageError for a policy, an environment or an order that the target cannot have.
        """
        resolved = rules.policy_for(self.bench.catalog.policies, policy, self.target)
        cache, tools = self.bench.cache, self.toolchain
        runner = target_runner(cache, self.target, tools, resolved, self.programs, flavour=self.flavour)
        runner = with_order(runner, memory_order, seed)
        return guest_environment.surrounded(cache, runner, tools, environment)

    def plan(self, tree: SourceTree, optimisation: str, allocator: Allocator = "libc") -> BuildPlan:
        """How a tree is compiled for the target, without TLS."""
        return BuildPlan(
            tree=tree, target=self.userland, tools=self.toolchain, optimisation=optimisation, allocator=allocator
        )

    def build(self, tree: SourceTree, optimisation: str, allocator: Allocator = "libc", *, tls: bool = False) -> Build:
        """The server compiled for the target.

        Raises BuildFailedError if the tree does not compile, InfrastructureError if there is no compiler, and
        UsageError for an allocator, or TLS, that the target cannot have.
        """
        if tree.package is not None:
            return self.bench.packages.build(tree, self.toolchain, self.userland)
        library = provide_openssl(self.bench.fetcher, self.toolchain) if tls else None
        plan = self.plan(tree, optimisation, allocator)
        return self.bench.builder.build(msgspec.structs.replace(plan, tls=library))

    def units(self, kind: Program, tree: SourceTree, optimisation: str, allocator: Allocator = "libc") -> Units:
        """The program that a suite runs instead of a server. Raises as `build` does."""
        return build_program(kind, self.bench.builder, self.plan(tree, optimisation, allocator))

    def upstream(self, tree: SourceTree, optimisation: str, allocator: Allocator = "libc") -> Path:
        """Every program of the release, and the modules of its tests. Raises as `build` does."""
        return build_upstream(self.bench.builder, self.plan(tree, optimisation, allocator))

    def upstream_server(self, tree: SourceTree, optimisation: str, allocator: Allocator = "libc") -> Path:
        """Only the server, in the form of `upstream`, which has all programs. Raises as `build` does."""
        return server_program(self.bench.cache, self.build(tree, optimisation, allocator))

    def upstream_spec(
        self,
        tree: SourceTree,
        own: Path,
        native: Path,
        *,
        mixed: Mapping[str, Path],
        target_clients: bool,
        files: tuple[str, ...],
        left_out: tuple[str, ...],
    ) -> UpstreamSpec:
        """The settings with which a cell runs the release's own tests with these programs. `mixed`: peer -> its
        programs.
        """
        here = self.bench.catalog.toolchain_of(self.bench.catalog.targets[ORACLE])
        return UpstreamSpec(
            source=tree.content,
            cache=self.bench.cache.root,
            abilities=tree.abilities,
            native_key=key_of([native.name, tree.digest]),
            launcher=compile_launcher(self.bench.cache, here),
            programs=own,
            native=native,
            mixed=dict(mixed),
            target_clients=target_clients,
            files=files,
            left_out=left_out,
        )

    def module(self, source: Path, tree: SourceTree) -> Path:
        """A suite's server module, compiled against the tree's header."""
        return build_module(self.bench.cache, source, tree, self.userland, self.toolchain)

    def canary(self) -> Path:
        """The program that performs misaligned accesses on purpose."""
        return canary.compile_canary(self.bench.cache, self.target, self.toolchain)

    def detector_canary(self) -> Path | None:
        """The program that makes the target's detector report; None for a target without a detector."""
        return compile_detector_canary(self.bench.cache, self.target, self.toolchain)

    def litmus(self, runner: Runner) -> Path | None:
        """The program that proves the order of memory accesses of a runner; None in the usual one."""
        return compile_litmus(self.bench.cache, self.target, self.toolchain) if runner.memory_order else None

    def environment_canary(self, runner: Runner) -> Path | None:
        """The program that proves the environment of a runner; None in the usual one."""
        return compile_environment_canary(self.bench.cache, runner, self.toolchain)

    def server_image(self, build: Build, units: Iterable[Units], policy: Policy) -> VmImage | None:
        """The machine that runs a server, the canary and unit programs; None for a target without its own kernel.

        It holds the same programs for a check and for a replay, so that both use the state that one of them saved.
        """
        if not self.target.emulator.has_kernel:
            return None
        programs = {SERVER: build.server_binary, CANARY: self.canary()}
        programs |= {str(module_place(module)): module for module in build.modules}
        programs |= {PLACES[each.kind]: each.program for each in units if each.program is not None}
        return self.vm_image(programs, mode=policy.mode)

    def board_image(self, build: Build, policy: Policy) -> BoardImage | None:
        """The board that runs a server and the canary under a policy; None for a target that is not one."""
        board = self.bench.board
        if board is None or not self.target.emulator.is_board:
            return None
        if board.board.runs_already:
            return board
        programs = {CANARY_THERE: self.canary(), **{module.name: module for module in build.modules}}
        if not board.board.program:
            programs[SERVER_THERE] = build.server_binary
        multiplier = self.target.timeout_multiplier
        mode = rules.own_mode(self.bench.catalog.policies, policy, self.target)
        return msgspec.structs.replace(board, programs=programs, timeout_multiplier=multiplier, mode=mode)

    def board_facts(self, image: BoardImage) -> BoardFacts | None:
        """What a board tells of itself; None if it cannot be asked, which its cells will say."""
        host = ReachedMachine(msgspec.structs.replace(image, programs={}, mode=None))
        try:
            return probe(host, compile_probe(self.bench.cache, self.target, self.toolchain))
        except InfrastructureError as error:
            self.bench.progress.say(str(error))
            return None
        finally:
            host.close()

    def vm_image(self, programs: Mapping[str, Path], *, mode: int | None, counted: bool = False) -> VmImage:
        """A kernel, a root file system with programs (guest path -> file), and the machine's state after it booted.

        `mode` is the alignment mode that the kernel is set to, if it has one. With `counted` the machine's clocks count
        instructions; such a machine has no saved state and boots again. Raises InfrastructureError when a part cannot
        be made.
        """
        bench = self.bench
        spec = bench.catalog.kernels[self.target.emulator.machine]
        kernel_tools = bench.catalog.toolchains[spec.toolchain]
        kernel = Kernels(bench.cache, bench.fetcher, bench.progress).build(spec, kernel_tools)
        archive = initramfs.assemble(
            bench.cache,
            initramfs.compile_init(bench.cache, kernel_tools),
            initramfs.with_libraries(programs, self.toolchain),
            memory_bytes=spec.machine.memory_mib << 20,
        )
        state = None
        if spec.machine.snapshots and not counted:
            with (
                bench.progress.stage("boot", f"booting {spec.name}"),
                tempfile.TemporaryDirectory(prefix="plumb-") as short,
            ):
                multiplier = self.target.timeout_multiplier
                state = snapshot(bench.cache, kernel, archive, sockets=Path(short), timeout_multiplier=multiplier)
        return VmImage(
            kernel=kernel,
            initramfs=archive,
            snapshot=state,
            mode=mode if rules.has_switch(self.target) else None,
            counted=counted,
            timeout_multiplier=self.target.timeout_multiplier,
        )


def set_up_targets(
    bench: Workbench, targets: Iterable[Target], *, flavour: Flavour = "pinned"
) -> dict[str, TargetSetup]:
    """Target name -> set-up. Missing emulators are built together, since they share most of the work.

    Raises InfrastructureError when an emulator does not build or is not installed.
    """
    chosen = list(targets)
    programs = bench.emulators(flavour).prepare([target.emulator for target in chosen])
    return {
        target.name: TargetSetup(bench=bench, target=target, flavour=flavour, programs=programs) for target in chosen
    }


def set_up_target(bench: Workbench, target: Target, *, flavour: Flavour = "pinned") -> TargetSetup:
    """The set-up of one target. Raises as `set_up_targets` does."""
    return set_up_targets(bench, [target], flavour=flavour)[target.name]


def oracle_setup(bench: Workbench) -> TargetSetup:
    """The native set-up, whose results the targets' are compared with."""
    return set_up_target(bench, bench.catalog.targets[ORACLE])


def counter_for(bench: Workbench, setup: TargetSetup) -> Counter:
    """The emulator's counter for a target. Raises InfrastructureError if it cannot be compiled."""
    here = bench.catalog.toolchain_of(bench.catalog.targets[ORACLE])
    program = compile_counter(bench.cache, here, bench.fetcher)
    return Counter(program=program, numbers=call_numbers(bench.cache, setup.target, setup.toolchain))


def blocks_plugin(bench: Workbench) -> Path:
    """The plugin with which the emulator records executed blocks. Raises InfrastructureError if it cannot be
    compiled.
    """
    here = bench.catalog.toolchain_of(bench.catalog.targets[ORACLE])
    return compile_blocks(bench.cache, here, bench.fetcher)


def kernel_target(catalog: Catalog, name: str) -> Target:
    """A target of the kernel tier by name. Raises UsageError for a target without its own kernel."""
    target = catalog.targets[name]
    if not target.emulator.has_kernel:
        raise UsageError(f"{name} has no kernel of its own", where="--target", remedy="--target kernel")
    return target


def emulated_target(catalog: Catalog, name: str) -> Target:
    """A target by name, whose programs are processes of the host. Raises UsageError for any other."""
    target = catalog.targets.get(name)
    possible = [each.name for each in catalog.targets.values() if each.emulator.is_qemu_user]
    if target is None or not target.emulator.is_qemu_user:
        why = "" if target is None else "its programs do not run under a user-mode emulator"
        what = "no such target" if target is None else f"{name} is not a target of the user tier"
        remedy = f"one of {', '.join(possible)}"
        if target is not None and target.emulator.runs_here:
            remedy = _instead(catalog, target)
        raise UsageError(what, where=f"--target {name}", because=why, remedy=remedy)
    return target


def _instead(catalog: Catalog, target: Target) -> str:
    """How to test a program for what a target of the host tests, without an emulator or with one."""
    compiler = f"{triple}-gcc" if (triple := catalog.toolchain_of(target).triple) else "gcc"
    itself = f"this machine runs such programs without Plumbline: compile with {compiler}"
    flags = shlex.join(flag for flag in target.compiler_flags if not flag.startswith("-Wl,"))
    groups = {group for group in target.groups if not group.endswith("-bit")}
    alike = [
        each.name
        for each in catalog.targets.values()
        if each.emulator.is_qemu_user and groups & set(each.groups) and each.width_bits == target.width_bits
    ]
    others = f"; or of the user tier: {', '.join(alike)}" if alike else ""
    return f"{itself} {flags}".rstrip() + others
