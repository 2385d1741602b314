"""Shows a finding again: the same build, a fresh guest and the recorded requests, or the same unit."""

from __future__ import annotations

import base64
import contextlib
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness import (
    alignment,
    compare,
    disassembly,
    events,
    prepare,
    selftests,
    symbols,
    transcript,
    trees,
    unit_run,
)
from harness.assertion import asserted, asserting_frames
from harness.build import Builder, BuildFailedError
from harness.detector import own_frames, reports
from harness.difference import described
from harness.emulator import Emulators, native_runner
from harness.errors import ExitCode, PlumblineError
from harness.fetch import Fetcher
from harness.guest import Guest, StartError
from harness.load import select
from harness.machine_guest import SERVER, Host, guest_of
from harness.model import Noun
from harness.refusal import release_of
from harness.reproducer import Reproducer, files_of
from harness.resp import Client
from harness.selftests import build_program
from harness.stream import from_text, from_wire, read_stream, wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.console import Progress
    from harness.detector import Report
    from harness.emulator import Runner
    from harness.finding import Again, Frame
    from harness.load import Catalog
    from harness.model import SourceTree
    from harness.resp import Reply
    from harness.store import Store
    from harness.stream import Stream
    from harness.units import Units

COMPARED = "wrong-result"
"""The kind of finding that is shown again by comparing replies with the native build's."""


class Replay(Noun, frozen=True):
    """What a replay saw."""

    reproduced: bool
    text: str
    """What happened, for the reader."""


class CannotTellError(PlumblineError):
    """The tree has not what the reproducer needs."""

    exit_code = ExitCode.USAGE


SKIP_COMMIT, STOP_BISECTING = 125, 255
"""What `git bisect run` takes for a commit that cannot be tested, and for an end of the bisection (git-bisect(1))."""


def bisecting(shown: Callable[[], ExitCode]) -> int:
    """The exit code for `git bisect run`: what does not compile is not bad, and a full disk blames no commit."""
    try:
        return int(shown())
    except (BuildFailedError, CannotTellError) as error:
        told, code = str(error), SKIP_COMMIT
    except Exception as error:  # noqa: BLE001 - whatever it is, no commit is to blame
        told, code = str(error) or type(error).__name__, STOP_BISECTING
    except KeyboardInterrupt:
        told, code = "interrupted", STOP_BISECTING
    print(told, file=sys.stderr)  # noqa: T201 - what git shows between its commits
    return code


def _stack(frames: list[Frame]) -> list[str]:
    return [f"    {frame.function} ({frame.file}:{frame.line}) [{frame.origin}]" for frame in frames]


def _describe(faults: list[events.Fault], table: symbols.Symbols, machine: str) -> tuple[set[str], list[str]]:
    """The functions in which faults were recorded, and the records for the reader."""
    functions: set[str] = set()
    lines: list[str] = []
    for fault in faults:
        frames = table.backtrace(fault, machine)
        functions |= {frames[0].function, own_frames(frames)[0][0].function}
        functions |= {frame.function for frame in asserting_frames(frames, dies_there=False)[:1]}
        what = signal.Signals(fault.signal).name if fault.signal else "access"
        access = disassembly.access_of(fault, machine) if events.is_misaligned(fault) else ""
        lines.append(f"{what}: {disassembly.disassemble(fault, machine)}  {access}".rstrip())
        lines += _stack(frames)
    return functions, lines


def from_stream(path: Path, *, target: str, server: str) -> Reproducer:
    """A stream of commands (a .stream file) as a reproducer for a target. Raises UsageError."""
    chunk = transcript.Chunk(connection=1, direction="request", data=base64.b64encode(wire(read_stream(path))).decode())
    return Reproducer(
        finding=path.name,
        kind=COMPARED,
        function="",
        server=server,
        target=target,
        policy="signal",
        optimisation="O2",
        emulator="pinned",
        chunks=[chunk],
    )


def replay(
    catalog: Catalog, store: Store, progress: Progress, reproducer: Reproducer, *, server: str, offline: bool
) -> Replay:
    """Build (or take from the cache), run, and tell what came of it. `server` replaces the recorded."""
    fetcher = Fetcher(store, progress, offline=offline)
    target = catalog.targets[select("target", [reproducer.target], catalog.targets)[0]]
    tools = catalog.toolchain_of(target)
    tree = trees.open_server(catalog, fetcher, server or reproducer.server)
    emulators = Emulators(store, fetcher, progress, flavour="distro" if reproducer.emulator == "distro" else "pinned")
    policy = alignment.policy_for(catalog.policies, reproducer.policy, target)
    runner = emulators.runner(target, tools, policy, emulators.prepare([target.emulator]))
    built_for = catalog.targets[alignment.userland(target)]
    builder = Builder(store, progress)
    build = builder.build(tree, built_for, tools, reproducer.optimisation, reproducer.allocator)
    units = None
    if reproducer.unit:
        how = (reproducer.optimisation, reproducer.allocator)
        units = build_program(reproducer.program, builder, tree, built_for, tools, *how)
    with (
        tempfile.TemporaryDirectory(prefix="plumbline-replay-") as folder,
        contextlib.ExitStack() as others,
    ):
        host = None
        if target.emulator.kind == "system":
            programs = {SERVER: build.server_binary}
            if units is not None and units.program is not None:
                programs[unit_run.PLACES[units.kind]] = units.program
            machine = prepare.prepare_machine(catalog, store, fetcher, progress, target, programs, mode=policy.mode)
            host = Host(machine, Path(folder), sockets=Path(folder))
            others.callback(host.close)
        place = Path(folder) / "guest-1"
        if units is not None:
            seen = _run_unit(units, runner, reproducer, place, host)
        else:
            stream = _comparable_stream(reproducer)
            native = _native(catalog, builder, tree, place.parent, reproducer.optimisation) if stream else None
            guest = guest_of(
                build,
                runner,
                place,
                host=host,
                sockets=place.parent,
                version=tree.version,
                options=reproducer.options,
                files=files_of(reproducer),
            )
            seen = _run_server(guest, native, reproducer, stream)
    lines = [f"{tree.name} on {target.name}, -{build.optimisation}, policy {reproducer.policy}: {seen.end}"]
    table = symbols.Symbols(tools.triple, str(build.server_binary))
    functions, told = _describe(seen.faults, table, target.emulator.qemu)
    if seen.assertion is not None:
        asserting = table.placed(seen.assertion)
        functions.add(asserting.function)
        told += ["assertion failed:", *_stack([asserting])]
    lines += told
    for report in seen.reports:
        lines += [f"{report.detector}: {report.access}", *_stack(report.frames)]
    return Replay(reproduced=_is_the_same(reproducer, seen, functions), text="\n".join(lines))


def _is_the_same(reproducer: Reproducer, seen: _Seen, functions: set[str]) -> bool:
    """Whether what was seen is the finding: its report, a fault in its function, or what is wrong without either."""
    if reproducer.detector in {"ubsan", "asan", "valgrind"}:
        same = (reproducer.detector, reproducer.kind, reproducer.function)
        return same in {(report.detector, report.kind, report.frames[0].function) for report in seen.reports}
    return reproducer.function in functions if reproducer.function else seen.wrong


class _Seen(Noun, frozen=True):
    end: str
    """How it ended, for the reader."""
    wrong: bool
    """What counts where no function was seen: it died, or it wrote the wrong line again."""
    faults: list[events.Fault]
    reports: list[Report]
    assertion: Frame | None


def _run_server(guest: Guest, native: Guest | None, reproducer: Reproducer, stream: Stream) -> _Seen:
    """A fresh guest is sent the recorded requests; beside the native build, if there is one, for comparison."""
    difference, came = None, False
    try:
        with guest:
            if reproducer.again is not None:
                came = _comes_again(guest, reproducer.again)
            elif native is None:
                transcript.send_again(guest.recorded_path, reproducer.chunks, reply_seconds=guest.deadline_seconds)
            else:
                with native:
                    difference = _compare(guest, native, stream)
            if guest.died_of_fault(0) or asserted(guest.log.read_bytes()):
                guest.settle()
            alive = guest.alive()
            end = "it answered every request and lives on" if alive else guest.detail
    except StartError as error:
        # A file that it refuses is not taken for something else any more.
        alive, end = reproducer.again is not None and guest.end == "exit", str(error)
    if came and reproducer.difference is not None:
        end = f"{end}\nagain: {described(reproducer.difference)}"
    if difference is not None:
        end = f"{end}\ndiffers: {difference}"
    elif native is not None and (names := compare.uncompared(stream)):
        end = f"{end}\nnot compared, for two right servers answer differently: {', '.join(names)}"
    return _Seen(
        end=end,
        wrong=not alive or came or difference is not None,
        faults=events.read_faults(guest.fault_log),
        reports=guest.reports(0),
        assertion=asserted(guest.log.read_bytes()),
    )


def _comes_again(guest: Guest, again: Again) -> bool:
    """Whether a file that it writes, or its last reply, has the wrong bytes once more."""
    with Client.at_socket(guest.recorded_path, deadline_seconds=guest.deadline_seconds) as client:
        replies = compare.ask(client, from_text("\n".join(again.requests)))
    content = guest.read(again.file) if again.file else replies[-1]
    return isinstance(content, bytes) and bytes.fromhex(again.wrong) in content


def _run_unit(units: Units, runner: Runner, reproducer: Reproducer, place: Path, host: Host | None) -> _Seen:
    """The unit runs once more. Raises CannotTellError where the server has it no more."""
    unit = reproducer.unit
    why = units.absent.get(unit) or units.broken.get(unit)
    if units.program is None or why:
        raise CannotTellError(
            f"the server has no unit {unit}", where=reproducer.server, because=why or "nothing was linked"
        )
    if host is None:
        ran = unit_run.run_emulated(units, runner, unit, place)
    else:
        ran = unit_run.run_on_machine(units, host.machine(), runner.target.slowdown, unit, place)
    own = units.kind == "selftests"
    lines = selftests.lines(ran) if own else unit_run.lines(ran)
    complete = not selftests.complaints(ran) if own else unit_run.complete(ran, unit)
    end = unit_run.how_it_ended(ran, complete=complete)
    if reproducer.wrong_line in lines:
        end = f"{end}, and wrote again: {reproducer.wrong_line:.200}"
    detector = runner.target.emulator.detector
    return _Seen(
        end=f"{'self-test' if own else 'unit'} {unit}: {end}",
        wrong=reproducer.wrong_line in lines if reproducer.wrong_line else not complete,
        faults=events.read_faults(place / "faults.jsonl"),
        reports=reports(ran.output, detector) if detector else [],
        assertion=asserted(ran.output),
    )


def _comparable_stream(reproducer: Reproducer) -> Stream:
    """The commands of a finding that is a difference, connection after connection; none of another or with noise."""
    if reproducer.kind != COMPARED or reproducer.again is not None:
        return ()
    sent = [chunk for chunk in reproducer.chunks if chunk.direction == "request"]
    streams = [
        b"".join(chunk.content for chunk in sent if chunk.connection == one)
        for one in dict.fromkeys(chunk.connection for chunk in sent)
    ]
    commands = [from_wire(content) for content in streams]
    whole = all(wire(stream) == content for stream, content in zip(commands, streams, strict=True))
    return tuple(one for stream in commands for one in stream) if whole else ()


def _native(catalog: Catalog, builder: Builder, tree: SourceTree, folder: Path, optimisation: str) -> Guest:
    """The oracle: the native build of the same source."""
    target = catalog.targets["native"]
    build = builder.build(tree, target, catalog.toolchain_of(target), optimisation)
    return Guest(build, native_runner(catalog), folder / "native", sockets=folder, version=tree.version)


def _compare(guest: Guest, native: Guest, stream: Stream) -> compare.Difference | None:
    """The first command that both answer differently; None also if the guest did not answer all."""
    answers: list[list[Reply]] = []
    with contextlib.suppress(OSError):
        for one in (native, guest):
            with Client.at_socket(one.recorded_path, deadline_seconds=one.deadline_seconds) as client:
                compare.ask(client, compare.EMPTY)
                answers.append([])
                compare.ask_into(answers[-1], client, stream)
    if len(answers) < 2:
        return None
    release = release_of(guest.build.server_binary, guest.version)
    return compare.first_difference(stream, answers[1], answers[0], guest.runner.target, release)
