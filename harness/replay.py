"""Shows a finding again: the same build, a fresh guest, the recorded requests."""

from __future__ import annotations

import contextlib
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness import alignment, check, codec, events, symbols, transcript
from harness.build import Builder
from harness.emulator import Emulators
from harness.errors import UsageError
from harness.fetch import Fetcher
from harness.guest import Guest, StartError
from harness.judge import Reproducer
from harness.load import select
from harness.machine_guest import SERVER, Host, MachineGuest
from harness.model import Noun

if TYPE_CHECKING:
    from harness.console import Progress
    from harness.load import Catalog
    from harness.model import Frame
    from harness.store import Store


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
        functions.add(frames[0].function)
        what = signal.Signals(fault.signal).name if fault.signal else "access"
        access = symbols.access_of(fault, machine) if events.is_misaligned(fault) else ""
        lines.append(f"{what}: {symbols.disassemble(fault, machine)}  {access}".rstrip())
        lines += _stack(frames)
    return functions, lines


def replay(
    catalog: Catalog, store: Store, progress: Progress, reproducer: Reproducer, *, server: str, offline: bool
) -> Replay:
    """Build (or take from the cache), start, send, and tell what came of it. `server` replaces the recorded."""
    fetcher = Fetcher(store, progress, offline=offline)
    target = catalog.targets[select("target", [reproducer.target], catalog.targets)[0]]
    tools = catalog.toolchain_of(target)
    tree = check.open_server(catalog, fetcher, server or reproducer.server)
    emulators = Emulators(store, fetcher, progress, flavour="distro" if reproducer.emulator == "distro" else "pinned")
    policy = alignment.policy_for(catalog.policies, reproducer.policy, target)
    runner = emulators.runner(target, tools, policy, emulators.prepare([target.emulator]))
    built_for = catalog.targets[alignment.userland(target)]
    build = Builder(store, progress).build(tree, built_for, tools, reproducer.optimisation)
    with (
        tempfile.TemporaryDirectory(prefix="plumbline-replay-") as folder,
        contextlib.ExitStack() as machines,
    ):
        place = Path(folder) / "guest-1"
        guest = Guest(build, runner, place, sockets=Path(folder), version=tree.version)
        if target.emulator.kind == "system":
            machine = check.prepare_machine(
                catalog, store, fetcher, progress, target, {SERVER: build.server_binary}, mode=policy.mode
            )
            host = Host(machine, Path(folder), sockets=Path(folder))
            machines.callback(host.close)
            guest = MachineGuest(build, runner, place, host=host, version=tree.version)
        try:
            with guest:
                transcript.send_again(guest.endpoint[1], reproducer.chunks, reply_seconds=guest.deadline_seconds)
                if guest.died_of_fault(0):
                    guest.settle()
                alive = guest.alive()
                end = "it answered every request and lives on" if alive else guest.detail
        except StartError as error:
            alive, end = False, str(error)
        lines = [f"{tree.name} on {target.name}, -{build.optimisation}, policy {reproducer.policy}: {end}"]
        table = symbols.Symbols(tools.triple, str(build.server_binary))
        functions, told = _describe(events.read_faults(guest.fault_log), table, target.emulator.qemu)
        lines += told
        reported = guest.reports(0)
    for report in reported:
        lines += [f"{report.detector}: {report.access}", *_stack(report.frames)]
    if reproducer.detector in {"ubsan", "asan", "valgrind"}:
        same = (reproducer.detector, reproducer.kind, reproducer.function)
        reproduced = same in {(report.detector, report.kind, report.frames[0].function) for report in reported}
    else:
        reproduced = reproducer.function in functions if reproducer.function else not alive
    return Replay(reproduced=reproduced, text="\n".join(lines))
