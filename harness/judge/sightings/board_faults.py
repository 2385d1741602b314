"""What a server's own report of its crash shows, on a board, which records no faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.analysis import symbols
from harness.analysis.crash_reports import assertion_log
from harness.analysis.crash_reports.assertion_log import UNKNOWN
from harness.analysis.crash_reports.reported_fault import reported_fault
from harness.core.finding import Frame
from harness.judge.sightings.failures import guest_log
from harness.judge.sightings.places import from_fault
from harness.record import fault_log, kernel_faults

if TYPE_CHECKING:
    from pathlib import Path

    from harness.judge.sightings.sighting import Sighting
    from harness.record.cell_events import GuestEvent, TestEvent
    from harness.record.run_record import CellRecord, RunRecord


def with_reported_fault(
    sighting: Sighting, run: RunRecord, record: CellRecord, guest: Path, event: GuestEvent, test: TestEvent | None
) -> Sighting:
    """The sighting of a server that died of a signal, as one of the fault that its report describes.

    Where the server's program is on this host, the finding is that of an emulated target. Otherwise it has the function
    alone. It stays as it is after a failed assertion, and if the report does not name that signal and its place. With
    each, there is what the board's kernel said of the end.
    """
    found = _from_report(sighting, run, record, guest, event, test)
    return msgspec.structs.replace(found, kernel="; ".join(kernel_faults.log_lines(guest)))


def _from_report(
    sighting: Sighting, run: RunRecord, record: CellRecord, guest: Path, event: GuestEvent, test: TestEvent | None
) -> Sighting:
    log = guest_log(guest)
    report = assertion_log.crash_report(log, event.pid)
    if sighting.kind == "assertion" or report is None or not report.signal:
        return sighting
    if fault_log.signal_name(report.signal) not in event.detail:
        return sighting
    program = run.binaries.get(record.target, "")
    fault = reported_fault(log, event.pid, program, run.machines[record.target].emulator.qemu) if program else None
    if fault is None:
        return _with_function(sighting, run, log, report.signal)
    found = from_fault(run, record, guest, fault, test, [], [])
    return msgspec.structs.replace(
        found,
        evidence=sighting.evidence,
        detail=sighting.detail,
        starting=sighting.starting,
        after_tests=sighting.after_tests,
    )


def _with_function(sighting: Sighting, run: RunRecord, log: bytes, number: int) -> Sighting:
    """The sighting with the function that the report names; as it is if it names none."""
    place = assertion_log.fault_place(log)
    if place is None:
        return sighting
    function = place.function
    if not function and (binary := run.binaries.get(sighting.target)):
        named = symbols.Symbols(run.triples[sighting.target], binary).functions_at(place.offset)
        function = next(iter(named)) if len(named) == 1 else ""
    if not function:
        return sighting
    name = fault_log.signal_name(number)
    return msgspec.structs.replace(
        sighting,
        kind=name.lower(),
        title=f"{name} in {function}",
        frames=[Frame(function=function, file=UNKNOWN, line=0, origin="server", pc=0)],
        identity=f"{name.lower()}-{function}",
        exact_identity="",
    )
