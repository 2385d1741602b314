"""Evidence of one cell → sightings: every fault, bad end and failed test that is not another one's consequence.

What a piece of evidence says by itself is harness.sighting's; which sightings are one finding is harness.judge's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness import capped, events, stored_run
from harness.detector import Report, reports
from harness.sighting import Sighting, from_end, from_failed_build, from_failure, from_fault, from_report

if TYPE_CHECKING:
    from harness.events import CellRecord, Event, RunRecord, TestEvent
    from harness.model import Detector


def cell_sightings(folder: Path, run: RunRecord, record: CellRecord, recorded: list[Event]) -> list[Sighting]:
    """Everything that a cell shows to be wrong, and the audit that followed it, if one did."""
    return [
        msgspec.structs.replace(one, evidence=str(Path(one.evidence).relative_to(folder)))
        for one in _all_sightings(folder, run, record, recorded)
    ]


def _all_sightings(folder: Path, run: RunRecord, record: CellRecord, recorded: list[Event]) -> list[Sighting]:
    """The same, with evidence as whole paths."""
    if record.problem_kind == "build":
        return [from_failed_build(record, folder / "run.json")]
    cell = folder / record.target / record.suite
    sightings = _Evidence(cell, run, record, recorded).sightings()
    if record.audit:
        follow_up = cell / events.AUDIT
        sightings += _Evidence(follow_up, run, record, events.read_events(follow_up / "events.jsonl")).sightings()
    return sightings


_ALL = "*"


class _Evidence:
    """One folder's evidence, and what of it is explained by something worse."""

    def __init__(self, cell: Path, run: RunRecord, record: CellRecord, recorded: list[Event]) -> None:
        self._cell = cell
        self._run = run
        self._record = record
        self._tests = [event for event in recorded if isinstance(event, events.TestEvent)]
        self._guests = [event for event in recorded if isinstance(event, events.GuestEvent)]
        # Nobody in a guest sends it SIGKILL: what failed with it says nothing about the server.
        killed = [event for event in self._guests if killed_from_outside(event)]
        self._explained = {(event.test, _ALL if event.own else event.name) for event in killed}
        """A test's name with its guest's: examples of one test can have one name. _ALL: whatever its guest was."""
        self._faulted = {event.name for event in killed}

    def sightings(self) -> list[Sighting]:
        """Faults and reports first: they explain ends, and both explain failures."""
        found: list[Sighting] = []
        for guest, where in _guest_folders(self._cell, self._record):
            alone = self._alone(guest)
            found += self._from_faults(guest, where, alone)
            found += self._from_reports(guest, where, alone)
        found += self._from_ends()
        return found + [from_failure(self._record, self._cell, test) for test in self._tests if self._is_news(test)]

    def _from_faults(self, guest: Path, where: CellRecord, alone: TestEvent | None) -> list[Sighting]:
        counts = events.read_counts(guest / "faults.jsonl")
        faults = stored_run.read_faults(guest / "faults.jsonl")
        found = []
        for number, fault in enumerate(faults):
            test = alone or next(
                (t for t in self._tests if t.guest == guest.name and t.fault_from <= number < t.fault_to), None
            )
            sighting = from_fault(self._run, where, guest, fault, test, faults[:number])
            found.append(msgspec.structs.replace(sighting, count=counts.get(fault.pc, 1)))
            self._explain(guest, test, alone)
        return found

    def _from_reports(self, guest: Path, where: CellRecord, alone: TestEvent | None) -> list[Sighting]:
        found = []
        for report in _reports(guest / "log", self._run.machines[where.target].emulator.detector):
            # It was later than it happened only where the detector waits, which none does.
            test = alone or next(
                (t for t in self._tests if t.guest == guest.name and t.log_from <= report.offset < t.log_to), None
            )
            found.append(from_report(where, guest, report, test, self._tests))
            if report.fatal:
                self._explain(guest, test, alone)
        return found

    def _explain(self, guest: Path, test: TestEvent | None, alone: TestEvent | None) -> None:
        """A guest's end, and the failure of a test, follow from what was seen of it."""
        if test:
            self._explained.add((test.name, _ALL if alone else guest.name))
        self._faulted.add(guest.name)

    def _from_ends(self) -> list[Sighting]:
        found = []
        for event in self._guests:
            by = {(event.test, event.name), (event.test, _ALL)}
            excused = not self._explained.isdisjoint(by) if event.test else event.name in self._faulted
            if event.end != "stopped" and not excused:
                folder = (self._cell / events.PEERS / event.target if event.target else self._cell) / event.name
                here = [test for test in self._tests if test.name == event.test]
                same = (test for test in here if test.guest == event.name)
                owner = self._alone(folder) or next(same, next(iter(here), None))
                where = msgspec.structs.replace(self._record, target=event.target or self._record.target)
                found.append(from_end(self._run, where, folder, event, owner))
                self._explained.add((event.test, _ALL if event.own or owner is None else owner.guest))
        return found

    def _is_news(self, test: TestEvent) -> bool:
        """Whether a test's failure is explained by nothing else."""
        by = {(test.name, test.guest), (test.name, _ALL)}
        return test.outcome == "failed" and not test.blocked and self._explained.isdisjoint(by)

    def _alone(self, guest: Path) -> TestEvent | None:
        """The one test that a guest was started for, as seen from that guest; None where it served several."""
        event = next((one for one in self._guests if one.own and one.name == guest.name), None)
        test = next((one for one in self._tests if event is not None and one.name == event.test), None)
        if event is None or test is None:
            return None
        return msgspec.structs.replace(
            test,
            guest=guest.name,
            unanswered=event.unanswered,
            transcript=event.transcript,
            blocked=False,
            options=event.options,
        )


def _guest_folders(cell: Path, record: CellRecord) -> list[tuple[Path, CellRecord]]:
    """The cell's guests, and those that its tests started elsewhere: each with a record that names its own target."""
    own = [(path, record) for path in sorted(cell.glob("guest-*")) if path.is_dir()]
    peers = sorted(cell.glob(f"{events.PEERS}/*/guest-*"))
    return own + [(path, msgspec.structs.replace(record, target=path.parent.name)) for path in peers]


def _reports(log: Path, kind: Detector) -> list[Report]:
    if not kind or not log.is_file():
        return []
    said = log.read_bytes()
    # Events tell offsets into all that was written.
    return [
        msgspec.structs.replace(report, offset=capped.as_written(said, report.offset)) for report in reports(said, kind)
    ]


def killed_from_outside(event: Event) -> bool:
    """Whether a guest's end is SIGKILL: nobody in a guest sends it, so it says nothing about the server."""
    return (
        isinstance(event, events.GuestEvent) and event.end in {"signal", "start-failed"} and "SIGKILL" in event.detail
    )
