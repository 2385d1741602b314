"""Names the functions in a run's records, which a replay compares with the finding and shows to the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.analysis import disassembly
from harness.analysis.crash_reports.assertion_log import asserting_frames
from harness.analysis.detectors.registry import own_frames
from harness.analysis.symbols import from_line
from harness.judge.sightings.places import FORBIDDEN_CALL
from harness.record import fault_log
from harness.workflows.replay.recurrence import NAMELESS, ObservedFault, is_same_assertion, is_same_fault
from harness.workflows.replay.shown_records import ShownRecord, lines_of

if TYPE_CHECKING:
    from harness.analysis.symbols import Symbols
    from harness.core.finding import Frame
    from harness.core.target_model import Target
    from harness.judge.reproducer import Reproducer
    from harness.workflows.replay.recurrence import Observation
    from harness.workflows.replay.reruns.replayed_run import ReplayedRun


def named(reproducer: Reproducer, ran: ReplayedRun, table: Symbols, target: Target) -> tuple[Observation, list[str]]:
    """The observation with the names of functions, and lines that show the records to a person."""
    machine = target.emulator.qemu
    faults: list[ObservedFault] = []
    asserted: set[str] = set()
    records: list[ShownRecord] = []
    for fault in ran.faults:
        frames = table.backtrace(fault, machine)
        observed, heading = _fault(fault, frames, machine)
        asserting = {frame.function for frame in asserting_frames(frames, dies_there=False)[:1]}
        same = is_same_fault(reproducer, observed) or is_same_assertion(reproducer, asserting)
        faults.append(observed)
        asserted |= asserting
        records.append(ShownRecord(heading=heading, frames=frames, same=same))
    if ran.assertion is not None:
        place = table.placed(ran.assertion)
        named_place = {place.file if place.function == NAMELESS else place.function}
        asserted |= named_place
        same = is_same_assertion(reproducer, named_place)
        records.append(ShownRecord(heading="assertion failed:", frames=[place], same=same))
    reports = [(report.detector, report.kind, report.frames[0].function) for report in ran.reports]
    for report, key in zip(ran.reports, reports, strict=True):
        same = key == (reproducer.detector, reproducer.kind, reproducer.function)
        heading = f"{report.detector}: {report.access}"
        records.append(ShownRecord(heading=heading, frames=report.frames, same=same))
    with_names = {"faults": tuple(faults), "asserted": frozenset(asserted), "reports": frozenset(reports)}
    return msgspec.structs.replace(ran.observation, **with_names), lines_of(records)


def _fault(fault: fault_log.Fault, frames: list[Frame], machine: str) -> tuple[ObservedFault, str]:
    """A fault for the comparison, and as a heading."""
    name = fault_log.signal_name(fault.signal) if fault.signal else ""
    access = disassembly.access_of(fault, machine) if fault_log.is_misaligned(fault) else None
    observed = ObservedFault(
        misaligned=access is not None,
        signal=FORBIDDEN_CALL if fault.call_number >= 0 else name.lower(),
        direction=access.direction if access else "",
        functions=frozenset({frames[0].function, own_frames(frames)[0][0].function, from_line(frames)[0][0].function}),
    )
    what = f"{disassembly.disassemble(fault, machine)}  {access or ''}"
    if fault.call_number >= 0:
        what = f"{frames[0].function} ({fault.call_number}) is forbidden"
    return observed, f"{name or 'access'}: {what}".rstrip()
