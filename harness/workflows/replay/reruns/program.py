"""Runs the program of a finding of `plumb exec` again, or the command that started it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import symbols
from harness.analysis.program_traits.failure_message import asserted_place
from harness.core.errors import UsageError
from harness.record import fault_log, program_launch
from harness.record.program_launch import CommandRecord
from harness.run.programs.command_events import failed_programs
from harness.run.programs.traced_command import run_traced
from harness.run.servers.endings import describe_exit
from harness.workflows.programs.execution import environment_for, tracing_of
from harness.workflows.replay.recurrence import Observation
from harness.workflows.replay.reruns.replayed_run import ReplayedRun, replaying, why_from_outside

if TYPE_CHECKING:
    from harness.build.emulators.runner import Runner
    from harness.judge.reproducer import ReplayedProgram, Reproducer
    from harness.run.programs.traced_command import CommandEnd
    from harness.workflows.target_setup import TargetSetup


LEAST_LIMIT_SECONDS, LIMIT_FACTOR = 60.0, 3
"""A program may run this long, or this many times longer than it did, and that times the timeout multiplier."""
NOT_LOADED = 127
"""The exit status of glibc's and musl's dynamic loaders if they cannot load a program's libraries."""


def run_program(
    setup: TargetSetup, reproducer: Reproducer, place: Path, number: int
) -> tuple[ReplayedRun, symbols.Symbols]:
    """The program's behaviour in the Nth run of a replay, from 0, and the names of its code.

    `place` receives the evidence. The program has the caller's environment with the recorded differences, and ends
    within a limit. If it is gone, the run's copy of it runs. Raises UsageError if there is none, or if its folder is
    gone.
    """
    assert reproducer.launch is not None
    launch = _present(reproducer.launch.as_executed())
    if not Path(launch.folder).is_dir() or ("/" in launch.file and not (Path(launch.folder) / launch.file).is_file()):
        raise UsageError(
            "the finding's program no longer exists",
            where=launch.file,
            because=f"it ran in {launch.folder}",
            remedy=f"build it again: plumb exec --target {reproducer.target} -- COMMAND",
        )
    sysroot = Path(launch.sysroot) if launch.sysroot else None
    if sysroot is not None and not sysroot.is_dir():
        raise UsageError(
            "the root folder of the target's programs no longer exists",
            where=launch.sysroot,
            remedy="recreate it in the same place",
        )
    requests = place / program_launch.INPUT
    if launch.requests is not None:
        requests.write_bytes(base64.b64decode(launch.requests))
    environment = environment_for(setup)
    for name, value in launch.environment.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    if launch.program and launch.requests is None:
        # It must not wait for the terminal.
        requests.write_bytes(b"")
    log = place / "output"
    limit = max(LEAST_LIMIT_SECONDS, LIMIT_FACTOR * launch.seconds) * reproducer.timeout_multiplier
    within = f"for at most {limit:.0f} s" if launch.program else "without a time limit: it is the whole command"
    setup.bench.progress.say(f"running {CommandRecord(words=launch.words, folder=launch.folder).title} again, {within}")
    end = run_traced(
        tracing_of(setup, replaying(runner_of(setup, reproducer), reproducer, Path(launch.program), number), sysroot),
        place,
        CommandRecord(words=launch.words, folder=launch.folder, sysroot=launch.sysroot),
        environment=environment,
        file=launch.file,
        requests=requests if requests.is_file() else None,
        log=log,
        seconds=limit if launch.program else None,
    )
    table = symbols.Symbols(setup.toolchain.triple, "", symbols.OwnProgram(path=launch.program, folder=launch.folder))
    return observed(place, reproducer, launch, end), table


def _present(launch: ReplayedProgram) -> ReplayedProgram:
    """The program, or the run's copy of it if it is gone. A copy cannot replace a script's interpreter."""
    if (
        launch.file != launch.program
        or not launch.copy
        or Path(launch.file).is_file()
        or not Path(launch.copy).is_file()
    ):
        return launch
    return msgspec.structs.replace(launch, file=launch.copy, program=launch.copy)


def runner_of(setup: TargetSetup, reproducer: Reproducer) -> Runner:
    """How the finding's program ran."""
    return setup.runner(reproducer.policy, "usual", reproducer.memory_order, reproducer.seed)


def observed(place: Path, reproducer: Reproducer, launch: ReplayedProgram, end: CommandEnd) -> ReplayedRun:
    """The behaviour of the program or command, according to the evidence in `place`."""
    faults: list[fault_log.Fault] = []
    deaths: list[str] = []
    damage: list[str] = []
    guests = program_launch.guests(place)
    for guest in guests:
        recorded = fault_log.read(guest / fault_log.NAME)
        faults += recorded.faults
        damage += recorded.damage
        if program_launch.unwatched(guest) is not None:
            damage.append(f"{guest.name}: its emulator did not start the program, or could not record its end")
        deaths += [
            describe_exit(-one.signal).detail for one in recorded.ends.values() if one.signal in fault_log.CRASHES
        ]
    if end.code < 0 and not end.expired:
        # Whatever killed it, it did not run to its end.
        deaths.append(describe_exit(end.code).detail)
    if end.code > 0 and reproducer.kind == "exit":
        deaths.append(f"exited with status {end.code}")
    nothing = "" if guests else f"no program of {reproducer.target} ran"
    detail = reproducer.detail if reproducer.detail in deaths else next(iter(deaths), "")
    of_command = not launch.program
    lost = [*damage, *program_launch.lines_of(place, program_launch.TROUBLE)]
    elsewhere = ""
    if of_command and end.code and not failed_programs(place):
        # As in a check: it may not even have compiled a program.
        elsewhere = f"{end.text}, and no program of {reproducer.target} is known to have failed"
    elif of_command and not end.code and guests and not any(map(_tests_something, guests)):
        elsewhere = f"each program of {reproducer.target} that ran was a probe or a skipped test"
    elif end.expired:
        elsewhere = (
            f"it still ran after {end.seconds:.0f} s, and was ended: it may wait for another program or for input"
        )
    elif launch.input_lost:
        elsewhere = "its standard input was too long to be recorded, and was empty this time"
    elif not of_command and end.code == NOT_LOADED:
        elsewhere = f"{end.text}, as a program does whose libraries are not found"
    return ReplayedRun(
        observation=Observation(
            end=f"{CommandRecord(words=launch.words, folder=launch.folder).text}: {end.text}",
            detail="" if of_command else detail,
            came=bool(end.code and not elsewhere) if of_command else None,
            undelivered=elsewhere,
            cut="; ".join(lost) or ("" if elsewhere else nothing) or why_from_outside("" if of_command else detail),
        ),
        faults=faults,
        reports=[],
        assertion=asserted_place("\n".join(map(program_launch.read_said, guests))),
    )


def _tests_something(guest: Path) -> bool:
    """Whether a program is neither a build system's probe nor a test that was skipped."""
    launch = program_launch.read_launch(guest)
    return launch is None or not (launch.is_probe or program_launch.is_skipped_test(guest))
