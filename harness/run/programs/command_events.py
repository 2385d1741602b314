"""Turns the evidence of a traced command into a cell's events: one test, and one guest for each execution."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.analysis.detectors.registry import OBSERVERS
from harness.core.errors import ABSENT_FILE
from harness.record import cell_events, event_log, fault_log, program_launch
from harness.run.programs.expected_ends import Opinion, opinion
from harness.run.programs.program_callers import read_callers
from harness.run.servers.endings import describe_exit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harness.record.program_launch import CommandRecord, ProcessNote, ProgramLaunch
    from harness.run.programs.program_callers import Caller
    from harness.run.programs.traced_command import CommandEnd

TIMERS = frozenset({signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGXCPU})
"""Signals of the timers and limits by which a program ends itself when it hangs."""
SHOWN_PROGRAMS = 3
"""How many failed programs a message names."""


class _EmulatedProgram(NamedTuple):
    """A program of the target that the command ran."""

    guest: Path
    """The folder with its evidence."""
    launch: ProgramLaunch | None
    """None if there is no readable record of it."""
    ends: list[ProcessNote]

    def began_before(self, milliseconds: int) -> bool:
        """Whether it is known to have begun before this time, in milliseconds since 1970."""
        return self.launch is not None and self.launch.began_ms < milliseconds

    @property
    def failed(self) -> bool:
        """Whether one of its processes ended with another status than 0, or by a signal."""
        return self.launch is not None and any(one.how != "replaced" and one.number for one in self.ends)

    @property
    def has_failed_itself(self) -> bool:
        """The same of its first process alone."""
        first = self._first
        return first is not None and first.how != "replaced" and bool(first.number)

    def opinion(self, callers: Mapping[int, Caller]) -> Opinion:
        """What the processes above it made of its failure. No crash is expected."""
        first = self._first
        if first is None or self.launch is None or (first.how == "killed" and first.number in fault_log.CRASHES):
            return Opinion.FAILED
        return opinion(first.process, first.caller, callers, self.launch)

    @property
    def is_skipped(self) -> bool:
        """Whether it said that it is a test which was skipped."""
        return program_launch.is_skipped_test(self.guest)

    @property
    def is_killed(self) -> bool:
        """Whether a signal other than that of a crash or of a timer ended its first process: something else sent it."""
        first = self._first
        own = fault_log.CRASHES | TIMERS
        return first is not None and first.how == "killed" and first.number not in own

    @property
    def _first(self) -> ProcessNote | None:
        pid = self.launch.pid if self.launch is not None else 0
        return next((one for one in self.ends if self.launch is not None and one.pid == pid), None)

    @property
    def is_unwatched(self) -> bool:
        """Whether the end of one of its processes may be unknown."""
        return self.launch is None or program_launch.unwatched(self.guest) is not None

    def event(self, test: str, *, blamed: bool) -> cell_events.GuestEvent:
        """Its event. It crashed if such a signal killed its first process. `blamed`: its command failed, and its status
        may be why.
        """
        first = self._first
        code = 0 if first is None or first.how == "replaced" else first.number
        killed = first is not None and first.how == "killed"
        crashed = killed and code in fault_log.CRASHES
        described = describe_exit(-code).detail
        return cell_events.GuestEvent(
            name=self.guest.name,
            end="signal" if crashed else "exit" if code and blamed else "stopped",
            detail=(described if killed else f"exited with status {code}") if crashed or (code and blamed) else "",
            test=test,
            own=True,
            pid=self.launch.pid if self.launch is not None else 0,
            left=(fault_log.ledger_of(self.guest / fault_log.NAME).name,),
        )


def _emulated_programs(cell: Path) -> Iterator[_EmulatedProgram]:
    """The programs of the target that a cell's command ran, apart from probes. Removes the folders of those that the
    emulator refused.
    """
    for guest in program_launch.guests(cell):
        if (guest / program_launch.REFUSED).is_file():
            shutil.rmtree(guest)
            continue
        launch = program_launch.read_launch(guest)
        if launch is None or not launch.is_probe:
            yield _EmulatedProgram(guest, launch, program_launch.read_ends(guest))


def failed_programs(cell: Path) -> list[str]:
    """The command lines of programs that ended with another status than 0, or by a signal. None are known to have
    failed if the end of any program may be unknown.
    """
    return _failed(list(_emulated_programs(cell)))


def failed_launches(cell: Path) -> list[program_launch.ProgramLaunch]:
    """The executions of these programs, each command line once."""
    programs = list(_emulated_programs(cell))
    if not _failed(programs):
        return []
    failed = (one.launch for one in programs if one.launch is not None and one.failed)
    return list({one.text: one for one in failed}.values())


def _failed(programs: Sequence[_EmulatedProgram]) -> list[str]:
    failed = [one.launch.text for one in programs if one.launch is not None and one.failed]
    return [] if any(one.is_unwatched for one in programs) else failed


class _Failed(NamedTuple):
    """The programs of a failed command that failed, by what the processes above them made of it."""

    blamed: Sequence[_EmulatedProgram] = ()
    """Their end may be why the command failed."""
    survived: Sequence[_EmulatedProgram] = ()
    expected: Sequence[_EmulatedProgram] = ()


def _opinions(programs: Sequence[_EmulatedProgram], callers: Mapping[int, Caller]) -> _Failed:
    """The programs that failed; none if the end of any program may be unknown.

    A test that was skipped is blamed, or a program that another process ended, only if no other program failed.
    """
    if any(one.is_unwatched for one in programs):
        return _Failed()
    opinions = [(one, one.opinion(callers)) for one in programs if one.has_failed_itself]
    failed, survived, expected = ([one for one, held in opinions if held is each] for each in Opinion)
    return _Failed([one for one in failed if not (one.is_skipped or one.is_killed)] or failed, survived, expected)


def write_events(
    cell: Path, command: CommandRecord, target: str, end: CommandEnd, *, counts_from: Path | None = None
) -> int:
    """Write the cell's events. Returns the exit status that a test process would have: 1 if the command failed.

    `counts_from`: the file that the command wrote when its tests began. A program that began earlier tests nothing.
    """
    log = event_log.EventLog(cell / event_log.NAME)
    log.append(cell_events.CollectedEvent(tests=1))
    programs = list(_emulated_programs(cell))
    opinions = _opinions(programs, read_callers(cell)) if end.code else _Failed()
    for one in programs:
        log.append(one.event(command.title, blamed=one in opinions.blamed))
    if opinions.expected:
        expected = "".join(f"{text}\n" for text in _texts(opinions.expected))
        (cell / program_launch.EXPECTED).write_text(expected, "utf-8", "replace")
    began_ms = _modified_ms(counts_from) if counts_from is not None else 0
    of_tests = [one for one in programs if not one.began_before(began_ms or 0)]
    outcome, message, doubt = _outcome(
        command,
        target,
        end,
        count=len(programs),
        before=len(programs) - len(of_tests),
        skipped=sum(program_launch.is_skipped_test(one.guest) for one in of_tests),
        natives=program_launch.lines_of(cell, program_launch.NATIVES),
        here=program_launch.natives_here(cell),
        failed=_failed(programs),
        blamed=_texts(opinions.blamed),
        survived=_texts(opinions.survived),
    )
    if began_ms is None and not end.code:
        # A command that failed may not have got to its tests.
        doubt = f"the command removed {counts_from}, so it is not known which programs ran in its tests"
    log.append(
        cell_events.TestEvent(
            name=command.title, outcome=outcome, seconds=round(end.seconds, 3), message=message, doubt=doubt
        )
    )
    log.close(tests=1, failed=int(outcome == "failed"))
    return int(outcome == "failed")


def _texts(programs: Sequence[_EmulatedProgram]) -> list[str]:
    """Their command lines, each as one line."""
    return [" ".join(one.launch.text.splitlines()) for one in programs if one.launch is not None]


def _modified_ms(path: Path) -> int | None:
    """When a file was written, in milliseconds since 1970; None if it is gone."""
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except ABSENT_FILE:
        return None


def _only(natives: list[str], here: list[str], target: str, end: CommandEnd) -> str:
    """Which programs ran although none of the target did, and what to do."""
    named = [name for name in natives if name not in _SHELLS] or natives
    shown = ", ".join([*named[:SHOWN_NATIVES], *(["…"] if len(named) > SHOWN_NATIVES else [])])
    ran = f"; only programs of this machine ran ({shown})" if shown else ""
    if here:
        todo = f"if an earlier build for this machine left {Path(here[0]).name}, remove it first, as make clean does"
    elif found := next((name for name in natives if name in OBSERVERS), ""):
        todo = f"{found} of this machine cannot run programs of {target}: have the tests do without it"
    elif end.code:
        todo = "its own output says why it failed"
    else:
        todo = f"if it only built, run its tests or what it built as well; if it is an interpreter, use one of {target}"
    return f"{ran}: {todo}"


_SHELLS = frozenset({"sh", "bash", "dash", "env"})
SHOWN_NATIVES = 5
"""How many programs of the host a message names."""


def _outcome(
    command: CommandRecord,
    target: str,
    end: CommandEnd,
    *,
    count: int,
    before: int,
    skipped: int,
    natives: list[str],
    here: list[str],
    failed: list[str],
    blamed: list[str],
    survived: list[str],
) -> tuple[cell_events.Outcome, str, str]:
    """The outcome of the command, its message, and why that says nothing about the target.

    `count`: the number of programs that ran. `before`: how many of them ran before the tests, and count as skipped
    tests. `natives`: the host's programs that ran. `here`: those below the command's folder. `blamed`: those of the
    failed programs whose status nothing expected. `survived`: those after which a shell went on that ends at a failure.
    """
    where = "in its tests" if before else "below it"
    if count == before:
        return (
            "skipped",
            f"Skipped: no program of {target} ran {where}, and {end.text}{_only(natives, here, target, end)}",
            "",
        )
    if not end.code and count - before == skipped:
        told = f"each program of {target} that ran {where} ended with status {program_launch.SKIPPED}"
        return "skipped", f"Skipped: {told}, as skipped tests do", ""
    if not end.code:
        return "passed", "", ""
    if not failed:
        why = f"{end.text}, and no program of {target} is known to have failed, of {count} that ran"
        return "failed", f"{command.title}: {end.text}", f"{why}: the reason lies outside of them"
    if not blamed:
        why = f"{end.text}, and what ran the programs of {target} that failed expected it: {_shown(failed)}"
        return "failed", f"{command.title}: {end.text}", f"{why}; the reason may lie outside of them"
    doubt = f"a shell that ends at a failure went on after programs, as if it expected it: {_shown(survived)}"
    told = f"the command failed: {end.text}; of its programs: {_shown(blamed)}"
    return "failed", told, doubt if survived else ""


def _shown(programs: list[str]) -> str:
    """The last of the programs, and how many more there are."""
    more = [f"and {len(programs) - SHOWN_PROGRAMS} more"] if len(programs) > SHOWN_PROGRAMS else []
    return "; ".join([*programs[-SHOWN_PROGRAMS:], *more])
