"""The servers of a cell: the guest that its tests share, its oracle, and those that a test starts for itself."""

from __future__ import annotations

import contextlib
import functools
import shutil
import tempfile
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import hiredis
import msgspec

from harness.core.target_model import ORACLE
from harness.record import cell_events, fault_log, run_folder
from harness.run.extra_servers import StartGuest, count_hang, ended, keep_transcript, new_guest, server_of
from harness.run.machines import other_machine
from harness.run.server_process import StartError
from harness.run.servers.hang_ledger import HangLedger
from harness.run.servers.probes import REPLY_SECONDS, addresses_of_values, answers_ping, processed_commands
from harness.run.servers.waits import WAITED, BlockedError, Waits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.core.sockets import Address
    from harness.record.event_log import EventLog
    from harness.record.executed_blocks.recorder import ExecutionRecorder
    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest
    from harness.run.session.current_test import CurrentTest


def hangs(message: str, server: Address, *, probe_seconds: float = REPLY_SECONDS) -> bool:
    """Whether a failed test's message says that a living server does not answer.

    A message about a state that was not reached in time does not say so: such a server hangs if it does not answer
    PING. `probe_seconds`: the deadline of that answer.
    """
    if WAITED in message:
        return not answers_ping(server, deadline_seconds=probe_seconds)
    return "TimeoutError" in message or "timed out" in message


FULL_REPORTS = 25
"""How many deaths in a cell have a full crash report. Crash handlers also have bugs, and some occur only for some
requests: in `bitops` of redis-3.2.6 on ARMv5, one occurs in the 22nd report."""


class CellServers:
    """Starts them when a test asks, and records how each of them ended."""

    def __init__(
        self, cell: CellSpec, log: EventLog, current: CurrentTest, *, recorder: ExecutionRecorder | None
    ) -> None:
        """`recorder` records what they execute."""
        self._cell = cell
        self._log = log
        self._current = current
        self._recorder = recorder
        self._numbers = count(1)
        self.host = other_machine(cell.machine, cell.board, cell.folder, sockets=cell.sockets)
        """The machine that they run in; None where they are processes here."""
        # A repetition of failed tests needs the whole result of each of them.
        self._waits = Waits()
        if cell.exactly is None:
            ledger = HangLedger(cell.shared / f"hangs-{cell.runner.target.name}.jsonl", cell.suite)
            self._waits = Waits(lambda: current.whole_name, ledger)
        self.start_guest = StartGuest(cell, log, self.host, self._numbers, self._waits, recorder=recorder)
        """Starts servers for the present test alone."""
        self.present: Guest | None = None
        """The guest that tests share; it may have ended."""
        self._began_with = ""
        """The test for which it was started."""
        self._oracle: Guest | None = None
        self._oracle_silent = ""
        """Why the native build did not start at the last attempt; empty if it started."""
        self._oracle_ended = False
        """Whether a native build has ended by itself in the present example."""
        self._scratched = 0
        self._failure: StartError | None = None
        """Why a guest did not start, if one did not: no other is tried."""
        self._survivor: Guest | None = None
        """A guest that went on after a fault of its own."""
        self._deaths = 0
        """Guests that have died. After the first, they do not test the machine's memory when they crash."""

    def guest(self) -> Guest:
        """A live guest: the current one, or a new one.

        Raises StartError; at once if an earlier guest could not start. Raises BlockedError if guests hung in the tests
        before.
        """
        if self.present is not None and self.present.alive():
            if self._current.whole_name != self._began_with:
                self._waits.replied()
            return self.present
        if (refusal := self._waits.refusal()) is not None:
            raise refusal
        self._current.blocked = self._failure is not None
        if self._failure is not None:
            # Each time that an exception is raised again, its traceback grows, and pytest reads all of it.
            raise self._failure.with_traceback(None)
        self.retire()
        self._waits.starting()
        folder = self._cell.folder / f"guest-{next(self._numbers)}"
        if self.host is not None and self._current.counters_before is None:
            self.host.machine()
            self._current.counters_before = self.host.counters()
        spec = msgspec.structs.replace(
            server_of(self._cell),
            tests_memory=not self._deaths,
            fatal_faults=self._fatal_faults if self._deaths >= FULL_REPORTS else None,
        )
        guest = new_guest(self._cell, self.host, folder, spec, waits=self._waits, recorder=self._recorder, shared=True)
        self.present, self._began_with = guest, self._current.whole_name
        self._current.faults_before = self._current.log_before = 0
        try:
            guest.__enter__()
        except StartError as error:
            guest.failed_to_start(error)
            self._failure, self._current.blocked = error, True
            raise
        # Of a server that takes no client, the tests say so.
        with contextlib.suppress(OSError, hiredis.HiredisError):
            for _ in range(self._cell.earlier_clients):
                with guest.client() as client:
                    client.command("PING")
        # Reports from the server's start do not belong to a test.
        self._current.log_before = guest.evidence.log_bytes()
        if self._recorder is not None:
            self._recorder.ready()
        return guest

    def oracle(self) -> Guest:
        """The native build of the same source, started on first use and again after it died."""
        if self._oracle is not None and self._oracle.alive():
            return self._oracle
        self.retire_oracle()
        folder = self._cell.folder / run_folder.PEERS / "native" / f"guest-{next(self._numbers)}"
        spec = server_of(self._cell, ORACLE)
        self._oracle = new_guest(self._cell, self.host, folder, spec, target=ORACLE)
        self._oracle_silent = ""
        try:
            self._oracle.__enter__()
        except StartError as error:
            self._oracle_silent = error.detail
            raise
        return self._oracle

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Guest]:
        """A guest outside the evidence: it repeats requests that have failed before, and its end is not recorded."""
        self._scratched += 1
        # A crash report takes a second under emulation, and is not read here.
        quick = ["--crash-log-enabled", "no"] if "crash-log-enabled" in self._cell.abilities.options else []
        folder = self._cell.folder / f"scratch-{self._scratched}"
        try:
            with new_guest(self._cell, self.host, folder, server_of(self._cell, options=quick)) as guest:
                yield guest
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def block_addresses(self) -> tuple[int, ...]:
        """Addresses of blocks that the server's allocator gives, if an access in the cell was misaligned: they tell
        whether the blocks are. Empty if not, or if the server cannot tell them.
        """
        logs = self._cell.folder.glob(f"guest-*/{fault_log.NAME}")
        if self._cell.build is None or not any(
            fault_log.is_misaligned(fault) for log in logs for fault in fault_log.read_faults(log)
        ):
            return ()
        try:
            with self.scratch() as guest, guest.client() as client:
                return addresses_of_values(client)
        except (StartError, OSError, hiredis.HiredisError):
            return ()

    def counters(self) -> cell_events.Counters | None:
        """The machine's counters of misaligned accesses; None if it has none."""
        return self.host.counters() if self.host is not None else None

    def begin_example(self) -> None:
        """Note where the evidence of the present example begins."""
        self._oracle_ended = False
        self._current.counters_before = self.counters()
        if self.present is not None:
            evidence = self.present.evidence
            self._current.faults_before, self._current.log_before = evidence.faults(), evidence.log_bytes()
            if self.present.access.recorder is not None:
                self.present.access.recorder.begin()

    def reports_trouble(self) -> bool:
        """Whether the present guest has a new fault, a new report of its detector, or has begun to report a crash."""
        guest, current = self.present, self._current
        if guest is None:
            return False
        evidence = guest.evidence
        return (
            evidence.faults() > current.faults_before
            or bool(evidence.reports(current.log_before))
            or (evidence.log_bytes() > current.log_before and guest.reports_crash())
        )

    def explain(self, guest: Guest, message: str) -> tuple[list[str], str]:
        """Let a crash finish, end a hang that a failed test's `message` reports, and keep the transcript.

        If the native build ended during the test, the message may be about that, so the guest itself is probed. Returns
        the requests without a reply, and the transcript's name.
        """
        faults_before = self._current.faults_before
        fatal = guest is not self._survivor and guest.evidence.has_fault_of(guest.first_pid, faults_before)
        if fatal or guest.reports_crash() or self._lost(guest, message):
            guest.settle()
        crashing = guest.reports_crash()
        if fatal and not crashing and guest.alive() and self._serves(guest):
            # It handles the signal, and continues.
            self._survivor, fatal = guest, False
        silent = guest.alive() and not (fatal or crashing) and self._hangs(guest, message)
        if silent or (guest.alive() and (fatal or crashing)):
            guest.hung()
        kept = keep_transcript(guest)
        if silent and guest.ended is not None and guest.ended.how == "hang":
            # The fuzzer's clients record no requests.
            late = count_hang(guest, self._waits, kept[0], unrecorded="the fuzzer's commands")
            if late is not None:
                self._current.blockers, self._current.doubt = late.blockers, str(late)
                self._waits.blocked()
        if not guest.alive():
            self.retire()
        return kept

    def late_reply(self) -> BlockedError | None:
        """Why a reply that does not come in the present test says nothing; None if it does."""
        return self._waits.late_reply()

    def _serves(self, guest: Guest) -> bool:
        return answers_ping(guest.upstream, deadline_seconds=guest.probe_seconds)

    def _lost(self, guest: Guest, message: str) -> bool:
        if self._oracle_ended:
            return not self._serves(guest)
        return "closed by" in message or "reset by" in message

    def _hangs(self, guest: Guest, message: str) -> bool:
        if self._oracle_ended:
            return not self._serves(guest)
        return hangs(message, guest.upstream, probe_seconds=guest.probe_seconds)

    @functools.cached_property
    def _fatal_faults(self) -> Path:
        """The file in which the emulator records the accesses that killed servers of the cell. Few cells have so many
        deaths.
        """
        return Path(tempfile.mkdtemp()) / "faults"

    def retire(self) -> None:
        """Stop the present guest, and record how it ended."""
        guest, self.present = self.present, None
        if guest is None:
            return
        commands = processed_commands(guest.upstream, deadline_seconds=guest.probe_seconds) if guest.alive() else 0
        self._deaths += not guest.alive()
        guest.__exit__()
        if self._recorder is not None:
            self._recorder.retire()
        # A failed start does not belong to a test.
        test = self._current.name if self._failure is None else ""
        self._log.append(msgspec.structs.replace(ended(guest, test), commands=commands))

    def retire_oracle(self) -> None:
        """Stop the native build. Its end is recorded if it ended by itself, because it is a server too."""
        oracle, self._oracle = self._oracle, None
        if oracle is None:
            return
        oracle.__exit__()
        event = msgspec.structs.replace(ended(oracle, self._current.name), target="native", oracle=True)
        if event.end != "stopped":
            self._oracle_ended = True
            self._log.append(event)

    def retire_dead_oracle(self) -> None:
        """Record the end of a native build that has ended, as the present test's."""
        if self._oracle is not None and not self._oracle.alive():
            self.retire_oracle()

    def doubt(self) -> str:
        """Why a failed test says nothing about the server; empty if it does.

        Either another process ended or stopped the oracle, or the host could not pass on the requests. Raises
        InfrastructureError if the servers' own machine has ended, or the socket of a running server is gone.
        """
        if self.host is not None:
            self.host.refuse_ended()
        servers = [server for server in (self.present, self._oracle) if server is not None]
        for server in servers:
            server.refuse_lost_socket()
        for server in servers:
            if server.access.recorder is not None and server.access.recorder.trouble:
                return f"its requests could not be passed on: {server.access.recorder.trouble}"
        oracle = self._oracle
        if self._oracle_silent:
            return f"the native build, which gives the expected replies, did not start: {self._oracle_silent}"
        if oracle is None or (oracle.alive() and answers_ping(oracle.upstream, deadline_seconds=oracle.probe_seconds)):
            return ""
        # A crash that it still reports is no silence.
        if oracle.settle():
            oracle.hung()
            return f"the native build, which gives the expected replies, did not answer: {oracle.detail}"
        sent = cell_events.names_another_sender(oracle.detail)
        return f"the native build, which gives the expected replies, was {oracle.detail}" if sent else ""

    def kill(self) -> None:
        """End those that still run, without a record."""
        for guest in (self.present, self._oracle):
            if guest is not None:
                guest.__exit__()

    def switch_off(self) -> None:
        """Switch the machine off, if they have one."""
        if self.host is not None:
            self.host.close()
