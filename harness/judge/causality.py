"""Evidence of one cell → sightings: every fault, bad end and failed test that is not another one's consequence.

What a piece of evidence says by itself is harness.judge.sightings's; which sightings are one finding is
harness.judge.findings's. Here it is told as well why the evidence may not be whole.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis.detectors.registry import Report, reports
from harness.core.model import CANARY_SUITE
from harness.core.processes import capped_log
from harness.judge.sightings import (
    Sighting,
    from_child_end,
    from_end,
    from_failed_build,
    from_failure,
    from_fault,
    from_report,
)
from harness.judge.verdict import CellOutcome
from harness.record import event_log, evidence_seal, fault_log, run_folder, stored_run

if TYPE_CHECKING:
    from harness.record.fault_log import FaultLog
    from harness.record.run_folder import CellRecord, Event, GuestEvent, RunRecord, TestEvent


def cell_evidence(folder: Path, run: RunRecord, record: CellRecord) -> tuple[list[Sighting], CellOutcome]:
    """Everything that a cell, and the audit that followed it if one did, shows to be wrong; and what it came to."""
    cell = folder / record.target / record.suite
    if record.problem_kind in {"build", "absent"} or not record.seal:
        sightings = [from_failed_build(record, folder / "run.json")] if record.problem_kind == "build" else []
        return _of_cell(sightings, folder, record), _unrun(record)
    recorded = event_log.read(cell / event_log.NAME)
    tests = [event for event in recorded.events if isinstance(event, run_folder.TestEvent)]
    outcome = CellOutcome(
        target=record.target,
        suite=record.suite,
        seconds=record.seconds,
        passed=sum(test.outcome == "passed" for test in tests),
        failed=sum(test.outcome == "failed" for test in tests),
        skipped=sum(test.outcome == "skipped" for test in tests),
        doubts=[*_doubts_of(record, recorded), *evidence_seal.doubts(cell, record.seal)],
        unexplained=[],
        silence=_silence(tests),
    )
    if record.suite == CANARY_SUITE:
        # A canary that does not behave is no finding: it says that nothing can be found.
        wrong = [test.message for test in tests if test.outcome == "failed"]
        return [], msgspec.structs.replace(outcome, unexplained=wrong)
    evidence = _Evidence(cell, run, record, recorded.events)
    sightings = evidence.sightings()
    doubts = [*outcome.doubts, *evidence.doubts]
    if record.audit:
        audited, of_audit = _audit(cell / run_folder.AUDIT, run, record)
        sightings += audited
        doubts += of_audit
    outcome = msgspec.structs.replace(outcome, doubts=list(dict.fromkeys(doubts)), unexplained=evidence.unexplained)
    return _of_cell(sightings, folder, record), outcome


def _audit(cell: Path, run: RunRecord, record: CellRecord) -> tuple[list[Sighting], list[str]]:
    """What the audit shows that followed a cell, and why it may not be all."""
    recorded = event_log.read(cell / event_log.NAME)
    evidence = _Evidence(cell, run, record, recorded.events)
    sightings = evidence.sightings()
    own = recorded.doubts if record.audit == "done" else [record.audit]
    doubts = dict.fromkeys([*own, *evidence_seal.doubts(cell, record.audit_seal), *evidence.doubts])
    return sightings, [f"its audit: {one}" for one in doubts]


def never_run(target: str, suite: str) -> CellOutcome:
    """A cell that was planned, and of which the run has no record."""
    record = run_folder.CellRecord(target=target, suite=suite, seconds=0.0, problem="it was planned, and has no record")
    return _unrun(record)


def _of_cell(sightings: list[Sighting], folder: Path, record: CellRecord) -> list[Sighting]:
    cell = f"{record.target}/{record.suite}"
    return [
        msgspec.structs.replace(one, evidence=str(Path(one.evidence).relative_to(folder)), cell=cell)
        for one in sightings
    ]


def _unrun(record: CellRecord) -> CellOutcome:
    """A cell without a test process of its own: it was not built, there was nothing to run, or nobody knows."""
    absent = record.problem if record.problem_kind == "absent" else ""
    return CellOutcome(
        target=record.target,
        suite=record.suite,
        seconds=record.seconds,
        passed=0,
        failed=0,
        skipped=0,
        absent=absent,
        doubts=[] if absent else [record.problem or "its evidence was never sealed"],
        unexplained=[],
    )


def _doubts_of(record: CellRecord, recorded: event_log.Recorded) -> list[str]:
    """Why a cell's own process says that it did not get to its end; where it says nothing, what its log lacks."""
    if record.problem:
        return [record.problem]
    said = record.status not in {0, None}
    if not recorded.doubts and said != bool(recorded.failed):
        return [f"its test process ended with status {record.status}, and recorded {recorded.failed} failed tests"]
    return recorded.doubts


def _silence(tests: list[TestEvent]) -> str:
    """Why nothing passed: nothing was recorded, for which reasons tests were skipped, or that all failed."""
    skipped = [test for test in tests if test.outcome == "skipped"]
    failed = [test for test in tests if test.outcome == "failed"]
    if failed:
        return f"nothing passed: {len(failed)} tests failed"
    reasons = dict.fromkeys(test.message.removeprefix("Skipped: ") for test in skipped)
    return f"every test was skipped: {'; '.join(reasons)}" if skipped else "no test recorded a result"


class _Evidence:
    """One folder's evidence, and what of it is explained by something worse."""

    def __init__(self, cell: Path, run: RunRecord, record: CellRecord, recorded: list[Event]) -> None:
        self._cell = cell
        self._run = run
        self._record = record
        self._tests = [event for event in recorded if isinstance(event, run_folder.TestEvent)]
        self._guests = [event for event in recorded if isinstance(event, run_folder.GuestEvent)]
        self._dead: set[str] = set()
        """Guests, and units, whose end is a record's consequence: it tells of what killed them."""
        self._not_the_servers: set[str] = set()
        """Guests whose end says nothing about the server: they were killed from outside, or their emulator crashed."""
        self.doubts: list[str] = []
        """Why this may not be all, or not the server's."""
        self.unexplained: list[str] = []
        """What failed without a reason that is in the evidence."""

    def sightings(self) -> list[Sighting]:
        """Records first, since they explain ends; and ends explain failures."""
        self.doubts += [f"{test.name}: {test.doubt}" for test in self._tests if test.doubt]
        for event in self._guests:
            if killed_from_outside(event):
                self._not_the_servers.add(event.name)
                self._doubt(f"a guest was {event.detail} from outside (out of memory, or by hand)")
            folder = (self._cell / run_folder.PEERS / event.target if event.target else self._cell) / event.name
            for name in event.left:
                if not (folder / name).is_file():
                    self._doubt(f"{event.name}: its {name} is gone")
        found: list[Sighting] = []
        for guest, where in _guest_folders(self._cell, self._record):
            alone = self._alone(guest)
            found += self._from_faults(guest, where, alone)
            found += self._from_reports(guest, where, alone)
        found += self._from_ends()
        for test in self._tests:
            if test.outcome == "failed" and not test.doubt and not self._is_explained(test):
                if test.blocked:
                    self.unexplained.append(test.message)
                else:
                    found.append(from_failure(self._record, self._cell, test))
        return found

    def _doubt(self, why: str) -> None:
        if why and why not in self.doubts:
            self.doubts.append(why)

    def _from_faults(self, guest: Path, where: CellRecord, alone: TestEvent | None) -> list[Sighting]:
        log = stored_run.read_fault_log(guest / fault_log.NAME)
        event = next((one for one in self._guests if one.name == guest.name), None)
        for damage in log.damage:
            self._doubt(f"{guest.name}: {damage}")
        found, times = [], _times(log)
        for number, fault in enumerate(log.faults):
            test = alone or next(
                (t for t in self._tests if t.guest == guest.name and t.fault_from <= number < t.fault_to), None
            )
            sighting = from_fault(self._run, where, guest, fault, test, log.faults[:number])
            found.append(msgspec.structs.replace(sighting, count=times[number]))
            if _is_fatal(fault, log, event):
                self._dead.add(guest.name)
        self._check_length(guest, len(log.faults))
        self._check_emulator(guest, where, event, log)
        return found + self._from_children(guest, where, event, log, alone)

    def _check_length(self, guest: Path, faults: int) -> None:
        """Tests have counted the records as they came: none may be gone."""
        last = max((test.fault_to for test in self._tests if test.guest == guest.name), default=0)
        if faults < last:
            self._doubt(f"{guest.name}: its fault log has {faults} records, of {last} that there were during its tests")

    def _check_emulator(self, guest: Path, where: CellRecord, event: GuestEvent | None, log: FaultLog) -> None:
        """An emulator that crashes, or loses records, is no server's fault, unless the server was dying already."""
        text = _log_of(guest)
        trouble = fault_log.emulator_trouble(text)
        silent = (
            event is not None
            and event.end == "signal"
            and event.pid not in {0, *log.ends}
            and fault_log.ledger_of(guest / fault_log.NAME).is_file()
        )
        if guest.name in self._dead or where.target == "native":
            return
        if trouble:
            self._doubt(f"{guest.name}: {trouble}")
        if (trouble or silent) and event is not None and event.end == "signal" and not killed_from_outside(event):
            self._not_the_servers.add(guest.name)
            self._doubt(f"{guest.name}: its emulator was {event.detail}, and the server was not")

    def _from_children(
        self, guest: Path, where: CellRecord, event: GuestEvent | None, log: FaultLog, alone: TestEvent | None
    ) -> list[Sighting]:
        """Processes of a server, other than its first, that died of a signal which no record tells of, as SIGABRT."""
        if event is None or not event.pid:
            return []
        told = {fault.pid for fault in log.faults if fault.event == "fault"}
        fatal = [end for end in log.ends.values() if end.signal in _FATAL and end.pid not in {event.pid, *told}]
        return [from_child_end(where, guest, end.signal, alone) for end in fatal]

    def _from_reports(self, guest: Path, where: CellRecord, alone: TestEvent | None) -> list[Sighting]:
        found = []
        for report in _reports(guest / "log", self._run.machines[where.target].emulator.detector):
            # It was later than it happened only where the detector waits, which none does.
            test = alone or next(
                (t for t in self._tests if t.guest == guest.name and t.log_from <= report.offset < t.log_to), None
            )
            found.append(from_report(where, guest, report, test, self._tests))
            if report.fatal:
                self._dead.add(guest.name)
        return found

    def _from_ends(self) -> list[Sighting]:
        found = []
        for event in self._guests:
            if event.end != "stopped" and event.name not in self._dead | self._not_the_servers:
                folder = (self._cell / run_folder.PEERS / event.target if event.target else self._cell) / event.name
                here = [test for test in self._tests if test.name == event.test]
                same = (test for test in here if test.guest == event.name)
                owner = self._alone(folder) or next(same, next(iter(here), None))
                where = msgspec.structs.replace(self._record, target=event.target or self._record.target)
                found.append(from_end(self._run, where, folder, event, owner))
        return found

    def _is_explained(self, test: TestEvent) -> bool:
        """Whether a test failed because a server of its own had ended, which is told already: nothing else explains.

        What a server did and lived on is no reason for a wrong answer.
        """
        if test.unit:
            return test.guest in self._dead and not test.wrong_line
        ended = [event for event in self._guests if event.end != "stopped" and not event.stopping]
        if test.blocked:
            return any(event.end in {"start-failed", "hang"} and not event.test for event in ended)
        return any(
            event.test == test.name and (event.own or event.oracle or event.name == test.guest) for event in ended
        )

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


_FATAL = {
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGSEGV,
    signal.SIGSYS,
    signal.SIGTRAP,
}
"""Signals that no server sends to its own children, as it does SIGTERM and SIGUSR1 to end them."""


def _is_fatal(fault: run_folder.Fault, log: FaultLog, event: GuestEvent | None) -> bool:
    """Whether a guest's first process, or a unit, died of a fault: a repaired access kills nobody, and a child that
    dies takes nobody with it.
    """
    if fault.event != "fault":
        return False
    if event is not None:
        # 0: its number is not known.
        return event.end != "stopped" and event.pid in {0, fault.pid}
    end = log.ends.get(fault.pid)
    return end is None or end.signal != 0


def _times(log: FaultLog) -> list[int]:
    """How often that happened which each record tells of: what an instruction repeated beyond its last full record is
    that record's.
    """
    same: dict[tuple[int, int, str], list[int]] = {}
    for number, fault in enumerate(log.faults):
        same.setdefault((fault.pid, fault.pc, fault.event), []).append(number)
    times = [1] * len(log.faults)
    for (pid, pc, _), numbers in same.items():
        times[numbers[-1]] = max(1, log.counts.get((pid, pc), 0) - len(numbers) + 1)
    return times


def _log_of(guest: Path) -> bytes:
    log = guest / "log"
    return log.read_bytes() if log.is_file() else b""


def _guest_folders(cell: Path, record: CellRecord) -> list[tuple[Path, CellRecord]]:
    """The cell's guests, and those that its tests started elsewhere: each with a record that names its own target."""
    own = [(path, record) for path in sorted(cell.glob("guest-*")) if path.is_dir()]
    peers = sorted(cell.glob(f"{run_folder.PEERS}/*/guest-*"))
    return own + [(path, msgspec.structs.replace(record, target=path.parent.name)) for path in peers]


def _reports(log: Path, kind: str) -> list[Report]:
    if not kind or not log.is_file():
        return []
    said = log.read_bytes()
    # Events tell offsets into all that was written.
    return [
        msgspec.structs.replace(report, offset=capped_log.as_written(said, report.offset))
        for report in reports(said, kind)
    ]


def killed_from_outside(event: Event) -> bool:
    """Whether a guest's end is SIGKILL, or it was stopped: nobody in a guest does that to it."""
    return isinstance(event, run_folder.GuestEvent) and (
        (event.end in {"signal", "start-failed"} and event.detail.startswith("killed by SIGKILL"))
        or (event.end == "hang" and event.detail == run_folder.STOPPED)
    )
