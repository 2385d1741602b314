"""Servers that a test starts for itself, on its cell's target or another target of the run, and their evidence.

`new_guest` makes the guests of a cell, those that tests share (harness.run.session.cell_session) included.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.core.target_model import ORACLE
from harness.record import cell_events, run_folder
from harness.record.transcript import save, unanswered
from harness.run.boards.running_server import RunningServer
from harness.run.machines import guest_of
from harness.run.server_process import LOG_LINES, PANIC, StartError
from harness.run.servers.endings import ServerEnd
from harness.run.servers.probes import answers_ping, processed_commands
from harness.run.servers.server_spec import ServerSpec
from harness.run.servers.waits import NO_TIME, WAITED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.record.event_log import EventLog
    from harness.record.executed_blocks.recorder import ExecutionRecorder
    from harness.run.cell_spec import CellSpec
    from harness.run.machines import OtherMachine
    from harness.run.server_process import Guest
    from harness.run.servers.waits import BlockedError, Waits


PROBE_SECONDS = 10.0
"""How long a server may take to answer a probe after a test in which a reply did not come in time."""


def server_of(
    cell: CellSpec,
    target: str = "",
    *,
    options: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
    preload: Path | None = None,
) -> ServerSpec:
    """The cell's server on its target, or on a peer, with the cell's options and these. The oracle has only these.
    `preload` replaces the object that its build preloads.
    """
    here = cell.peers[target] if target else cell
    assert here.build is not None
    return ServerSpec(
        build=msgspec.structs.replace(here.build, preload=preload) if preload else here.build,
        version=cell.version,
        options=options if target == ORACLE else [*cell.options, *options],
        files=files or {},
        coverage=cell.coverage,
        io=cell.io,
        patience_seconds=cell.patience_seconds,
    )


def new_guest(
    cell: CellSpec,
    host: OtherMachine | None,
    folder: Path,
    spec: ServerSpec,
    *,
    target: str = "",
    waits: Waits | None = None,
    recorder: ExecutionRecorder | None = None,
    shared: bool = False,
) -> Guest:
    """A guest that is not started yet, on the cell's target or a peer. `host` is its machine. `waits`: what the cell's
    tests have awaited in vain. `recorder` records what it executes: for all tests if it is `shared`.
    """
    runner = cell.peers[target].runner if target else cell.runner
    guest = guest_of(spec, runner, folder, host=host, sockets=cell.sockets)
    if waits is not None:
        guest.waits = waits
    if recorder is not None and target != ORACLE:
        guest.execution = recorder.process(spec.build.server_binary, shared=shared, counts_start=bool(spec.files))
    return guest


class StartGuest:
    """The value of the fixture `start_guest`: it starts servers for the present test only, and ends them with it."""

    def __init__(
        self,
        cell: CellSpec,
        log: EventLog,
        host: OtherMachine | None,
        numbers: Iterator[int],
        waits: Waits,
        *,
        recorder: ExecutionRecorder | None = None,
    ) -> None:
        """`waits`: what the cell's tests have awaited in vain. `recorder` records what the servers execute."""
        self._cell = cell
        self._waits = waits
        self._recorder = recorder
        self._log = log
        self._host = host
        self._numbers = numbers
        """Each guest of the cell takes the next number."""
        self._running: list[Guest] = []
        self._is_late = False
        """Whether one of them did not reply in a fraction of its time."""

    def __call__(
        self,
        *,
        target: str = "",
        options: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
        may_refuse: bool = False,
        preload: Path | None = None,
    ) -> Guest:
        """Start one more server, on the cell's target or on another one.

        `files` are in its folder when it starts. `preload` is a shared object of its target, and
        takes the place of the guard allocator.

        Raises StartError; BlockedError if servers hung in the tests before. If the server `may_refuse`, its exit
        without a signal is not a finding. Skips the test where the only server runs already.
        """
        peer = "" if target == self._cell.runner.target.name else target
        if isinstance(self._host, RunningServer) and not peer:
            pytest.skip("only the server that runs already can be asked, and none can be started")
        if (refusal := self._waits.refusal()) is not None:
            raise refusal
        self._waits.starting()
        home = self._cell.folder / run_folder.PEERS / peer if peer else self._cell.folder
        folder = home / f"guest-{next(self._numbers)}"
        spec = server_of(self._cell, peer, options=options, files=files, preload=preload)
        guest = new_guest(self._cell, self._host, folder, spec, target=peer, waits=self._waits, recorder=self._recorder)
        # The server may change or remove its files: the evidence is a copy.
        _put(guest.folder / run_folder.INPUTS, files or {})
        self._running.append(guest)
        try:
            return guest.__enter__()
        except StartError as error:
            guest.failed_to_start(error, may_refuse=may_refuse)
            raise

    def any(self) -> bool:
        """Whether the current test, or example, has servers that were not dismissed."""
        return bool(self._running)

    def dismiss(self) -> None:
        """Remove the servers that the current example started, with their evidence: they were allowed to end as they
        did.

        A server is kept if an emulator or a detector reports anything of it, if a signal ended it, and if it did not
        end when it was told to, unless it stopped itself by a panic.
        """
        for guest in list(self._running):
            guest.__exit__()
            end = guest.ended
            bad = end is not None and (end.how not in {"stopped", "exit"} or end.stopping)
            reports = guest.evidence.faults() or guest.evidence.reports(0)
            if not (reports or bad) or PANIC in guest.evidence.log_tail(LOG_LINES):
                shutil.rmtree(guest.folder, ignore_errors=True)
                self._running.remove(guest)

    def finish(self, test: str, outcome: cell_events.Outcome, message: str) -> None:
        """End the servers of a finished test or example, and record how each of them ended. `message`: that of a failed
        test.
        """
        for guest in self._running:
            if outcome == "failed" and "timed out" in message and WAITED not in message:
                self._end_if_silent(guest)
            self._log.append(self._ended(guest, test, outcome))
        if self._is_late:
            self._waits.blocked()
        elif self._running and outcome == "passed":
            self._waits.replied()
        self._is_late = False
        self._running.clear()

    def _end_if_silent(self, guest: Guest) -> None:
        """End a server that hangs, which would not obey the order to end either."""
        if not guest.alive() or answers_ping(
            guest.upstream, deadline_seconds=guest.runner.target.host_deadline_seconds(PROBE_SECONDS)
        ):
            return
        guest.hung()

    def _ended(self, guest: Guest, test: str, outcome: cell_events.Outcome) -> cell_events.GuestEvent:
        if guest.evidence.has_fault_of(guest.first_pid, 0) or guest.reports_crash():
            guest.settle()
        ended_by_itself = guest.started() and not guest.alive()
        commands = processed_commands(guest.upstream, deadline_seconds=guest.probe_seconds) if guest.alive() else 0
        guest.__exit__()
        requests: list[str] = []
        transcript = ""
        ended_badly = ended_by_itself or (guest.ended is not None and guest.ended.stopping)
        if outcome == "failed" or ended_badly or guest.evidence.faults():
            requests, transcript = keep_transcript(guest)
        if guest.ended is not None and guest.ended.how == "hang" and not guest.ended.stopping:
            self._is_late = count_hang(guest, self._waits, requests) is not None
        return msgspec.structs.replace(
            ended(guest, test),
            target=guest.runner.target.name if guest.folder.parent != self._cell.folder else "",
            own=True,
            commands=commands,
            unanswered=tuple(requests),
            transcript=transcript,
            options=tuple(guest.options),
            preloads=guest.build.preload is not None and guest.build.preload == self._cell.preload,
            tls=guest.build.tls,
        )


def ended(guest: Guest, test: str) -> cell_events.GuestEvent:
    """The record of how a stopped guest ended, during a test or outside of one."""
    return cell_events.GuestEvent(
        name=guest.name,
        end=guest.ended.how if guest.ended is not None else "stopped",
        detail=guest.detail,
        test=test,
        strangers=guest.access.strangers,
        pid=guest.first_pid,
        left=guest.left,
        stopping=guest.ended is not None and guest.ended.stopping,
    )


def count_hang(guest: Guest, waits: Waits, requests: Sequence[str], *, unrecorded: str = "") -> BlockedError | None:
    """Remember the command at which a server hung: the first of the requests without an answer. `unrecorded`: what
    stands for it where nothing records requests.

    A server whose replies had only a fraction of their time has not hung. The result is why they had no more.
    """
    if (late := waits.late_reply()) is not None:
        guest.ended = ServerEnd("stopped", NO_TIME)
        return late
    words = requests[0].split() if requests else []
    if command := words[0].upper() if words else unrecorded:
        waits.hung(command, certain=guest.had_a_processor)
    return None


def keep_transcript(guest: Guest) -> tuple[list[str], str]:
    """Save the requests to a guest since its recorder began. Returns those without an answer, and the file's name.

    Both are empty if nothing is recorded.
    """
    if guest.access.recorder is None:
        return [], ""
    chunks = guest.access.recorder.chunks()
    name = f"transcript-{len(list(guest.folder.glob('transcript-*')))}.jsonl"
    save(guest.folder / name, chunks)
    return unanswered(chunks), name


def _put(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
