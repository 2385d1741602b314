"""Shows a finding again: the same build, a fresh guest and the recorded requests, or the same unit."""

from __future__ import annotations

import contextlib
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness import alignment, check, codec, events, symbols, transcript, unit_run
from harness.build import Builder
from harness.detector import own_frames, reports
from harness.emulator import Emulators
from harness.errors import UsageError
from harness.fetch import Fetcher
from harness.guest import StartError
from harness.judge import Reproducer
from harness.load import select
from harness.machine_guest import SERVER, UNITS, Host, guest_of
from harness.model import Noun
from harness.units import build_units

if TYPE_CHECKING:
    from harness.console import Progress
    from harness.detector import Report
    from harness.emulator import Runner
    from harness.load import Catalog
    from harness.model import Build, Frame, SourceTree
    from harness.store import Store
    from harness.units import Units


class Replay(Noun, frozen=True):
    """What a replay saw."""

    reproduced: bool
    text: str
    """What happened, for the reader."""


def read_reproducer(name: str) -> Reproducer:
    """Read RUN/reproducers/ID.json. Raises UsageError when there is none."""
    path = Path(name)
    if not path.is_file():
        raise UsageError(
            "no such reproducer", where=name, remedy="the report's `replay` line names it: RUN/reproducers/ID.json"
        )
    try:
        return codec.decode(path.read_bytes(), Reproducer)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UsageError("not a reproducer", where=name, because=str(error)) from error


def _stack(frames: list[Frame]) -> list[str]:
    return [f"    {frame.function} ({frame.file}:{frame.line}) [{frame.origin}]" for frame in frames]


def _describe(faults: list[events.Fault], table: symbols.Symbols, machine: str) -> tuple[set[str], list[str]]:
    """The functions in which faults were recorded, and the records for the reader."""
    functions: set[str] = set()
    lines: list[str] = []
    for fault in faults:
        frames = table.backtrace(fault, machine)
        functions |= {frames[0].function, own_frames(frames)[0][0].function}
        what = signal.Signals(fault.signal).name if fault.signal else "access"
        access = symbols.access_of(fault, machine) if events.is_misaligned(fault) else ""
        lines.append(f"{what}: {symbols.disassemble(fault, machine)}  {access}".rstrip())
        lines += _stack(frames)
    return functions, lines


def replay(
    catalog: Catalog, store: Store, progress: Progress, reproducer: Reproducer, *, server: str, offline: bool
) -> Replay:
    """Build (or take from the cache), run, and tell what came of it. `server` replaces the recorded."""
    fetcher = Fetcher(store, progress, offline=offline)
    target = catalog.targets[select("target", [reproducer.target], catalog.targets)[0]]
    tools = catalog.toolchain_of(target)
    tree = check.open_server(catalog, fetcher, server or reproducer.server)
    emulators = Emulators(store, fetcher, progress, flavour="distro" if reproducer.emulator == "distro" else "pinned")
    policy = alignment.policy_for(catalog.policies, reproducer.policy, target)
    runner = emulators.runner(target, tools, policy, emulators.prepare([target.emulator]))
    built_for = catalog.targets[alignment.userland(target)]
    builder = Builder(store, progress)
    build = builder.build(tree, built_for, tools, reproducer.optimisation, reproducer.allocator)
    units = build_units(builder, tree, built_for, tools, reproducer.optimisation) if reproducer.unit else None
    with (
        tempfile.TemporaryDirectory(prefix="plumbline-replay-") as folder,
        contextlib.ExitStack() as machines,
    ):
        host = None
        if target.emulator.kind == "system":
            programs = {SERVER: build.server_binary}
            if units is not None and units.program is not None:
                programs[UNITS] = units.program
            machine = check.prepare_machine(catalog, store, fetcher, progress, target, programs, mode=policy.mode)
            host = Host(machine, Path(folder), sockets=Path(folder))
            machines.callback(host.close)
        place = Path(folder) / "guest-1"
        if units is not None:
            seen = _run_unit(units, runner, reproducer, place, host)
        else:
            seen = _run_server(build, runner, tree, reproducer, place, host)
    lines = [f"{tree.name} on {target.name}, -{build.optimisation}, policy {reproducer.policy}: {seen.end}"]
    table = symbols.Symbols(tools.triple, str(build.server_binary))
    functions, told = _describe(seen.faults, table, target.emulator.qemu)
    lines += told
    for report in seen.reports:
        lines += [f"{report.detector}: {report.access}", *_stack(report.frames)]
    if reproducer.detector in {"ubsan", "asan", "valgrind"}:
        same = (reproducer.detector, reproducer.kind, reproducer.function)
        reproduced = same in {(report.detector, report.kind, report.frames[0].function) for report in seen.reports}
    else:
        reproduced = reproducer.function in functions if reproducer.function else seen.wrong
    return Replay(reproduced=reproduced, text="\n".join(lines))


class _Seen(Noun, frozen=True):
    end: str
    """How it ended, for the reader."""
    wrong: bool
    """What counts where no function was seen: it died, or it wrote the wrong line again."""
    faults: list[events.Fault]
    reports: list[Report]


def _run_server(
    build: Build, runner: Runner, tree: SourceTree, reproducer: Reproducer, place: Path, host: Host | None
) -> _Seen:
    """A fresh guest is sent the recorded requests."""
    guest = guest_of(build, runner, place, host=host, sockets=place.parent, version=tree.version)
    try:
        with guest:
            transcript.send_again(guest.endpoint[1], reproducer.chunks, reply_seconds=guest.deadline_seconds)
            if guest.died_of_fault(0):
                guest.settle()
            alive = guest.alive()
            end = "it answered every request and lives on" if alive else guest.detail
    except StartError as error:
        alive, end = False, str(error)
    return _Seen(end=end, wrong=not alive, faults=events.read_faults(guest.fault_log), reports=guest.reports(0))


def _run_unit(units: Units, runner: Runner, reproducer: Reproducer, place: Path, host: Host | None) -> _Seen:
    """The unit runs once more. Raises UsageError where the server has it no more."""
    unit = reproducer.unit
    why = units.absent.get(unit) or units.broken.get(unit)
    if units.program is None or why:
        raise UsageError(f"the server has no unit {unit}", where=reproducer.server, because=why or "nothing was linked")
    if host is None:
        ran = unit_run.run_emulated(units.program, runner, unit, place)
    else:
        ran = unit_run.run_on_machine(UNITS, host.machine(), runner.target.slowdown, unit, place)
    lines, end = unit_run.lines(ran), unit_run.end_of(ran, unit)
    if reproducer.wrong_line in lines:
        end = f"{end}, and wrote again: {reproducer.wrong_line:.200}"
    detector = runner.target.emulator.detector
    return _Seen(
        end=f"unit {unit}: {end}",
        wrong=reproducer.wrong_line in lines if reproducer.wrong_line else not unit_run.complete(ran, unit),
        faults=events.read_faults(place / "faults.jsonl"),
        reports=reports(ran.output, detector) if detector else [],
    )
