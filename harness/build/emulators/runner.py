"""Gives the command line that runs a target's programs under a policy, on whichever emulator the target has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis.detectors import registry
from harness.build.emulators.guest_root import guest_root
from harness.core.digests import key_of, sha256_of
from harness.core.errors import UsageError
from harness.core.model import GuestEnvironment  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.core.target_model import Policy, Target  # noqa: TC001 - the same
from harness.isa import memory_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.cache import Cache
    from harness.core.model import Flavour, MemoryOrder, StorePair
    from harness.core.target_model import Toolchain

EMULATED_SIGABRT = 35
"""The host's signal that a guest receives as SIGABRT: QEMU keeps SIGABRT for its own abort(), and takes a real-time
signal that has no other meaning for the program's (linux-user/signal.c, signal_table_init)."""
LARGEST_USUAL_PAGE = 8192
"""The page size, in bytes, of a distribution's emulators for SPARC and Alpha; most others have 4096."""


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    """How to run a target's programs: the part of the command line before the program."""

    target: Target
    policy: Policy
    program: Path | None
    """The emulator, or the tool that runs a native program; None: the host runs it."""
    options: list[str]
    records_faults: bool
    """False for a distribution's QEMU: it has no fault log, so a signal has no location."""
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables that the program needs beyond the plain environment: its detector's options."""
    guest_environment: GuestEnvironment = "usual"
    """The environment of the programs (harness.build.environments)."""
    preloads: tuple[Path, ...] = ()
    """Shared objects of that environment, which every program preloads beside its own."""
    memory_order: str = ""
    """The value of the pinned emulator's `-memory-order` (harness.isa.memory_order); empty: the host's order."""
    reserved_bytes: int = 0
    """The size of the address space that the emulator reserves, so that addresses are the same every time; 0: none."""
    translations: Path | None = None
    """The cache's folder where the pinned emulator keeps translated code for the next process; None: it keeps none."""

    def command(
        self,
        program: Path,
        arguments: Sequence[str],
        fault_log: Path | None = None,
        coverage: Path | None = None,
        *,
        preload: Path | None = None,
        fatal_faults: Path | None = None,
        no_crash_maps: bool = False,
        plugin: str = "",
    ) -> list[str]:
        """The whole command line.

        `coverage`: the file of an `EdgeCoverage`. `preload`: a shared object to preload into the program.
        `fatal_faults`: a file for the instructions whose misaligned access programs died of. If one of them faults
        again, its program ends immediately after it was logged. The programs add to the file. `no_crash_maps`: a crash
        handler finds /proc/self/maps empty, if the faults are recorded. `plugin`: the plugin that the emulator loads,
        with its arguments.
        """
        objects = [*self.preloads, *([preload] if preload else [])]
        setting = f"LD_PRELOAD={':'.join(map(str, objects))}"
        if self.program is None:
            return [*(["env", setting] if objects else []), str(program), *arguments]
        preloading = ["-E", setting] if objects else []
        log = ["-fault-log", str(fault_log)] if fault_log and self.records_faults else []
        log += ["-fatal-faults", str(fatal_faults)] if log and fatal_faults else []
        log += ["-no-crash-maps"] if log and no_crash_maps else []
        edges = ["-coverage", str(coverage)] if coverage and self.reports_edges else []
        loading = ["-plugin", plugin] if plugin else []
        keeping = [] if edges or loading else self._keeping(program)
        options = [*self.options, *self.ordering, *preloading, *log, *edges, *loading, *keeping]
        return [str(self.program), *options, str(program), *arguments]

    @property
    def ordering(self) -> list[str]:
        """The emulator's options for the order of memory accesses; none for the host's."""
        reserving = ["-R", str(self.reserved_bytes)] if self.reserved_bytes else []
        return ["-memory-order", self.memory_order, *reserving] if self.memory_order else []

    def _keeping(self, program: Path) -> list[str]:
        """The option that keeps translated code: one file for each program of the cache and each way to run it.

        The emulator creates the folder. Before it uses code from the file, it compares it with the program's
        instructions.
        """
        if self.translations is None or not program.is_relative_to(self.translations.parent):
            return []
        # A seed changes no code.
        reordering = ["reordering", *self.ordering[2:]] if self.memory_order else []
        key = key_of([str(self.program), *self.options, *reordering, str(program)])
        return ["-translations", str(self.translations / f"{program.name}-{self.target.name}-{key}" / "code")]

    @property
    def root(self) -> Path:
        """The folder in which emulated programs find their loader and libraries instead of in `/`."""
        return Path(self.options[self.options.index("-L") + 1])

    @property
    def emulator_digest(self) -> str:
        """SHA-256 of the user-mode emulator; empty if a real kernel or the host runs the programs."""
        return sha256_of(self.program) if self.program and self.target.emulator.is_qemu_user else ""

    @property
    def reports_edges(self) -> bool:
        """Whether its programs can record the edges that they execute, as under the pinned emulator."""
        return self.records_faults


def target_runner(
    cache: Cache,
    target: Target,
    toolchain: Toolchain,
    policy: Policy,
    programs: Mapping[str, Path],
    *,
    flavour: Flavour = "pinned",
) -> Runner:
    """How to run a target's programs under a policy. Creates the guest's root folder of links if it is missing.

    `programs`: QEMU name -> emulator of that flavour. Raises UsageError if a distribution's emulator has another page
    size than the target.
    """
    spec = target.emulator
    detector = registry.named(spec.detector)
    if spec.is_elsewhere:
        # The machine starts its programs.
        return Runner(target=target, policy=policy, program=None, options=[], records_faults=False, environment={})
    if spec.runs_here:
        prefix = detector.command
        return Runner(
            target=target,
            policy=policy,
            program=Path(prefix[0]) if prefix else None,
            options=list(prefix[1:]),
            records_faults=False,
            environment=dict(detector.environment),
        )
    if flavour == "distro" and target.page_size_bytes > LARGEST_USUAL_PAGE:
        raise UsageError(
            f"no emulator has the page size of {target.name}",
            where="--emulator distro",
            because=f"a distribution's QEMU does not support pages of {target.page_size_bytes} bytes",
            remedy="leave out the option or the target",
        )
    options = ["-L", str(guest_root(cache, toolchain))]
    if spec.cpu:
        options = ["-cpu", spec.cpu, *options]
    if flavour == "pinned":
        options += ["-page-size", str(target.page_size_bytes), "-alignment", alignment_option(policy)]
    return Runner(
        target=target,
        policy=policy,
        program=programs[spec.qemu],
        options=options,
        records_faults=flavour == "pinned",
        environment=dict(detector.environment),
        translations=cache.root / "translations" if flavour == "pinned" else None,
    )


def alignment_option(policy: Policy) -> str:
    """A policy as the value of Plumbline's `-alignment` option (toolchains/qemu/overlay/linux-user/plumbline.c)."""
    words = [f"demand={policy.demand}", f"assumed={policy.assumed_bytes}", *(["report"] if policy.report else [])]
    words += [f"{name}=fixup" for name in policy.fixup] + [f"{name}=ignore" for name in policy.ignore]
    return ",".join(words)


def with_root(runner: Runner, root: Path) -> Runner:
    """How to run emulated programs whose dynamic loader and libraries are below a folder instead of `/`."""
    at = runner.options.index("-L") + 1
    return msgspec.structs.replace(runner, options=[*runner.options[:at], str(root), *runner.options[at + 1 :]])


def with_order(runner: Runner, order: MemoryOrder, seed: int) -> Runner:
    """How to run emulated programs whose threads see one another's stores in an order.

    Raises UsageError for an order that the programs of the runner's target cannot be shown.
    """
    memory_order.check_order(order, runner.target, "pinned" if runner.records_faults else "distro")
    if order == "usual":
        return runner
    option = memory_order.emulator_option(memory_order.model_of(runner.target), seed)
    patient = msgspec.structs.replace(runner.target, slowdown=runner.target.slowdown * memory_order.SLOWER)
    environment = {**runner.environment, **memory_order.ENVIRONMENT}
    return msgspec.structs.replace(runner, memory_order=option, target=patient, environment=environment)


def with_same_addresses(runner: Runner) -> Runner:
    """How to run the same programs, at the same addresses every time."""
    reserved = memory_order.RESERVED_BYTES if runner.target.width_bits == 64 else 0
    return msgspec.structs.replace(runner, reserved_bytes=reserved)


def with_evidence(runner: Runner, seed: int, pair: StorePair | None = None) -> Runner:
    """The same as `with_same_addresses`, with another seed and more pauses. `pair`: only these may be reordered."""
    option = memory_order.with_evidence(runner.memory_order, seed, pair)
    return msgspec.structs.replace(with_same_addresses(runner), memory_order=option)


def in_usual_order(runner: Runner, target: Target) -> Runner:
    """The same without `with_order`. `target`: the one that `with_order` was given."""
    return msgspec.structs.replace(runner, memory_order="", reserved_bytes=0, target=target)


def with_stub(runner: Runner, stub: Path) -> Runner:
    """How to run emulated programs that wait for gdb before their first instruction. `stub`: the socket for it."""
    return msgspec.structs.replace(runner, options=[*runner.options, "-g", str(stub)])


def with_alignment(options: list[str], policy: Policy) -> list[str]:
    """An emulator's options with another policy."""
    if "-alignment" not in options:
        return options
    at = options.index("-alignment") + 1
    return [*options[:at], alignment_option(policy), *options[at + 1 :]]


def keeps_translations(command: Sequence[str]) -> bool:
    """Whether the emulator of a command line keeps translated code.

    It then needs constant addresses. If it starts without them, it starts itself again, which takes some 3 ms.
    """
    return "-translations" in command
