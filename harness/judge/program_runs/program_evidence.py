"""Why the evidence of a traced command may be incomplete, and how much of the target it ran."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from elftools.elf.enums import ENUM_E_MACHINE

from harness.core import untrusted_text
from harness.record import cell_events, fault_log, program_launch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from harness.record.run_record import RunRecord

SHOWN = 3
"""How many programs a sentence names."""


def program_doubts(cell: Path) -> list[str]:
    """Human-readable reasons why programs may have run unwatched; empty for a cell without a command."""
    if not (cell / program_launch.COMMAND).is_file():
        return []
    found = [f"the programs that ran could not be traced: {line}" for line in program_launch.lines_of(cell, "trouble")]
    if strangers := _strangers(cell, program_launch.STRANGERS):
        found.append(f"programs for other machines ran unobserved: {listed(strangers)}")
    if refused := _strangers(cell, program_launch.REFUSED):
        found.append(
            f"programs for other machines could not run: {listed(refused)}; "
            "if an earlier build left them, remove them first, for example by make clean"
        )
    guests = program_launch.guests(cell)
    left = [guest for guest in guests if program_launch.lines_of(guest, program_launch.LEFT) and not is_probe(guest)]
    if left:
        running = listed([_program_of(guest) for guest in left])
        found.append(
            f"programs still ran when the command had ended, and Plumbline ended them: {running} "
            "(let the command wait for them or end them)"
        )
    unwatched = ((guest.name, _why_unwatched(guest)) for guest in guests)
    return found + [f"{guest}: {why}" for guest, why in unwatched if why is not None]


def is_probe(guest: Path) -> bool:
    """Whether a guest is a build system's probe of the machine, which may crash on purpose."""
    launch = program_launch.read_launch(guest)
    return launch is not None and launch.is_probe


def _strangers(cell: Path, name: str) -> list[str]:
    """The programs of other machines in one of the tracer's files, each once with its machine."""
    lines = (line.partition(" ") for line in program_launch.lines_of(cell, name))
    return list(dict.fromkeys(f"{path} ({_machine(number)})" for number, _, path in lines))


def _machine(number: str) -> str:
    """The name of a machine by its number in ELF, `EM_MIPS`; the number itself if it is unknown."""
    return next((name for name, value in ENUM_E_MACHINE.items() if str(value) == number), f"machine {number}")


class ProgramCounts(NamedTuple):
    """How many executions of programs below a command passed, failed, and were skipped tests."""

    passed: int
    failed: int
    skipped: int

    @property
    def ran(self) -> bool:
        """Whether the command and a program tested something, whatever came of it."""
        return self.passed + self.failed > 0


def counts(cell: Path, events: Iterable[cell_events.Event]) -> ProgramCounts | None:
    """The executions in a cell by outcome; None for a cell without a command.

    A program passed if its command expected its end: it succeeded, or the command did. If nothing ran in the command's
    tests, the command is the one that was skipped; if no program failed, it is the one that failed.
    """
    if not (cell / program_launch.COMMAND).is_file():
        return None
    every = list(events)
    outcome = next((one.outcome for one in every if isinstance(one, cell_events.TestEvent)), "skipped")
    ends = {one.name: one.end for one in every if isinstance(one, cell_events.GuestEvent)}
    if outcome == "skipped":
        return ProgramCounts(0, 0, 1)
    failed = sum(end != "stopped" for end in ends.values())
    skipped = sum(end == "stopped" and program_launch.is_skipped_test(cell / name) for name, end in ends.items())
    if outcome == "failed" and not failed:
        return ProgramCounts(0, 1, 0)
    return ProgramCounts(len(ends) - failed - skipped, failed, skipped)


def _program_of(guest: Path) -> str:
    launch = program_launch.read_launch(guest)
    return untrusted_text.as_utf8(launch.program) if launch is not None else guest.name


def _why_unwatched(guest: Path) -> str | None:
    """Why a guest's faults may be missing: its emulator did not start, or could not write how its program ended."""
    launch = program_launch.read_launch(guest)
    if launch is not None and launch.is_probe:
        return None
    if launch is None:
        return "no record shows which program was executed, or whether it ran"
    silent = program_launch.unwatched(guest)
    if silent is None:
        return None
    if loader := _NO_LOADER.search(program_launch.read_output(guest)):
        program = untrusted_text.as_utf8(launch.program)
        return (
            f"the dynamic loader of {program}, {loader[1]}, is not among the libraries of the target: the program was "
            "built for another target (remove it, for example by make clean), or needs --sysroot"
        )
    how = f"with status {silent.number}" if silent.how == "exited" else f"by signal {silent.number}"
    return f"its emulator did not start the program, or could not record its end: process {silent.pid} ended {how}"


_NO_LOADER = re.compile(r"^qemu-\S+: Could not open '([^']+)': No such file or directory$", re.MULTILINE)
"""What QEMU says of a program whose dynamic loader does not exist (linux-user/elfload.c)."""


def program_remarks(folder: Path, run: RunRecord) -> list[str]:
    """A sentence for each target on how many of its programs ran, and one on those that were ended."""
    return [
        sentence
        for record in run.cells
        if (folder / record.target / record.suite / program_launch.COMMAND).is_file()
        for sentence in _remarks(folder / record.target / record.suite, record.target)
    ]


def _remarks(cell: Path, target: str) -> Iterator[str]:
    guests = program_launch.guests(cell)
    read = [launch for launch in map(program_launch.read_launch, guests) if launch is not None]
    launches = [launch for launch in read if not launch.is_probe]
    if len(read) > len(launches):
        yield f"probes of the build system, which are not judged: {len(read) - len(launches)}"
    distinct = Counter(untrusted_text.as_utf8(launch.program) for launch in launches)
    if launches:
        number = f"{len(launches)} {'execution' if len(launches) == 1 else 'executions'} below the command on {target}"
        yield f"{number}, {len(distinct)} distinct: {listed([program for program, _ in distinct.most_common()])}"
    yield from _built_otherwise(cell, target)
    if here := program_launch.natives_here(cell):
        yield (
            f"programs of the host below the command's folder, which ran natively: {listed(here)}; "
            "if an earlier build left them, remove them first, for example by make clean"
        )
    killed = sum(
        note.how == "killed" and note.number not in fault_log.CRASHES
        for guest in guests
        for note in program_launch.read_ends(guest)
    )
    if killed:
        yield f"processes of {target} that were ended by a signal other than that of a crash: {killed}"
    skipped = sum(map(program_launch.is_skipped_test, guests))
    if skipped:
        yield f"programs of {target} that ended with status {program_launch.SKIPPED}, as a skipped test does: {skipped}"
    if expected := program_launch.lines_of(cell, program_launch.EXPECTED):
        told = listed(list(dict.fromkeys(expected)))
        yield f"programs of {target} that failed as what ran them expected, and are not judged: {told}"
    changed = [path for guest in guests for path in program_launch.lines_of(guest, program_launch.CHANGED)]
    if changed:
        paths = listed(list(dict.fromkeys(changed)))
        yield f"findings lack function names in files that were overwritten or removed while the command ran: {paths}"
    left = program_launch.lines_of(cell, program_launch.LEFT)
    if left:
        yield f"processes that the command left running, and that Plumbline ended: {left[0]}"


def _built_otherwise(cell: Path, target: str) -> Iterator[str]:
    """A sentence on programs whose debug information says that they were not built for the target."""
    found: dict[str, list[str]] = {}
    for line in program_launch.lines_of(cell, program_launch.BUILT_OTHERWISE):
        unlike, _, path = line.partition("\t")
        found.setdefault(unlike, []).append(path)
    for unlike, programs in found.items():
        yield (
            f"programs that seem to be built for another target than {target}, with {unlike}: {listed(programs)}; "
            "if an earlier build left them, remove them first, for example by make clean"
        )


def listed(names: list[str]) -> str:
    """The first programs, and how many more there are."""
    more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
