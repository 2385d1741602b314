"""Runs a reproducer's unit once more, and observes what happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.analysis.crash_reports.assertion_log import asserted
from harness.analysis.detectors.registry import reports
from harness.record import fault_log
from harness.run import selftests, unit_runner
from harness.run.vm.guest import VirtualMachine
from harness.workflows.replay.recurrence import Observation, ObservedUnit
from harness.workflows.replay.reruns.replayed_run import ReplayedRun, cut_short, why_from_outside

if TYPE_CHECKING:
    from pathlib import Path

    from harness.build.emulators.runner import Runner
    from harness.build.unit_drivers import Units
    from harness.judge.reproducer import Reproducer
    from harness.run.machines import OtherMachine


def run_unit(
    units: Units, runner: Runner, reproducer: Reproducer, place: Path, host: OtherMachine | None
) -> ReplayedRun:
    """Run the unit once more."""
    unit = reproducer.unit
    if host is None:
        ran = unit_runner.run_emulated(units, runner, unit, place)
    else:
        # No board runs units.
        assert isinstance(host, VirtualMachine)
        ran = unit_runner.run_on_machine(units, host.machine(), runner.target, unit, place)
    own = units.kind == "selftests"
    lines = selftests.lines(ran) if own else unit_runner.lines(ran)
    skipped = selftests.why_not_run(ran) if own else ""
    reported = selftests.complaints(ran) if own else []
    if own and not (reported or skipped):
        reported = list(filter(None, [selftests.why_unfinished(ran, units, unit)]))
    complete = not reported if own else unit_runner.complete(ran, unit)
    how = unit_runner.how_it_ended(ran, complete=complete)
    wrong = reproducer.wrong_line
    end = f"{how}, and wrote again: {wrong:.200}" if wrong and wrong in lines else how
    complaints = reported if own else [] if complete else [how]
    if skipped:
        complete, complaints = False, complaints or [skipped]
    detector = runner.target.emulator.detector
    killed = "killed by SIGKILL" if ran.code == -9 and not ran.expired else ""
    return ReplayedRun(
        observation=Observation(
            end=f"{'self-test' if own else 'unit'} {unit}: {end}",
            unit=ObservedUnit(
                complete=complete and not skipped,
                lines=tuple(lines),
                complaints=tuple(complaints),
            ),
            cut=cut_short(place / "faults.jsonl", ran.output, detector=detector) or why_from_outside(killed),
        ),
        faults=fault_log.read_faults(place / "faults.jsonl"),
        reports=reports(ran.output, detector) if detector else [],
        assertion=asserted(ran.output),
    )
