"""The result of one run of a replay: what happened, and the records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.build.emulators.runner import with_evidence
from harness.core.digests import sha256_of
from harness.core.processes import capped_log
from harness.judge.fault_effects import from_outside
from harness.record import fault_log
from harness.record.cell_events import names_another_sender

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from harness.analysis.detectors.registry import Report
    from harness.build.emulators.runner import Runner
    from harness.core.finding import Frame
    from harness.judge.reproducer import Reproducer
    from harness.record.fault_log import Fault
    from harness.workflows.replay.recurrence import Observation


class ReplayedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in a run, and its records."""

    observation: Observation
    """The observation without faults, reports and assertions, whose functions are not named yet."""
    faults: list[Fault]
    reports: list[Report]
    assertion: Frame | None


def replaying(runner: Runner, reproducer: Reproducer, program: Path, number: int) -> Runner:
    """How to run a program in the Nth run of a replay, from 0: if the finding needs only two of its stores reordered,
    others keep their order, in case it is still the same program.
    """
    is_same = reproducer.pair is not None and program.is_file() and sha256_of(program) == reproducer.pair_program
    return with_evidence(runner, reproducer.seed + number, reproducer.pair) if is_same else runner


def cut_short(log: Path, output: bytes, *, detector: str = "") -> str:
    """Why the records of a run are not trustworthy; empty if they are.

    A line of the fault log is damaged or missing, the emulator says in the `output` that it lost a record or crashed,
    or the middle of the output is gone, where a `detector` may have reported.
    """
    return "; ".join(filter(None, [*fault_log.read(log).damage, cut_in(output, detector=detector)]))


def cut_in(output: bytes, *, detector: str) -> str:
    """The same for the output alone."""
    damage = [fault_log.emulator_trouble(output)]
    if detector and capped_log.left_out_bytes(output):
        damage.append("the output was too long, and its middle is gone")
    return "; ".join(filter(None, damage))


def crashed_children(recorded: fault_log.FaultLog, servers: Collection[int]) -> frozenset[str]:
    """The signals of `FaultLog.unrecorded_crashes`, by name."""
    return frozenset(fault_log.signal_name(end.signal) for end in recorded.unrecorded_crashes(servers))


def why_from_outside(detail: str) -> str:
    """Why the end that `detail` describes says nothing about the server; empty if it does."""
    return f"it was {from_outside(detail)}" if names_another_sender(detail) else ""
