"""Shows a finding again: the same build, a fresh guest and the recorded requests, or the same unit.

What came of it is harness.workflows.replay.rerun's to find out, and whether that is the finding
harness.workflows.replay.recurrence's to say.
"""

from __future__ import annotations

import base64
import contextlib
import re
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import disassembly, symbols
from harness.analysis.assertion_log import asserting_frames
from harness.analysis.detectors.registry import own_frames
from harness.build.qemu_user import Emulators, native_runner
from harness.build.server_build import Builder, BuildFailedError
from harness.build.sources import server_tree
from harness.build.sources.archives import Fetcher
from harness.core.errors import ExitCode
from harness.core.model import Record
from harness.isa import rules
from harness.judge.reproducer import Reproducer, files_of
from harness.plan.catalog import select
from harness.protocol.command_stream import read_stream, wire
from harness.record import fault_log, recording_proxy
from harness.run import canary, silence_check, unit_runner
from harness.run.selftests import build_program
from harness.run.server_process import Guest
from harness.run.vm.guest import CANARY, SERVER, VirtualMachine, guest_of
from harness.workflows import target_setup
from harness.workflows.replay.recurrence import (
    NAMELESS,
    RECORDED,
    STREAM,
    WRONG_RESULT,
    ObservedFault,
    Outcome,
    Recurrence,
    recurrence,
)
from harness.workflows.replay.rerun import run_server, run_unit

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.build.qemu_user import Runner
    from harness.build.unit_drivers import Units
    from harness.core.cache import Cache
    from harness.core.finding import Frame
    from harness.core.model import Build, Flavour, SourceTree, Target
    from harness.core.progress import Progress
    from harness.plan.catalog import Catalog
    from harness.workflows.replay.recurrence import Observation
    from harness.workflows.replay.rerun import ReplayedRun


class Replay(Record, frozen=True):
    """What came of a replay."""

    outcome: Outcome
    reason: str
    """Why nobody can tell; empty where it is reproduced or gone."""
    machine: bool
    """Nobody can tell because of this machine; else because of the tree."""
    text: str
    """What happened, for the reader."""


EXIT_CODES = {"reproduced": ExitCode.FINDINGS, "gone": ExitCode.PASS, "unknown": ExitCode.INCONCLUSIVE}
SKIP_COMMIT, STOP_BISECTING = 125, 255
"""What `git bisect run` takes for a commit that cannot be tested, and for an end of the bisection (git-bisect(1))."""


def bisecting(shown: Callable[[], Replay]) -> int:
    """The exit code for `git bisect run`: what cannot be told of a tree skips it, and a full disk blames no commit."""
    try:
        seen = shown()
    except Exception as error:  # noqa: BLE001 - whatever it is, no commit is to blame
        told = str(error) or type(error).__name__
    except KeyboardInterrupt:
        told = "interrupted"
    else:
        if seen.outcome == "unknown":
            return STOP_BISECTING if seen.machine else SKIP_COMMIT
        return int(EXIT_CODES[seen.outcome])
    print(told, file=sys.stderr)  # noqa: T201 - what git shows between its commits
    return STOP_BISECTING


def told(seen: Replay, finding: str) -> str:
    """All of it for a person, the answer last."""
    answer = {"reproduced": "reproduced", "gone": "not reproduced", "unknown": "could not tell"}[seen.outcome]
    why = f"\n  because: {seen.reason}" if seen.reason else ""
    return f"{seen.text}\n{answer}: {finding}{why}"


def from_stream(path: Path, *, target: str, server: str) -> Reproducer:
    """A stream of commands (a .stream file) as a reproducer for a target. Raises UsageError."""
    chunk = recording_proxy.Chunk(
        connection=1, direction="request", data=base64.b64encode(wire(read_stream(path))).decode()
    )
    return Reproducer(
        finding=path.name,
        kind=WRONG_RESULT,
        function="",
        server=server,
        target=target,
        policy="signal",
        optimisation="O2",
        emulator="pinned",
        chunks=[chunk],
        detector=STREAM,
    )


def replay(
    catalog: Catalog, store: Cache, progress: Progress, reproducer: Reproducer, *, server: str, offline: bool
) -> Replay:
    """Build (or take from the cache), run, and tell what came of it. `server` replaces the recorded.

    Raises PlumblineError for what is not the server's fault.
    """
    target = catalog.targets[select("target", [reproducer.target], catalog.targets)[0]]
    fetcher = Fetcher(store, progress, offline=offline)
    tree = server_tree.open_server(catalog, fetcher, server or reproducer.server)
    again = _Replayed(catalog, store, progress, fetcher, reproducer, target, tree)
    head = f"{tree.name} on {target.name}, -{reproducer.optimisation}, policy {reproducer.policy}"
    try:
        ended, text = again.run()
    except BuildFailedError as error:
        ended, text = _of_failed_build(reproducer, error), str(error)
    return Replay(outcome=ended.outcome, reason=ended.reason, machine=ended.machine, text=f"{head}: {text}")


def _of_failed_build(reproducer: Reproducer, error: BuildFailedError) -> Recurrence:
    """A tree that does not compile shows nothing but that, and that again only by the same complaint."""
    if reproducer.kind != BUILD:
        return Recurrence(outcome="unknown", reason="the tree does not compile")
    first = _without_numbers(error.because).splitlines()[:1]
    if first and first[0] in _without_numbers(reproducer.detail):
        return Recurrence(outcome="reproduced")
    return Recurrence(outcome="unknown", reason="the tree does not compile, for another reason")


BUILD = "build"
"""The kind of finding that is a tree which does not compile."""


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "N", text)


class _Replayed:
    """One reproducer on one tree."""

    def __init__(
        self,
        catalog: Catalog,
        store: Cache,
        progress: Progress,
        fetcher: Fetcher,
        reproducer: Reproducer,
        target: Target,
        tree: SourceTree,
    ) -> None:
        self.catalog = catalog
        self.store = store
        self.progress = progress
        self.fetcher = fetcher
        self.reproducer = reproducer
        self.target = target
        self.tree = tree
        self.tools = catalog.toolchain_of(target)
        self.builder = Builder(store, progress)

    def run(self) -> tuple[Recurrence, str]:
        """What came of it, and what happened. Raises BuildFailedError."""
        one = self.reproducer
        flavour: Flavour = "distro" if one.emulator == "distro" else "pinned"
        emulators = Emulators(self.store, self.fetcher, self.progress, flavour=flavour)
        policy = rules.policy_for(self.catalog.policies, one.policy, self.target)
        programs = emulators.prepare([self.target.emulator])
        runner = emulators.runner(self.target, self.tools, policy, programs)
        build = self._built(self.target)
        if one.kind == BUILD:
            return Recurrence(outcome="gone"), "it compiles"
        units = self._units() if one.unit else None
        if units is not None and (why := self._lacks(units)):
            return Recurrence(outcome="unknown", reason=f"the server has no unit {one.unit}"), why
        with (
            tempfile.TemporaryDirectory(prefix="plumbline-replay-") as folder,
            contextlib.ExitStack() as others,
        ):
            host = self._host(build, units, runner, Path(folder))
            if host is not None:
                others.callback(host.close)
            ran = self._ran(build, units, runner, Path(folder), host)
            seen, lines = _named(ran, symbols.Symbols(self.tools.triple, str(build.server_binary)), self.target)
            ended = recurrence(one, seen)
            if ended.outcome == "gone" and one.detector in RECORDED:
                # Only what would have been seen is gone.
                why = silence_check.why_blind(self.store, runner, self.tools, Path(folder), host)
                ended = Recurrence(outcome="unknown", reason=why, machine=True) if why else ended
        return ended, "\n".join([seen.end, *lines])

    def _built(self, target: Target) -> Build:
        built_for = self.catalog.targets[rules.userland(target)]
        one = self.reproducer
        tools = self.catalog.toolchain_of(target)
        return self.builder.build(self.tree, built_for, tools, one.optimisation, one.allocator)

    def _units(self) -> Units:
        one = self.reproducer
        built_for = self.catalog.targets[rules.userland(self.target)]
        how = (one.optimisation, one.allocator)
        return build_program(one.program, self.builder, self.tree, built_for, self.tools, *how)

    def _lacks(self, units: Units) -> str:
        """Why the unit cannot be called."""
        unit = self.reproducer.unit
        why = units.absent.get(unit) or units.broken.get(unit) or ""
        return why or ("" if units.program is not None else "nothing was linked")

    def _host(self, build: Build, units: Units | None, runner: Runner, folder: Path) -> VirtualMachine | None:
        """The machine of the kernel tier, with the programs of a check: a saved state of it may be in the cache."""
        if not self.target.emulator.has_kernel:
            return None
        programs = {SERVER: build.server_binary, CANARY: canary.compile_canary(self.store, self.target, self.tools)}
        if units is not None and units.program is not None:
            programs[unit_runner.PLACES[units.kind]] = units.program
        mode = runner.policy.mode
        machine = target_setup.prepare_machine(
            self.catalog, self.store, self.fetcher, self.progress, self.target, programs, mode=mode
        )
        return VirtualMachine(machine, folder, sockets=folder)

    def _ran(
        self, build: Build, units: Units | None, runner: Runner, folder: Path, host: VirtualMachine | None
    ) -> ReplayedRun:
        one = self.reproducer
        if units is not None:
            return run_unit(units, runner, one, folder / "guest-1", host)

        def guest(name: str, files: dict[str, bytes]) -> Guest:
            version = self.tree.version
            return guest_of(
                build,
                runner,
                folder / name,
                host=host,
                sockets=folder,
                version=version,
                options=one.options,
                files=files,
            )

        def oracle() -> Guest:
            native = self.catalog.targets["native"]
            built = self.builder.build(self.tree, native, self.catalog.toolchain_of(native), one.optimisation)
            where = folder / native.name
            return Guest(built, native_runner(self.catalog), where, sockets=folder, version=self.tree.version)

        return run_server(guest("guest-1", files_of(one)), one, oracle, lambda: guest("guest-2", {}))


def _named(ran: ReplayedRun, table: symbols.Symbols, target: Target) -> tuple[Observation, list[str]]:
    """What was seen with the names of functions, and the records for the reader."""
    machine = target.emulator.qemu
    faults: list[ObservedFault] = []
    asserted: set[str] = set()
    lines: list[str] = []
    for fault in ran.faults:
        frames = table.backtrace(fault, machine)
        name = signal.Signals(fault.signal).name if fault.signal else ""
        access = disassembly.access_of(fault, machine) if fault_log.is_misaligned(fault) else None
        faults.append(
            ObservedFault(
                misaligned=access is not None,
                signal=name.lower(),
                direction=access.direction if access else "",
                functions=frozenset({frames[0].function, own_frames(frames)[0][0].function}),
            )
        )
        asserted |= {frame.function for frame in asserting_frames(frames, dies_there=False)[:1]}
        text = disassembly.disassemble(fault, machine)
        lines += [f"{name or 'access'}: {text}  {access or ''}".rstrip(), *_stack(frames)]
    if ran.assertion is not None:
        place = table.placed(ran.assertion)
        asserted.add(place.file if place.function == NAMELESS else place.function)
        lines += ["assertion failed:", *_stack([place])]
    for report in ran.reports:
        lines += [f"{report.detector}: {report.access}", *_stack(report.frames)]
    reports = frozenset((report.detector, report.kind, report.frames[0].function) for report in ran.reports)
    named = {"faults": tuple(faults), "asserted": frozenset(asserted), "reports": reports}
    return msgspec.structs.replace(ran.seen, **named), lines


def _stack(frames: list[Frame]) -> list[str]:
    return [f"    {frame.function} ({frame.file}:{frame.line}) [{frame.origin}]" for frame in frames]
