"""Reproduces a finding: the same build, a fresh guest and the recorded requests, or the same unit.

The modules `…_rerun` beside it observe what happens, and harness.workflows.replay.recurrence decides whether that is
the finding.
"""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import disassembly, symbols
from harness.analysis.assertion_log import asserting_frames
from harness.analysis.detectors.registry import own_frames
from harness.build.executed_blocks import code_of
from harness.build.workshop.build_directory import BuildFailedError
from harness.core.errors import ExitCode, UsageError
from harness.core.model import Record, level_flags
from harness.judge.reproducer import Reproducer
from harness.judge.sightings.places import FORBIDDEN_CALL
from harness.plan.name_selection import select
from harness.protocol.command_stream import read_stream
from harness.record import fault_log
from harness.record.executed_blocks.process_blocks import ProcessBlocks
from harness.run import silence_check
from harness.run.server_process import Guest
from harness.run.vm.guest import VirtualMachine, guest_of
from harness.workflows.replay.program_rerun import run_program
from harness.workflows.replay.recorded_requests import chunks_of
from harness.workflows.replay.recurrence import (
    NAMELESS,
    RECORDED,
    STREAM,
    WRONG_RESULT,
    ObservedFault,
    Outcome,
    Recurrence,
    is_same_assertion,
    is_same_fault,
    recurrence,
)
from harness.workflows.replay.server_rerun import recorded_server, run_server
from harness.workflows.replay.shown_records import ShownRecord, lines_of
from harness.workflows.replay.unit_rerun import run_unit
from harness.workflows.replay.upstream_rerun import run_upstream
from harness.workflows.target_setup import emulated_target, oracle_setup, set_up_target

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.build.emulators.runner import Runner
    from harness.build.unit_drivers import Units
    from harness.core.model import Allocator, Build, Flavour, SourceTree
    from harness.core.target_model import Target
    from harness.run.servers.server_spec import ServerSpec
    from harness.workflows.replay.recurrence import Observation
    from harness.workflows.replay.replayed_run import ReplayedRun
    from harness.workflows.target_setup import TargetSetup
    from harness.workflows.workbench import Workbench


class Replay(Record, frozen=True):
    """The result of a replay."""

    outcome: Outcome
    reason: str
    """Why the outcome is unknown; empty where the finding is reproduced or gone."""
    machine: bool
    """Whether an unknown outcome is this machine's fault, not the tree's."""
    text: str
    """A description of what happened."""


EXIT_CODES = {"reproduced": ExitCode.FINDINGS, "gone": ExitCode.PASS, "unknown": ExitCode.INCONCLUSIVE}
SKIP_COMMIT, STOP_BISECTING = 125, 255
"""Exit codes with which `git bisect run` skips a commit and stops the bisection (git-bisect(1))."""


def bisect_exit_code(run: Callable[[], Replay]) -> int:
    """Replay, and return the exit code for `git bisect run`.

    A tree whose outcome is unknown is skipped. A problem of this machine, such as a full disk, stops the bisection,
    because it must not be blamed on a commit.
    """
    try:
        result = run()
    except Exception as error:  # noqa: BLE001 - no exception is a commit's fault
        problem = str(error) or type(error).__name__
    except KeyboardInterrupt:
        problem = "interrupted"
    else:
        if result.outcome == "unknown":
            return STOP_BISECTING if result.machine else SKIP_COMMIT
        return int(EXIT_CODES[result.outcome])
    print(problem, file=sys.stderr)  # noqa: T201 - git shows it between its commits
    return STOP_BISECTING


def text_of(result: Replay, finding: str) -> str:
    """The result for a person, with the answer last."""
    answer = {"reproduced": "reproduced", "gone": "not reproduced", "unknown": "could not tell"}[result.outcome]
    why = f"\n  because: {result.reason}" if result.reason else ""
    return f"{result.text}\n{answer}: {finding}{why}"


def from_stream(path: Path, *, target: str, server: str) -> Reproducer:
    """A stream of commands (a .stream file) as a reproducer for a target. Raises UsageError."""
    return Reproducer(
        finding=path.name,
        kind=WRONG_RESULT,
        function="",
        server=server,
        target=target,
        policy="signal",
        optimisation="O2",
        emulator="pinned",
        chunks=chunks_of(read_stream(path)),
        detector=STREAM,
    )


def replay(bench: Workbench, reproducer: Reproducer, *, server: str) -> Replay:
    """Build (or take from the cache), run, and compare with the finding. `server` replaces the recorded one.

    Raises PlumblineError for a problem that is not the server's fault.
    """
    if reproducer.launch is not None:
        return _replay_program(bench, reproducer)
    return Replayer(bench, reproducer, server=server).replay(reproducer)


def _replay_program(bench: Workbench, reproducer: Reproducer) -> Replay:
    """Run a program of the user's, or a whole command, once more."""
    setup = set_up_target(bench, emulated_target(bench.catalog, reproducer.target))
    with tempfile.TemporaryDirectory(prefix="plumbline-replay-") as name:
        folder = Path(name)
        ran, table = run_program(setup, reproducer, folder)
        observation, lines = _named(reproducer, ran, table, setup.target)
        ended = recurrence(reproducer, observation)
        if ended.outcome == "gone" and reproducer.detector in RECORDED:
            runner = setup.runner(reproducer.policy)
            why = silence_check.why_blind(bench.cache, runner, setup.toolchain, folder, None)
            ended = Recurrence(outcome="unknown", reason=why, machine=True) if why else ended
    head = f"{reproducer.command} on {setup.target.name}, policy {reproducer.policy}"
    text = "\n".join([f"{head}: {observation.end}", *lines])
    return Replay(outcome=ended.outcome, reason=ended.reason, machine=ended.machine, text=text)


class Replayer:
    """Replays variants of a reproducer that differ in their requests alone: their tree and target are opened once."""

    def __init__(self, bench: Workbench, reproducer: Reproducer, *, server: str) -> None:
        bench = bench.with_toolchain(reproducer.toolchain)
        catalog = bench.catalog
        target = catalog.targets[select("target", [reproducer.target], catalog.targets)[0]]
        self._tree = bench.open_server(server or reproducer.server, reproducer.settings, packages=True)
        flavour: Flavour = "distro" if reproducer.emulator == "distro" else "pinned"
        self.setup = set_up_target(bench, target, flavour=flavour)

    def replay(self, reproducer: Reproducer, *, silence_proved: bool = True) -> Replay:
        """Run one of them. Without `silence_proved` no canary proves that a finding which does not come is gone."""
        return self._replay(_Replayed(self.setup, self._tree, reproducer), silence_proved=silence_proved)

    def build(self, reproducer: Reproducer) -> Build:
        """The build of the target that a reproducer runs."""
        return self.setup.build(self._tree, reproducer.optimisation, reproducer.allocator, tls=reproducer.tls)

    def replay_covered(self, reproducer: Reproducer, plugin: Path) -> tuple[Replay, frozenset[int]]:
        """Run one of them, and see which addresses of its program the server executed meanwhile.

        `plugin`: what notes executed blocks. No canary proves that a finding which does not come is gone.
        """
        replayed = _Replayed(self.setup, self._tree, reproducer, plugin)
        result = self._replay(replayed, silence_proved=False)
        return result, frozenset(replayed.executed)

    def _replay(self, replayed: _Replayed, *, silence_proved: bool) -> Replay:
        reproducer = replayed.reproducer
        levels = " ".join([*level_flags(reproducer.optimisation), *reproducer.settings.words])
        head = f"{self._tree.name} on {self.setup.target.name}, {levels}, policy {reproducer.policy}"
        try:
            ended, text = replayed.run(silence_proved=silence_proved)
        except BuildFailedError as error:
            ended, text = _of_failed_build(reproducer, error), str(error)
        return Replay(outcome=ended.outcome, reason=ended.reason, machine=ended.machine, text=f"{head}: {text}")


def _of_failed_build(reproducer: Reproducer, error: BuildFailedError) -> Recurrence:
    """A tree that does not compile can only reproduce a build failure, and only with the same first error."""
    if reproducer.kind != BUILD:
        return Recurrence(outcome="unknown", reason="the tree does not compile")
    first = _without_numbers(error.because).splitlines()[:1]
    if first and first[0] in _without_numbers(reproducer.detail):
        return Recurrence(outcome="reproduced")
    return Recurrence(outcome="unknown", reason="the tree does not compile, for another reason")


BUILD = "build"
"""The kind of a finding whose tree does not compile."""


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "N", text)


class _Replayed:
    """One reproducer on one source tree."""

    def __init__(
        self, setup: TargetSetup, tree: SourceTree, reproducer: Reproducer, plugin: Path | None = None
    ) -> None:
        """`plugin`: what notes the blocks that the server executes."""
        self.setup = setup
        self.tree = tree
        self.reproducer = reproducer
        self.executed: set[int] = set()
        """With a plugin, the addresses that the server has executed."""
        self._plugin = plugin

    def run(self, *, silence_proved: bool) -> tuple[Recurrence, str]:
        """Whether the finding came again, and what happened. Raises BuildFailedError."""
        reproducer, setup = self.reproducer, self.setup
        runner = setup.runner(reproducer.policy, reproducer.environment)
        build = self._with_preload(setup, self._build(setup, reproducer.allocator))
        if reproducer.kind == BUILD:
            return Recurrence(outcome="gone"), "it compiles"
        units = self._units() if reproducer.unit else None
        if units is not None and (why := self._lacks(units)):
            return Recurrence(outcome="unknown", reason=f"the server has no unit {reproducer.unit}"), why
        # It has the programs of a check, whose saved state may be in the cache.
        image = setup.server_image(build, [units] if units else [], runner.policy)
        with (
            tempfile.TemporaryDirectory(prefix="plumbline-replay-") as name,
            contextlib.ExitStack() as others,
        ):
            folder = Path(name)
            host = VirtualMachine(image, folder, sockets=folder) if image is not None else None
            if host is not None:
                others.callback(host.close)
            ran = self._ran(build, units, runner, folder, host)
            table = symbols.Symbols(setup.toolchain.prefix, str(build.server_binary))
            observation, lines = _named(reproducer, ran, table, setup.target)
            ended = recurrence(reproducer, observation)
            if ended.outcome == "gone" and reproducer.detector in RECORDED and silence_proved:
                # A finding is gone only where the replay would have seen it.
                why = silence_check.why_blind(setup.bench.cache, runner, setup.toolchain, folder, host)
                ended = Recurrence(outcome="unknown", reason=why, machine=True) if why else ended
        return ended, "\n".join([observation.end, *lines])

    def _build(self, setup: TargetSetup, allocator: Allocator) -> Build:
        reproducer = self.reproducer
        return setup.build(self.tree, reproducer.optimisation, allocator, tls=reproducer.tls)

    def _units(self) -> Units:
        reproducer = self.reproducer
        return self.setup.units(reproducer.program, self.tree, reproducer.optimisation, reproducer.allocator)

    def _with_preload(self, setup: TargetSetup, build: Build) -> Build:
        """The build whose servers preload a suite's shared object, if the finding's server did."""
        if not self.reproducer.preload:
            return build
        suites = setup.bench.catalog.suites
        suite = suites[select("suite", [self.reproducer.preload], suites)[0]]
        if not suite.preload:
            raise UsageError(f"the suite {suite.name} has nothing to preload", where=self.reproducer.finding)
        return msgspec.structs.replace(build, preload=setup.module(suite.path / suite.preload, self.tree))

    def _lacks(self, units: Units) -> str:
        """Why the unit cannot be called."""
        unit = self.reproducer.unit
        why = units.absent.get(unit) or units.broken.get(unit) or ""
        return why or ("" if units.program is not None else "nothing was linked")

    def _ran(
        self, build: Build, units: Units | None, runner: Runner, folder: Path, host: VirtualMachine | None
    ) -> ReplayedRun:
        reproducer = self.reproducer
        if reproducer.upstream:
            return run_upstream(self.setup, self.tree, reproducer, build, runner, folder)
        if units is not None:
            return run_unit(units, runner, reproducer, folder / "guest-1", host)

        watched: list[ProcessBlocks] = []
        code = code_of(build.server_binary, runner.target.emulator.qemu) if self._plugin else None
        recorded = recorded_server(build, self.tree, reproducer)

        def guest(name: str, spec: ServerSpec) -> Guest:
            made = guest_of(spec, runner, folder / name, host=host, sockets=folder)
            if self._plugin is not None and code is not None:
                place, starts = folder / f"{name}.blocks", bool(spec.files)
                made.execution = ProcessBlocks(self._plugin, build.server_binary, place, code, counts_start=starts)
                watched.append(made.execution)
            return made

        def bare() -> Guest:
            return guest("guest-2", msgspec.structs.replace(recorded, files={}))

        def oracle() -> Guest:
            setup = oracle_setup(self.setup.bench)
            # The same clock, files and options: whatever else determines a reply is not the machine.
            native = msgspec.structs.replace(recorded, build=self._with_preload(setup, self._build(setup, "libc")))
            return Guest(native, setup.runner("signal"), folder / setup.target.name, sockets=folder)

        try:
            return run_server(guest("guest-1", recorded), reproducer, oracle, bare)
        finally:
            for each in watched:
                self.executed |= each.served_addresses()
                each.close()


def _named(
    reproducer: Reproducer, ran: ReplayedRun, table: symbols.Symbols, target: Target
) -> tuple[Observation, list[str]]:
    """The observation with the names of functions, and lines that show the records to a person."""
    machine = target.emulator.qemu
    faults: list[ObservedFault] = []
    asserted: set[str] = set()
    records: list[ShownRecord] = []
    for fault in ran.faults:
        frames = table.backtrace(fault, machine)
        name = fault_log.signal_name(fault.signal) if fault.signal else ""
        access = disassembly.access_of(fault, machine) if fault_log.is_misaligned(fault) else None
        faults.append(
            ObservedFault(
                misaligned=access is not None,
                signal=FORBIDDEN_CALL if fault.call_number >= 0 else name.lower(),
                direction=access.direction if access else "",
                functions=frozenset({frames[0].function, own_frames(frames)[0][0].function}),
            )
        )
        asserting = {frame.function for frame in asserting_frames(frames, dies_there=False)[:1]}
        asserted |= asserting
        what = f"{disassembly.disassemble(fault, machine)}  {access or ''}"
        if fault.call_number >= 0:
            what = f"{frames[0].function} ({fault.call_number}) is forbidden"
        heading = f"{name or 'access'}: {what}".rstrip()
        same = is_same_fault(reproducer, faults[-1]) or is_same_assertion(reproducer, asserting)
        records.append(ShownRecord(heading=heading, frames=frames, same=same))
    if ran.assertion is not None:
        place = table.placed(ran.assertion)
        named_place = {place.file if place.function == NAMELESS else place.function}
        asserted |= named_place
        same = is_same_assertion(reproducer, named_place)
        records.append(ShownRecord(heading="assertion failed:", frames=[place], same=same))
    reports = [(report.detector, report.kind, report.frames[0].function) for report in ran.reports]
    for report, key in zip(ran.reports, reports, strict=True):
        same = key == (reproducer.detector, reproducer.kind, reproducer.function)
        heading = f"{report.detector}: {report.access}"
        records.append(ShownRecord(heading=heading, frames=report.frames, same=same))
    named = {"faults": tuple(faults), "asserted": frozenset(asserted), "reports": frozenset(reports)}
    return msgspec.structs.replace(ran.observation, **named), lines_of(records)
