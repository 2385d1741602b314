"""Runs one unit of a program, and records its output and its faults as evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.build.emulators.runner import keeps_translations
from harness.core.model import Record
from harness.core.processes import process
from harness.record import cell_events, fault_log
from harness.run.servers.endings import EndedByAnotherError, describe_exit, sender_of_end

if TYPE_CHECKING:
    from pathlib import Path

    from harness.build.emulators.runner import Runner
    from harness.build.unit_drivers import Units
    from harness.core.model import Program
    from harness.core.target_model import Target
    from harness.run.vm.machine import Machine

RUN_SECONDS: dict[Program, float] = {"units": 20.0, "selftests": 120.0}
"""Time limit of a unit, natively. The servers' own self-tests include benchmarks."""


PLACES: dict[Program, str] = {"units": "/srv/units", "selftests": "/srv/selftests"}
"""Paths of the programs in a machine of the kernel tier."""


def folder_of(cell: Path, unit: str) -> Path:
    """The folder of a unit's log and faults. It has a name like a guest's folder, because it contains the same kind of
    evidence.
    """
    return cell / f"guest-unit-{unit}"


class UnitRun(Record, frozen=True):
    """One run of the program."""

    code: int
    """Exit status; negative for a signal."""
    expired: bool
    output: bytes


class WrongLineError(AssertionError):
    """A line of a unit's output that differs from the model."""

    def __init__(self, unit: str, line: str, complaint: str) -> None:
        super().__init__(f"{unit}, {line.partition(':')[0]}: {complaint}")
        self.line = line
        """The whole line: the same input produces it again."""


def run_emulated(units: Units, runner: Runner, unit: str, folder: Path, *, plugin: str = "") -> UnitRun:
    """Run a unit under the user-mode emulator or natively; `folder` gets its log and its faults. The emulator loads the
    plugin, if there is one.
    """
    assert units.program is not None
    folder.mkdir(parents=True)
    command = runner.command(
        units.program, units.call(unit), folder / "faults.jsonl", preload=units.preload, plugin=plugin
    )
    result = process.run(
        command,
        deadline_seconds=runner.target.deadline_seconds(RUN_SECONDS[units.kind]),
        folder=folder,
        environment={**process.PLAIN_ENVIRONMENT, **runner.environment},
        steady_addresses=keeps_translations(command),
    )
    (folder / "log").write_bytes(result.output)
    return UnitRun(code=result.code, expired=result.expired, output=result.output)


def run_on_machine(units: Units, machine: Machine, target: Target, unit: str, folder: Path) -> UnitRun:
    """Run a unit on a real kernel, from the program's usual path."""
    folder.mkdir(parents=True)
    ran = machine.run(
        [PLACES[units.kind], *units.call(unit)],
        deadline_seconds=target.whole_deadline_seconds(RUN_SECONDS[units.kind]),
        fault_log=folder / "faults.jsonl",
    )
    (folder / "log").write_bytes(ran.output)
    code = ran.end.code if ran.end is not None else 0
    return UnitRun(code=code, expired=ran.end is None, output=ran.output)


def refuse_end_from_outside(run: UnitRun, runner: Runner, unit: str, folder: Path) -> None:
    """Raise EndedByAnotherError if another process ended a unit. `folder`: the one with its faults."""
    raised = {fault.signal for fault in fault_log.read_faults(folder / "faults.jsonl")}
    recorded = raised if runner.records_faults else None
    ended = sender_of_end(run.code, b"", 0, faults=recorded, emulated=not runner.target.emulator.runs_here)
    if cell_events.names_another_sender(ended.detail) and not run.expired:
        raise EndedByAnotherError(f"{unit} was {ended.detail}")


def lines(run: UnitRun) -> list[str]:
    """The lines that the drivers wrote, without the lines of servers and detectors between them."""
    text = run.output.decode("utf-8", "replace")
    return [line.removeprefix("> ") for line in text.split("\n")[:-1] if line.startswith("> ")]


def complete(run: UnitRun, unit: str) -> bool:
    """Whether a unit ran to its end."""
    return run.code == 0 and not run.expired and lines(run)[-1:] == [f"end {unit}"]


def how_it_ended(run: UnitRun, *, complete: bool) -> str:
    """How a unit ended, for the reader."""
    if complete:
        return "it got to its end"
    return "it hung" if run.expired else describe_exit(run.code).detail


def event_of(
    cell: Path,
    unit: str,
    *,
    program: Program,
    test: str,
    outcome: cell_events.Outcome,
    message: str,
    seconds: float,
    wrong_line: str,
) -> cell_events.TestEvent:
    """The record of a test that ran a unit."""
    folder = folder_of(cell, unit)
    log = folder / "log"
    return cell_events.TestEvent(
        name=test,
        outcome=outcome,
        seconds=round(seconds, 3),
        message=message,
        guest=folder.name,
        fault_to=fault_log.count_faults(folder / "faults.jsonl"),
        log_to=log.stat().st_size if log.is_file() else 0,
        unit=unit,
        program=program,
        wrong_line=wrong_line,
    )
