"""Sightings of programs of a traced command that ended badly: the program is their unit, whatever else the command ran.

Each has the program's own command line, the end of its output, and its place among the ends.
"""

from __future__ import annotations

import itertools
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis.program_traits.failure_message import NAMELESS, asserted_place, checked_place, last_line
from harness.analysis.program_traits.program_types import unlike_host
from harness.analysis.symbols import PROGRAM, from_line
from harness.core import untrusted_text
from harness.core.digests import key_of
from harness.core.finding import UNKNOWN_FILE
from harness.judge.program_runs.program_evidence import listed
from harness.judge.sightings.places import BEFORE_MAIN, of_caller, symbols_of
from harness.judge.sightings.sighting import Sighting, as_name, assertion_title, fields_of
from harness.record import fault_log, program_launch, stored_run

if TYPE_CHECKING:
    from harness.analysis.symbols import Symbols
    from harness.core.finding import Frame
    from harness.record.cell_events import GuestEvent, TestEvent
    from harness.record.fault_log import ProcessEnd
    from harness.record.run_record import CellRecord, RunRecord

LONGEST_MESSAGE = 200
"""Characters of a program's last line in a title."""
LONGEST_NAME = 60
"""Characters of a command line in an id."""
ENDED = "process"
"""What saw the end of a program that no instruction's fault explains."""


def from_crash(run: RunRecord, record: CellRecord, guest: Path, end: ProcessEnd, test: TestEvent | None) -> Sighting:
    """The sighting of a program that died of a signal without a fault record, for example by abort()."""
    name = fault_log.signal_name(end.signal)
    program, said = _name(guest), program_launch.read_said(guest)
    frames, is_named = _stack(run, record, guest, end.pid, said)
    function = frames[0].function if frames else NAMELESS
    where = f" in {function}" if function != NAMELESS else ""
    sighting = _ended(
        run,
        record,
        guest,
        test,
        kind="crash",
        identity=f"crash-{as_name(program)}-{name}",
        title=_with_message(f"{program} was killed by {name}{where}", said),
        detail=f"killed by {name}",
        frames=frames,
    )
    if not is_named or end.signal != signal.SIGABRT or function == NAMELESS:
        return sighting
    return msgspec.structs.replace(
        sighting,
        kind="assertion",
        identity=f"assertion-{as_name(function)}",
        title=_with_message(assertion_title(function), said),
    )


def from_failure(
    run: RunRecord, record: CellRecord, guest: Path, event: GuestEvent, test: TestEvent | None
) -> Sighting:
    """The sighting of a program whose status, or a signal that another process sent, is why its command failed."""
    program, said = _name(guest), program_launch.read_said(guest)
    status = event.detail.rpartition(" ")[2]
    frames, _ = _stack(run, record, guest, event.pid, said)
    if event.detail.startswith("exited") and not (frames and frames[0].line):
        frames = _main(run, record, guest, event.pid) or frames
    return _ended(
        run,
        record,
        guest,
        test,
        kind="exit",
        identity=f"exit-{_command_in_id(guest, program)}-{status}",
        title=_with_message(f"{program} {'was ' * event.detail.startswith('killed')}{event.detail}", said),
        detail=event.detail,
        frames=frames,
    )


def _ended(
    run: RunRecord,
    record: CellRecord,
    guest: Path,
    test: TestEvent | None,
    *,
    kind: str,
    identity: str,
    title: str,
    detail: str,
    frames: list[Frame],
) -> Sighting:
    program = symbols_of(run, record, guest).program
    return Sighting(
        kind=kind,
        title=title,
        frames=frames,
        instruction="",
        access="",
        direction="",
        target=record.target,
        suite=record.suite,
        command=_command(guest),
        evidence=str(guest / ("log" if (guest / "log").is_file() else fault_log.NAME)),
        detector=ENDED,
        identity=identity,
        detail=detail,
        unlike=unlike_host(program.path) if program is not None else "",
        launched=guest,
        **fields_of(test, None),
    )


def _name(guest: Path) -> str:
    launch = program_launch.read_launch(guest)
    return launch.name if launch is not None else guest.name


def _command(guest: Path) -> str:
    launch = program_launch.read_launch(guest)
    return launch.text if launch is not None else ""


def _with_message(text: str, said: str) -> str:
    message = last_line(said)
    cut = f"{message[:LONGEST_MESSAGE]}…" if len(message) > LONGEST_MESSAGE else message
    return f"{text}: {cut}" if cut else text


def _stack(run: RunRecord, record: CellRecord, guest: Path, pid: int, said: str) -> tuple[list[Frame], bool]:
    """Where a program's process ended, innermost first, and whether the program's output named that place.

    The stack begins in the program's own code. Empty without such a place, and if the debug information does not know
    it.
    """
    table = symbols_of(run, record, guest)
    last = stored_run.read_fault_log(guest / fault_log.NAME).lasts.get(pid)
    frames = table.backtrace(last, run.machines[record.target].emulator.qemu) if last is not None else []
    own = list(itertools.takewhile(lambda frame: frame.function not in BEFORE_MAIN, of_caller(frames)[0]))
    named = _named_place(table, said)
    if named is None:
        lined = from_line(own)[0]
        return (lined if lined and lined[0].origin == PROGRAM else []), False
    around = next((number for number, frame in enumerate(frames) if frame.function == named.function), None)
    return [named, *(frames[around + 1 :] if around is not None else [])], True


def _named_place(table: Symbols, said: str) -> Frame | None:
    """The place that a program's output names, with its function if the debug information knows it."""
    named, checked = asserted_place(said), checked_place(said)
    if named is not None:
        return table.placed(named)
    placed = table.placed(checked) if checked is not None else None
    return placed if placed is not None and placed.function != NAMELESS else None


def _main(run: RunRecord, record: CellRecord, guest: Path, pid: int) -> list[Frame]:
    """The function main() of a program that exited, if the stack shows that what had called main() called exit()."""
    table = symbols_of(run, record, guest)
    last = stored_run.read_fault_log(guest / fault_log.NAME).lasts.get(pid)
    frames = table.backtrace(last, run.machines[record.target].emulator.qemu) if last is not None else []
    if not any(frame.function.startswith(_CALLS_MAIN) for frame in frames):
        # The dynamic loader exits, too, if it does not find a library.
        return []
    main = table.function("main")
    return [main] if main is not None else []


_CALLS_MAIN = "__libc_start_main"


def _command_in_id(guest: Path, program: str) -> str:
    """A program and its arguments, without the folders in them, which differ between runs."""
    launch = program_launch.read_launch(guest)
    words = [untrusted_text.as_utf8(word) for word in launch.words[1:]] if launch is not None else []
    script = [Path(launch.file).name] if launch is not None and launch.file != launch.program else []
    text = as_name(" ".join([program, *script, *(re.sub(r"[^\s=:,]*/", "", word) for word in words)])).strip("_")
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}-{key_of([text])[:8]}"


def of_program(one: Sighting) -> Sighting:
    """The sighting of a guest of a traced command, with its program as the unit: its command line is the test."""
    guest = one.launched
    launch = program_launch.read_launch(guest) if guest is not None else None
    if guest is None or launch is None or one.suite != program_launch.SUITE:
        return one
    ends = [note.order for note in program_launch.read_ends(guest) if note.pid == launch.pid]
    return msgspec.structs.replace(
        one, test=launch.title, output=program_launch.read_output(guest), ended=max(ends, default=0)
    )


def without_lacking_calls(sightings: list[Sighting]) -> tuple[list[Sighting], list[str]]:
    """The sightings without the ends of programs that had asked for a system call which the emulator lacks, and a doubt
    about these for each set of such calls.

    A program that does not get what each kernel has may say so and fail, on any machine. What an instruction raised is
    blamed all the same.
    """
    kept, doubted = [], dict[str, list[str]]()
    for one in sightings:
        lacking = _lacking_calls(one)
        if lacking:
            doubted.setdefault(lacking, []).append(of_program(one).test)
        else:
            kept.append(one)
    return kept, [
        f"programs failed, and had asked for {calls}, which the emulator lacks, so it may be no fault of theirs: "
        f"{listed(list(dict.fromkeys(titles)))}"
        for calls, titles in doubted.items()
    ]


def without_unblamed(sightings: list[Sighting], cell: Path) -> tuple[list[Sighting], list[str]]:
    """The sightings without exit statuses, if something that a command executed could not be traced; and a doubt.

    A program of the target that could not be emulated did not run, and that alone may be why the command failed. Then
    its other programs' statuses may be what it expected.
    """
    if not program_launch.lines_of(cell, program_launch.TROUBLE):
        return sightings, []
    kept = [one for one in sightings if not (_is_of_program(one) and one.kind == "exit")]
    titles = [of_program(one).test for one in sightings if one not in kept]
    told = f"programs failed, maybe because others could not be traced: {listed(list(dict.fromkeys(titles)))}"
    return kept, [told] if titles else []


def _lacking_calls(one: Sighting) -> str:
    """The system calls that a program asked for in vain before its own end; empty for other sightings."""
    if not _is_of_program(one) or one.launched is None or one.detector != ENDED:
        return ""
    return ", ".join(f"{name}(2)" for name in fault_log.read(one.launched / fault_log.NAME).lacking)


def told_apart(sightings: list[Sighting]) -> list[Sighting]:
    """The sightings of programs, with a number behind an identity that several causes share.

    A function of one name may be in several programs, and a program may die in it in several ways. A process dies at
    the first of them, so that each is the cause of an execution's end. The lines of a misaligned access, in contrast,
    are one cause, as with servers.
    """
    causes: dict[str, set[tuple[str, int, str]]] = {}
    for one in sightings:
        if _is_of_program(one):
            causes.setdefault(one.identity, set()).add(_cause(one))
    numbers = {identity: sorted(found) for identity, found in causes.items()}
    return [
        _numbered(one, numbers[one.identity].index(_cause(one)) + 1) if _is_of_program(one) else one
        for one in sightings
    ]


def _is_of_program(one: Sighting) -> bool:
    return one.suite == program_launch.SUITE and one.launched is not None


def _numbered(one: Sighting, number: int) -> Sighting:
    return msgspec.structs.replace(one, identity=f"{one.identity}-{number}") if number > 1 else one


def _cause(one: Sighting) -> tuple[str, int, str]:
    """What tells the causes of one identity apart: the place, and the last words without numbers if there is none or
    many things may end a program there.
    """
    place = one.frames[0] if one.frames else None
    words = re.sub(r"(0x)?[0-9a-f]*\d[0-9a-f]*", "N", last_line(one.output))
    if place is not None and place.file != UNKNOWN_FILE:
        return place.file, place.line if one.kind != "alignment" else 0, words if one.kind == "crash" else ""
    return "", 0, words
