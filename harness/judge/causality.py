"""Turns a folder of evidence into sightings: every fault, bad end and failed test that no other one caused.

harness.judge.sightings reads each piece of evidence by itself. harness.judge.findings decides which sightings form one
finding. This module also reports why the evidence may be incomplete.
"""

from __future__ import annotations

import math
import signal
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import allocator_log
from harness.analysis.crash_reports.assertion_log import child_crashes, raised_its_signal
from harness.analysis.detectors.registry import Report, reports
from harness.core.processes import capped_log
from harness.core.target_model import ORACLE
from harness.judge.fault_effects import (
    from_outside,
    is_fatal,
    is_question,
    is_survived,
    killed_from_outside,
    times_of_records,
)
from harness.judge.program_runs import program_ends
from harness.judge.program_runs.program_evidence import is_probe, program_doubts
from harness.judge.sightings.board_faults import with_reported_fault
from harness.judge.sightings.failures import (
    from_child_end,
    from_end,
    from_failure,
    guest_log,
)
from harness.judge.sightings.overtakes import overtakes_of
from harness.judge.sightings.places import IN_HANDLER, from_fault, from_report, symbols_of
from harness.judge.upstream_tests.deliberate_crashes import is_deliberate
from harness.record import cell_events, fault_log, program_launch, run_folder, stored_run

if TYPE_CHECKING:
    from pathlib import Path

    from harness.judge.sightings.sighting import Sighting
    from harness.record.cell_events import Event, GuestEvent, TestEvent
    from harness.record.fault_log import FaultLog
    from harness.record.run_record import CellRecord, RunRecord


class Evidence:
    """The evidence in one folder. Omits the consequences of worse events."""

    def __init__(self, cell: Path, run: RunRecord, record: CellRecord, recorded: list[Event]) -> None:
        self._cell = cell
        self._run = run
        self._record = record
        self._tests = [event for event in recorded if isinstance(event, cell_events.TestEvent)]
        guests = [event for event in recorded if isinstance(event, cell_events.GuestEvent)]
        self._guests = [
            event
            for event in guests
            if not is_probe(cell / event.name) and (not event.target or event.target in run.machines)
        ]
        self._dead: set[str] = set()
        """Guests and units whose end a fault record or a report explains."""
        self._reported_more: set[str] = set()
        """Those among them that died in their crash report, and have no record of the crash that it was about."""
        self._not_the_servers: set[str] = set()
        """Guests whose end says nothing about the server: killed from outside, or by a crash of the emulator."""
        self._deliberate: set[str] = set()
        """Guests that a test crashed on purpose."""
        self.doubts: list[str] = []
        """Why the evidence may be incomplete, or not caused by the server."""
        for name in dict.fromkeys(event.target for event in guests if event.target not in {"", *run.machines}):
            self._doubt(f"a guest ran on {name}, which the run's record does not have")
        self.unexplained: list[str] = []
        """Failures whose reason is not in the evidence."""

    def sightings(self) -> list[Sighting]:
        """Fault records first, since they explain ends; then ends, which explain failures."""
        self.doubts += _doubts_of([test for test in self._tests if test.doubt and not test.blockers])
        blocked = Counter(test.doubt for test in self._tests if test.blockers)
        self.doubts += [f"{number} blocked {_tests(number)}: {why}" for why, number in blocked.items()]
        for event in self._guests:
            if killed_from_outside(event):
                self._not_the_servers.add(event.name)
                self._doubt(f"{'the native build' if event.oracle else 'a guest'} was {from_outside(event.detail)}")
            folder = self._folder_of(event)
            for name in event.left:
                if not (folder / name).is_file():
                    self._doubt(f"{event.name}: its {name} is gone")
        found: list[Sighting] = []
        for guest, where in self._guest_folders():
            if self._event_of(guest) is None and (_is_server(guest) or self._is_upstreams(guest)):
                self._doubt(f"{guest.name}: nothing records how it ended")
            alone = self._alone(guest)
            found += self._from_faults(guest, where, alone)
            found += self._from_reports(guest, where, alone)
        found, doubted = program_ends.without_lacking_calls([*found, *self._from_ends()])
        found, unblamed = program_ends.without_unblamed(found, self._cell)
        for why in [*program_doubts(self._cell), *doubted, *unblamed]:
            self._doubt(why)
        return found + self._from_failures()

    def _guest_folders(self) -> list[tuple[Path, CellRecord]]:
        """The folders of the cell's guests, and of its peers on other targets, each with a record of its target."""
        own = [
            (path, self._record) for path in sorted(self._cell.glob("guest-*")) if path.is_dir() and not is_probe(path)
        ]
        peers = sorted(self._cell.glob(f"{run_folder.PEERS}/*/guest-*"))
        # The seal reports a folder that the run did not make. Its target is unknown here.
        return own + [
            (path, msgspec.structs.replace(self._record, target=path.parent.name))
            for path in peers
            if path.parent.name in self._run.machines
        ]

    def _event_of(self, guest: Path) -> GuestEvent | None:
        """The record of a guest's end; None if there is none."""
        return next((one for one in self._guests if one.name == guest.name), None)

    def _is_upstreams(self, guest: Path) -> bool:
        """Whether a test of the release's own started a guest."""
        return (guest / program_launch.LAUNCH).is_file() and any(test.upstream for test in self._tests)

    def _doubt(self, why: str) -> None:
        if why and why not in self.doubts:
            self.doubts.append(why)

    def _from_faults(self, guest: Path, where: CellRecord, alone: TestEvent | None) -> list[Sighting]:
        log = stored_run.read_fault_log(guest / fault_log.NAME)
        event = self._event_of(guest)
        for damage in log.damage:
            self._doubt(f"{guest.name}: {damage}")
        found, counts = [], times_of_records(log)
        # Read once: a server that crashes in each of a thousand children has a long log.
        guarded = allocator_log.block_ranges(guest_log(guest)) if log.faults else []
        for number, fault in enumerate(log.faults):
            if is_question(fault, log, event):
                continue
            test = alone or self._test_of_fault(guest.name, number) or self._test_of_end(event)
            sighting = from_fault(self._run, where, guest, fault, test, log.faults[:number], guarded)
            sighting = self._with_overtakes(sighting, where, guest, log, fault.pid)
            if event is not None and is_deliberate(event, sighting):
                self._deliberate.add(guest.name)
                continue
            after = test is None and self._was_used(guest.name, number)
            found.append(msgspec.structs.replace(sighting, count=counts[number], after_tests=after))
            survived = is_survived(fault, event, test) or (event is not None and _failed_as_program(guest, event))
            if is_fatal(fault, log, event) and not survived:
                if guest.name not in self._dead and sighting.kind.startswith(IN_HANDLER):
                    self._reported_more.add(guest.name)
                self._dead.add(guest.name)
        self._check_length(guest, len(log.faults))
        self._check_emulator(guest, where, event, log)
        return found + self._from_children(guest, where, event, log, alone)

    def _test_of_fault(self, guest: str, number: int) -> TestEvent | None:
        """The test during which a guest's fault happened."""
        for test in self._tests:
            begin, end = test.guests.get(guest) or ((test.fault_from, test.fault_to) if test.guest == guest else (0, 0))
            if begin <= number < end:
                return test
        return None

    def _was_used(self, guest: str, number: float = math.inf) -> bool:
        """Whether a test had begun to use a shared guest before its fault of this number, or before its end."""
        return any(test.guest == guest and not test.blocked and test.fault_from <= number for test in self._tests)

    def _test_of_end(self, event: GuestEvent | None) -> TestEvent | None:
        """The upstream test during which a guest ended: such a guest may serve many tests, and fault between them."""
        if event is None or not event.upstream or not event.test:
            return None
        return next((test for test in self._tests if test.name == event.test), None)

    def _check_length(self, guest: Path, faults: int) -> None:
        """Record a doubt if the fault log has fewer records than the tests counted."""
        own = (test.fault_to for test in self._tests if test.guest == guest.name)
        last = max(
            [*own, *(test.guests[guest.name][1] for test in self._tests if guest.name in test.guests)], default=0
        )
        if faults < last:
            self._doubt(f"{guest.name}: its fault log has {faults} records, but there were {last} during its tests")

    def _check_emulator(self, guest: Path, where: CellRecord, event: GuestEvent | None, log: FaultLog) -> None:
        """Record a doubt if the emulator crashed or lost records, unless the server was already dying."""
        text = guest_log(guest)
        trouble = fault_log.emulator_trouble(text)
        silent = (
            event is not None
            and event.end == "signal"
            and event.pid not in {0, *log.ends}
            and fault_log.ledger_of(guest / fault_log.NAME).is_file()
        )
        if guest.name in self._dead or self._run.machines[where.target].emulator.runs_here:
            return
        if trouble:
            self._doubt(f"{guest.name}: {trouble}")
        if (trouble or silent) and event is not None and event.end == "signal" and not killed_from_outside(event):
            self._not_the_servers.add(guest.name)
            self._doubt(f"{guest.name}: its emulator was {event.detail}, and what it ran was not")

    def _from_children(
        self, guest: Path, where: CellRecord, event: GuestEvent | None, log: FaultLog, alone: TestEvent | None
    ) -> list[Sighting]:
        """Child processes of a server that died of a signal without a fault record, such as SIGABRT."""
        if event is None or not event.pid:
            return []
        test = alone or self._test_of_end(event)
        if self._run.machines[where.target].emulator.runs_here:
            numbers = set() if _is_program(guest, event) else self._reported_children(guest, where, event)
            return [from_child_end(where, guest, number, test) for number in sorted(numbers)]
        found = []
        for end in log.unrecorded_crashes({event.pid}):
            if _is_program(guest, event):
                one = program_ends.from_crash(self._run, where, guest, end, test)
            else:
                one = from_child_end(where, guest, end.signal, test)
            found.append(self._with_overtakes(one, where, guest, log, end.pid))
        return found

    def _reported_children(self, guest: Path, where: CellRecord, event: GuestEvent) -> set[int]:
        """The signals by which children of a server crashed that no emulator observes, according to its log.

        Its detector, if it has one, reports some of these crashes itself.
        """
        log = guest_log(guest)
        crashed = child_crashes(log, event.pid)
        reported: set[int] = set()
        if crashed:
            detector = self._run.machines[where.target].emulator.detector
            reported = {one.pid for one in _reports(log, detector) if one.fatal and one.pid not in {0, event.pid}}
        # The server's word on a child that it does not number may be on one whose crash the detector reports.
        own = {
            number or signal.SIGABRT for child, number in crashed if child not in reported and (child or not reported)
        }
        return own & fault_log.CRASHES

    def _from_reports(self, guest: Path, where: CellRecord, alone: TestEvent | None) -> list[Sighting]:
        found = []
        event = self._event_of(guest)
        detector = self._run.machines[where.target].emulator.detector
        log = guest_log(guest) if detector else b""
        if lost := capped_log.left_out_bytes(log):
            self._doubt(f"{guest.name}: its log lacks {lost} bytes, which may have reports of its detector")
        for report in _reports(log, detector):
            # No detector delays its reports, so the offset identifies the test during which the error happened.
            test = alone or next(
                (t for t in self._tests if t.guest == guest.name and t.log_from <= report.offset < t.log_to),
                self._test_of_end(event),
            )
            found.append(from_report(where, guest, report, test, self._tests))
            # The end of a child says nothing of the server's.
            if report.fatal and (event is None or 0 in {event.pid, report.pid} or event.pid == report.pid):
                self._dead.add(guest.name)
        return found

    def _from_ends(self) -> list[Sighting]:
        found = []
        for event in self._guests:
            if event.end != "stopped" and event.name not in self._dead | self._not_the_servers | self._deliberate:
                sighting = self._from_end(event)
                if is_deliberate(event, sighting):
                    self._deliberate.add(event.name)
                else:
                    found.append(sighting)
        return found + self._from_reported_assertions()

    def _from_reported_assertions(self) -> list[Sighting]:
        """The assertions after which servers died in their crash reports: these leave a record, an assertion none."""
        found = []
        for event in self._guests:
            if event.name in self._reported_more:
                sighting = self._from_end(event)
                if sighting.kind == "assertion" and not is_deliberate(event, sighting):
                    found.append(sighting)
        return found

    def _folder_of(self, event: GuestEvent) -> Path:
        return (self._cell / run_folder.PEERS / event.target if event.target else self._cell) / event.name

    def _from_end(self, event: GuestEvent) -> Sighting:
        """The sighting of a guest that ended badly, or that reported more than its end."""
        folder = self._folder_of(event)
        where = msgspec.structs.replace(self._record, target=event.target or self._record.target)
        owner = self._owner(event, folder)
        log = stored_run.read_fault_log(folder / fault_log.NAME)
        end = log.ends.get(event.pid)
        if _failed_as_program(folder, event):
            failed = program_ends.from_failure(self._run, where, folder, event, owner)
            return self._with_overtakes(failed, where, folder, log, event.pid)
        if _is_program(folder, event) and end is not None:
            crashed = program_ends.from_crash(self._run, where, folder, end, owner)
            return self._with_overtakes(crashed, where, folder, log, end.pid)
        sighting = from_end(self._run, where, folder, event, owner)
        if event.end == "signal" and self._run.machines[where.target].emulator.is_board:
            sighting = with_reported_fault(sighting, self._run, where, folder, event, owner)
        sighting = self._with_overtakes(sighting, where, folder, log, event.pid)
        if where.target == ORACLE and sighting.kind == "crash":
            proved = raised_its_signal(guest_log(folder), event.pid)
            sighting = msgspec.structs.replace(sighting, may_be_sent=not proved)
        between = owner is None and not event.stopping and event.end != "start-failed"
        return msgspec.structs.replace(sighting, after_tests=between and self._was_used(event.name))

    def _with_overtakes(self, one: Sighting, where: CellRecord, guest: Path, log: FaultLog, pid: int) -> Sighting:
        """A sighting of a process with the stores that its threads saw in another order, or missed."""
        if not log.overtakes and not log.missed:
            return one
        failed = one.frames[0] if one.frames else None
        overtakes = overtakes_of(log, symbols_of(self._run, where, guest), pid, failed)
        return msgspec.structs.replace(one, overtakes=overtakes)

    def _owner(self, event: GuestEvent, folder: Path) -> TestEvent | None:
        """The test during which a guest ended."""
        here = [test for test in self._tests if test.name == event.test]
        if not here and event.test:
            # An open-ended test names each example of its own that fails, and no other.
            here = [test for test in self._tests if test.name.startswith(f"{event.test}[") and test.outcome == "failed"]
        same = (test for test in here if test.guest == event.name)
        return self._alone(folder) or next(same, next(iter(here), None))

    def _from_failures(self) -> list[Sighting]:
        found = []
        for test in self._tests:
            if test.outcome != "failed" or test.doubt or self._is_explained(test):
                continue
            if test.blocked_by in self._deliberate:
                # Natively, this crash keeps no later test from running.
                self._doubt(f"{test.name}: {test.message} (a test before it crashed {test.blocked_by} on purpose)")
            elif test.blocked:
                self.unexplained.append(test.message)
            elif test.fails_natively and test.upstream and self._run.everywhere == "off":
                self._doubt(f"{test.name}: {test.message}")
            else:
                one = from_failure(self._record, self._cell, self._with_its_server(test))
                noted = one.everywhere and self._run.everywhere != "off"
                found.append(msgspec.structs.replace(one, everywhere=noted))
        return found

    def _is_explained(self, test: TestEvent) -> bool:
        """Whether a test failed because one of its own servers had ended, which is a separate sighting.

        Nothing else explains a failure: an access that a server survived does not explain a wrong reply.
        """
        if test.unit:
            return test.guest in self._dead and not test.wrong_line
        bad = [event for event in self._guests if event.end != "stopped" and not event.stopping]
        ended = [event for event in bad if event.name not in self._deliberate]
        if test.blocked_by:
            return any(event.name == test.blocked_by for event in ended)
        if test.blocked:
            return any(event.end in {"start-failed", "hang"} and not event.test for event in ended)
        return any(
            event.test == test.name and (event.own or event.oracle or event.upstream or event.name == test.guest)
            for event in ended
        )

    def _with_its_server(self, test: TestEvent) -> TestEvent:
        """The test, with the data of the only server that it started for itself, if it used no other one."""
        own = [event for event in self._guests if event.own and event.test == test.name]
        if test.guest or test.again is not None or len(own) != 1 or own[0].target:
            return test
        return self._alone(self._cell / own[0].name) or test

    def _alone(self, guest: Path) -> TestEvent | None:
        """The one test that a guest was started for, with that guest's data; None for a guest that served several."""
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
            preloads=event.preloads,
            tls=event.tls,
        )


def _doubts_of(tests: list[TestEvent]) -> list[str]:
    """The doubts about tests, each once: a file that upstream ends early leaves all its tests without a result."""
    by_doubt: dict[str, list[TestEvent]] = {}
    for test in tests:
        # The second line is the test's place in the file.
        by_doubt.setdefault(test.doubt.partition("\n")[0], []).append(test)
    return [
        f"{same[0].name}: {same[0].doubt}" if len(same) == 1 else f"{len(same)} tests, from {same[0].name} on: {doubt}"
        for doubt, same in by_doubt.items()
    ]


def _tests(number: int) -> str:
    return "test" if number == 1 else "tests"


def _is_server(guest: Path) -> bool:
    """Whether a guest is a server of the cell's own target that a test or the session started, and not a unit, a
    program, a server of the release's own tests or the oracle.
    """
    return (
        guest.parent.parent.name != run_folder.PEERS
        and guest.name.removeprefix("guest-").isdigit()
        and not (guest / program_launch.LAUNCH).is_file()
    )


def _is_program(guest: Path, event: GuestEvent) -> bool:
    """Whether a guest is a program below a command. Servers of the release's own tests also have a file of that
    name.
    """
    return not event.upstream and (guest / program_launch.LAUNCH).is_file()


def _failed_as_program(guest: Path, event: GuestEvent) -> bool:
    """Whether a guest is a program whose status failed its command. No fault explains a status."""
    return event.end == "exit" and _is_program(guest, event)


def _reports(log: bytes, kind: str) -> list[Report]:
    # Events contain offsets into the uncapped log.
    return [
        msgspec.structs.replace(report, offset=capped_log.as_written(log, report.offset))
        for report in reports(log, kind)
    ]
