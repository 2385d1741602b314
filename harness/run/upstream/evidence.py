"""Turns the launches, fault logs and results of upstream's tests into the run folder's events.

The launcher leaves a folder for every process, and the emulator its fault log there. The journal records how long each
log was when a test began and ended, which assigns faults to tests. This module judges nothing.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import msgspec

from harness.analysis.crash_reports.assertion_log import child_crashes
from harness.analysis.detectors.registry import reports
from harness.core.model import Record
from harness.record import cell_events, fault_log
from harness.run.servers.endings import ServerEnd, describe_exit, sender_of_end
from harness.run.upstream.journal import FAILED
from harness.run.upstream.launches import ERRORS, Launch, exits_on_panic, is_whole, log_of, read_launches
from harness.run.upstream.reported_crashes import ReportedCrash, reported_crash, where_it_crashed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest
    from harness.run.upstream.file_run import FileRun
    from harness.run.upstream.journal import UpstreamTest
    from harness.run.upstream.results import UpstreamVerdict

LOG = "log"
LOG_BYTES = 4 << 20
"""The size of the end of a server's log that is kept, unless a report is before that end."""
EXCERPT_LINES = 15
"""How much of it a message shows."""


class StartedProcess(Record, frozen=True):
    """One process that a test started on the target, with its records."""

    launch: Launch
    target: str
    """Its target, if it is not the cell's own."""
    run: int
    """Which run of the file started it."""
    content: bytes
    """Its fault log."""
    end: fault_log.ProcessEnd | None
    """How it ended; None for a process that was killed, that started another program, or that ran natively."""
    end_at: int
    """The position of the end in the fault log."""
    reported: ReportedCrash | None = None
    """The crash that it reported without such an end; None if it reported none."""

    @property
    def is_recorded_crash(self) -> bool:
        """Whether the emulator recorded that a signal ended it that stands for a crash."""
        return self.end is not None and self.end.signal in fault_log.CRASHES

    @property
    def crashed(self) -> bool:
        """Whether it crashed, by its record or by its own report."""
        return self.is_recorded_crash or self.reported is not None

    def faults_before(self, length: int) -> int:
        """The number of faults in the first bytes of the log."""
        return fault_log.count_faults_in(self.content[:length])


class UpstreamEvidence:
    """The evidence of the runs of one file."""

    def __init__(self, cell: CellSpec, *, homes: list[Path], names: dict[str, str], started_in: Path) -> None:
        """`names`: item -> the name of its test in the events. `started_in`: the stage, which distinguishes the file's
        processes from those of other files that run at the same time.
        """
        self._cell = cell
        self._stage = started_in
        self.ended: list[cell_events.GuestEvent] = []
        """How each process ended."""
        self._homes = homes
        self._names = names
        self._processes: list[StartedProcess] = []
        self._seen = {launch.guest for home in homes for launch in read_launches(home)}
        self._run = 0
        self._detector = cell.runner.target.emulator.detector
        """The detector whose reports are in what a process prints; empty if there is none."""
        self._own_clients = cell.upstream is not None and cell.upstream.target_clients

    @property
    def died(self) -> bool:
        """Whether a server crashed, on purpose or not."""
        return any(process.crashed for process in self._processes)

    @property
    def started(self) -> int:
        """How many programs ran on the target."""
        return len(self._processes)

    def collect(self, run: FileRun, labels: dict[int, str], *, number: int) -> None:
        """Record every process of one run of the file, or of a part of it, and keep the logs that may help a reader.

        `labels`: place of a test in the journal -> its item. `number`: that of the run, from 0.
        """
        self._run = number
        tests = [(labels.get(place, ""), test) for place, test in enumerate(run.journal.tests)]
        failed = {number for _, test in tests if test.reported in FAILED for number in test.servers}
        for started in self._new():
            log = log_of(started.launch)
            process = msgspec.structs.replace(started, reported=self._reported(started, log, tests))
            self._processes.append(process)
            self._keep_log(process, log, failed=process.launch.pid in failed)
            self.ended.append(self._end_of(process, tests))

    def _reported(
        self, process: StartedProcess, log: bytes, tests: list[tuple[str, UpstreamTest]]
    ) -> ReportedCrash | None:
        """The crash that a process reported, if the emulator recorded none."""
        launch = process.launch
        runner = self._cell.peers[process.target].runner if process.target else self._cell.runner
        recorded = runner.records_faults
        if recorded and process.end is not None:
            return None
        crash = reported_crash(
            log,
            launch.pid,
            runner.target.emulator.detector,
            recorded=recorded,
            exits_on_panic=exits_on_panic(launch),
        )
        if crash is None or not recorded:
            return crash
        # A test kills a server during the report of a crash on purpose.
        _, test = where_it_crashed(crash, launch, tests)
        return None if test is not None and test.announced else crash

    def _keep_log(self, process: StartedProcess, log: bytes, *, failed: bool) -> None:
        """Keep what a process printed, if it shows anything. `failed`: whether one of its tests failed."""
        launch = process.launch
        crashed = process.crashed or bool(child_crashes(log, launch.pid))
        wanted = failed or process.content.count(b"\n") > 1 or crashed or bool(fault_log.emulator_trouble(log))
        # Without its log nobody knows whether a detector reported anything.
        if is_whole(launch) if self._detector else wanted:
            (launch.folder / LOG).write_bytes(kept_of(log, launch.pid, self._detector))
        (launch.folder / ERRORS).unlink(missing_ok=True)

    def _new(self) -> Iterator[StartedProcess]:
        """The processes since the last call. Clients that ran natively leave no record."""
        for home in self._homes:
            for launch in read_launches(home):
                if launch.guest in self._seen or not launch.working_folder.is_relative_to(self._stage):
                    continue
                self._seen.add(launch.guest)
                if launch.is_client and not self._own_clients:
                    shutil.rmtree(launch.folder, ignore_errors=True)
                    continue
                log = launch.folder / fault_log.NAME
                content = log.read_bytes() if log.is_file() else b""
                end, end_at = fault_log.end_in(content, launch.pid)
                yield StartedProcess(
                    launch=launch,
                    target="" if home == self._homes[0] else home.name,
                    run=self._run,
                    content=content,
                    end=end,
                    end_at=end_at,
                )

    def _end_of(self, process: StartedProcess, tests: list[tuple[str, UpstreamTest]]) -> cell_events.GuestEvent:
        guest = process.launch.guest
        item, test = during(process, tests)
        ended = ServerEnd("stopped")
        if process.is_recorded_crash and process.end is not None:
            ended = self._who_ended(process, process.end.signal, test)
        elif process.reported is not None:
            ended = process.reported.end
            item, test = where_it_crashed(process.reported, process.launch, tests)
            if process.reported.sent and not (test is not None and test.announced):
                ended = msgspec.structs.replace(ended, detail=f"{ended.detail}{cell_events.SENT}")
        return cell_events.GuestEvent(
            name=guest,
            end=ended.how,
            detail=ended.detail,
            test=self._name(item) if item else "",
            target=process.target,
            pid=process.launch.pid,
            left=(fault_log.ledger_of(process.launch.folder / fault_log.NAME).name, *([LOG] if self._detector else [])),
            announced=test.announced if test is not None else (),
            unanswered=(test.sent,) if test is not None and test.sent and process.crashed else (),
            upstream=True,
        )

    def _who_ended(self, process: StartedProcess, number: int, test: UpstreamTest | None) -> ServerEnd:
        """How a signal ended a process, and whether another process sent it. Tests that announce a crash send some."""
        if test is not None and test.announced:
            return describe_exit(-number)
        launch = process.launch
        raised = fault_log.signals_of(launch.folder / fault_log.NAME, launch.pid)
        return sender_of_end(-number, log_of(launch), launch.pid, faults=raised, emulated=True)

    def _name(self, label: str) -> str:
        return self._names.get(label, label)

    def event_of(self, item: str, verdict: UpstreamVerdict, shared: Guest | None) -> cell_events.TestEvent:
        """The event of a test, without outcome and message. `shared`: Plumbline's server that it used, if it used
        one.
        """
        shown = verdict.shown
        guests: dict[str, tuple[int, int]] = {}
        for run, test in enumerate(verdict.tries):
            if test is not None and shared is None:
                guests |= self._faults_during(run, test)
            elif test is not None and shared is not None:
                guests |= _faults_in(shared, test)
        blocked_by = self._blocked_by(verdict)
        server = self._server_of(verdict)
        return cell_events.TestEvent(
            name=self._name(item),
            outcome="passed",
            seconds=round(shown.seconds, 3) if shown is not None else 0.0,
            guests=guests,
            announced=shown.announced if shown is not None else (),
            blocked=bool(blocked_by),
            blocked_by=blocked_by,
            guest=shared.name if shared is not None else self._guest_name(server),
            unanswered=(shown.sent,) if shown is not None and shown.sent and verdict.outcome == "failed" else (),
            upstream=item,
        )

    def _guest_name(self, server: StartedProcess | None) -> str:
        return server.launch.guest if server is not None and not server.target else ""

    def log_excerpt(self, verdict: UpstreamVerdict) -> str:
        """The end of the log that the server of a failed test wrote during the test; empty if there is none."""
        server, shown = self._server_of(verdict), verdict.shown
        log = server.launch.folder / LOG if server is not None else None
        if shown is None or log is None or not log.is_file():
            return ""
        # Upstream's tests write this line to the logs of their servers.
        _, _, during = log.read_text("utf-8", "replace").rpartition(f"### Starting test {shown.name} in ")
        return "\n".join(during.partition("### Starting test ")[0].splitlines()[1:][-EXCERPT_LINES:])

    def _server_of(self, verdict: UpstreamVerdict) -> StartedProcess | None:
        """The innermost server of a failed test."""
        shown = verdict.shown
        if verdict.outcome != "failed" or shown is None or not shown.servers:
            return None
        return next((each for each in self._processes if each.launch.pid == shown.servers[-1]), None)

    def _faults_during(self, run: int, test: UpstreamTest) -> dict[str, tuple[int, int]]:
        """Guest -> the faults in its log that a test added."""
        found = {}
        for process in self._processes:
            guest = process.launch.guest
            if process.run == run:
                before = process.faults_before(test.logs_before.get(guest, 0))
                after = process.faults_before(test.logs_after.get(guest, 0))
                if after > before:
                    found[guest] = (before, after)
        return found

    def _blocked_by(self, verdict: UpstreamVerdict) -> str:
        """The guest whose crash before a failed test explains why the test failed; empty if there is none."""
        if verdict.outcome not in {"failed", "undecided", "missing"}:
            return ""
        shown = verdict.shown
        crashed = [process for process in self._processes if process.crashed]
        if shown is None:
            return crashed[-1].launch.guest if crashed else ""
        before = [
            process.launch.guest
            for process in crashed
            if process.launch.pid in shown.servers and process.end_at < shown.logs_before.get(process.launch.guest, 0)
        ]
        return before[-1] if before else ""


def kept_of(log: bytes, pid: int, detector: str) -> bytes:
    """The part of a server's log that the run keeps: its end, and all of it if a report begins before that end."""
    start, end = log[:-LOG_BYTES], log[-LOG_BYTES:]
    if not start:
        return log
    reported = len(reports(end, detector)) != len(reports(log, detector))
    return log if reported or fault_log.emulator_trouble(start) or child_crashes(start, pid) else end


def _faults_in(shared: Guest, test: UpstreamTest) -> dict[str, tuple[int, int]]:
    """The faults that a test added to the log of a server that it shared with other tests."""
    content = shared.evidence.fault_log.read_bytes() if shared.evidence.fault_log.is_file() else b""
    spans = (test.logs_before.get(shared.name, 0), test.logs_after.get(shared.name, 0))
    before, after = (fault_log.count_faults_in(content[:length]) for length in spans)
    return {shared.name: (before, after)} if after > before else {}


def during(process: StartedProcess, tests: list[tuple[str, UpstreamTest]]) -> tuple[str, UpstreamTest | None]:
    """The item and the test during which, or after which, a process ended.

    A server that a test has crashed may still write its report when the test is over.
    """
    guest = process.launch.guest
    begun = [(item, test) for item, test in tests if test.logs_before.get(guest, 0) <= process.end_at]
    within = [(item, test) for item, test in begun if process.end_at < test.logs_after.get(guest, 0)]
    using = [(item, test) for item, test in begun if process.launch.pid in test.servers]
    return next(iter([*within[-1:], *using[-1:]]), ("", None))
