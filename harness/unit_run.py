"""One run of a unit: how it is started, what it wrote, and the evidence it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness import events, process
from harness.guest import describe_exit
from harness.model import Noun

if TYPE_CHECKING:
    from pathlib import Path

    from harness.emulator import Runner
    from harness.machine import Machine

RUN_SECONDS = 20.0


def folder_of(cell: Path, unit: str) -> Path:
    """Where a unit's log and faults are. It is named as a guest's folder is: the evidence in it is of the same kind."""
    return cell / f"guest-unit-{unit}"


class UnitRun(Noun, frozen=True):
    """One run of the program."""

    code: int
    """Exit status; negative for a signal."""
    expired: bool
    output: bytes


class WrongLineError(AssertionError):
    """A line of a unit's output is not what the model says."""

    def __init__(self, unit: str, line: str, complaint: str) -> None:
        super().__init__(f"{unit}, {line.partition(':')[0]}: {complaint}")
        self.line = line
        """The whole line: the same input gives it again."""


def run_emulated(program: Path, runner: Runner, unit: str, folder: Path) -> UnitRun:
    """Run a unit under the user-mode emulator or natively; `folder` gets its log and its faults."""
    folder.mkdir(parents=True)
    result = process.run(
        runner.command(program, [unit], folder / "faults.jsonl"),
        deadline_seconds=RUN_SECONDS * max(1.0, runner.target.slowdown / 3),
        environment={**process.PLAIN_ENVIRONMENT, **runner.environment},
    )
    (folder / "log").write_bytes(result.output)
    return UnitRun(code=result.code, expired=result.expired, output=result.output)


def run_on_machine(program: str, machine: Machine, slowdown: float, unit: str, folder: Path) -> UnitRun:
    """Run a unit on a real kernel. `program` is where it lies in the guest."""
    folder.mkdir(parents=True)
    machine.fault_log = folder / "faults.jsonl"
    ran = machine.run([program, unit], deadline_seconds=RUN_SECONDS * slowdown)
    (folder / "log").write_bytes(ran.output)
    code = 0 if ran.end is None else -ran.end.number if ran.end.how == "signal" else ran.end.number
    return UnitRun(code=code, expired=ran.end is None, output=ran.output)


def lines(run: UnitRun) -> list[str]:
    """The lines that the drivers wrote, without what servers and detectors wrote between them."""
    text = run.output.decode("utf-8", "replace")
    return [line.removeprefix("> ") for line in text.split("\n")[:-1] if line.startswith("> ")]


def complete(run: UnitRun, unit: str) -> bool:
    """Whether a unit got to its end."""
    return run.code == 0 and not run.expired and lines(run)[-1:] == [f"end {unit}"]


def end_of(run: UnitRun, unit: str) -> str:
    """How a unit ended, for the reader."""
    if complete(run, unit):
        return "it got to its end"
    return "it hung" if run.expired else describe_exit(run.code)[1]


def event_of(
    cell: Path, unit: str, *, test: str, outcome: events.Outcome, message: str, seconds: float, wrong_line: str
) -> events.TestEvent:
    """What a cell records of a test that ran a unit."""
    folder = folder_of(cell, unit)
    log = folder / "log"
    return events.TestEvent(
        name=test,
        outcome=outcome,
        seconds=round(seconds, 3),
        message=message,
        guest=folder.name,
        fault_to=events.count_faults(folder / "faults.jsonl"),
        log_to=log.stat().st_size if log.is_file() else 0,
        unit=unit,
        wrong_line=wrong_line,
    )
