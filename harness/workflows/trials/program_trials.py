"""Runs programs that failed below a command again, to find out whether memory order is to blame."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import symbols
from harness.build.emulators.runner import in_usual_order, with_evidence, with_same_addresses
from harness.core.errors import InfrastructureError
from harness.judge.sightings.overtakes import frames_of
from harness.record import evidence_seal, program_launch
from harness.record.program_launch import CommandRecord
from harness.record.run_record import DelayedRun, HostRun
from harness.run.programs.command_events import failed_launches, write_events
from harness.run.programs.traced_command import run_traced
from harness.workflows.trials.order_trials import OrderTrials

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.build.emulators.runner import Runner
    from harness.core.finding import Frame
    from harness.record.fault_log import Overtake
    from harness.record.program_launch import ProgramLaunch
    from harness.run.programs.traced_command import Tracing
    from harness.workflows.target_setup import TargetSetup
    from harness.workflows.trials.order_trials import DelayedLoad

MOST_PROGRAMS = 3
"""How many of the programs that failed run again."""
LONGEST_SECONDS = 120
"""How long each run may take."""


def tried_again(
    tracing: Tracing, setup: TargetSetup, cell: Path, command: CommandRecord, environment: Mapping[str, str]
) -> tuple[list[HostRun], list[DelayedRun]]:
    """The further runs of a command's failed programs, as of CellRecord.ordered and CellRecord.delayed.

    `environment`: of the command.
    """
    trials = None
    for launch in failed_launches(cell)[:MOST_PROGRAMS]:
        again = _ProgramAgain(tracing, setup, cell, command, launch, environment)
        trials = OrderTrials(cell, again, after=trials)
        trials.run([command.title], [])
    return (trials.ordered, trials.delayed) if trials is not None else ([], [])


class _ProgramAgain:
    """Runs a program of a command again, with its arguments, its environment and its standard input."""

    def __init__(
        self,
        tracing: Tracing,
        setup: TargetSetup,
        cell: Path,
        command: CommandRecord,
        launch: ProgramLaunch,
        environment: Mapping[str, str],
    ) -> None:
        self._tracing = tracing
        self._usual = setup.target
        program = symbols.OwnProgram(path=launch.program, folder=command.folder)
        self._symbols = symbols.Symbols(setup.toolchain.triple, "", program)
        self._cell = cell
        self._command = command
        self._launch = launch
        changed = {**environment, **launch.environment}
        self._environment = {name: value for name, value in changed.items() if value is not None}

    def in_order(self, tests: Sequence[str], folder: Path) -> HostRun:
        del tests  # the command is the only one
        problem, seal = self._run(in_usual_order(self._tracing.runner, self._usual), folder)
        return HostRun(problem=problem, seal=seal, launch=self._launch.guest)

    def delayed(self, tests: Sequence[str], folder: Path, how: DelayedLoad) -> DelayedRun:
        del tests
        # A program decides itself how long it runs.
        seed, pair, _ = how
        runner = self._tracing.runner
        runner = with_same_addresses(runner) if seed is None else with_evidence(runner, seed, pair)
        problem, seal = self._run(runner, folder)
        return DelayedRun(problem=problem, seal=seal, launch=self._launch.guest, seed=seed, pair=pair)

    def frames(self, one: Overtake) -> tuple[Frame, Frame, Frame]:
        return frames_of(one, self._symbols)

    def _run(self, runner: Runner, folder: Path) -> tuple[str, str]:
        """Run it. Returns why there is no result, or nothing, and the seal of its evidence."""
        folder.mkdir()
        launch = self._launch
        requests = self._cell / launch.guest / program_launch.INPUT
        words = CommandRecord(words=launch.words, folder=launch.folder, sysroot=self._command.sysroot)
        problem = ""
        try:
            end = run_traced(
                msgspec.structs.replace(self._tracing, runner=runner),
                folder,
                words,
                environment=self._environment,
                file=launch.file,
                requests=requests if requests.is_file() else Path("/dev/null"),
                log=folder / "log",
                seconds=LONGEST_SECONDS,
            )
            write_events(folder, self._command, runner.target.name, end)
            if end.expired:
                problem = f"{words.title} was ended: it ran longer than {LONGEST_SECONDS} s"
        except InfrastructureError as error:
            problem = f"{error.what}: {error.because}"
        return problem, evidence_seal.seal(folder)
