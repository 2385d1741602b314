"""A guest: a build running under an emulator on a Unix socket, or on a port of loopback, behind a recording proxy.

A context manager: on every exit, the guest's process group is killed and its socket folder is removed.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from harness.build.emulators.package_root import runner_of
from harness.build.emulators.runner import keeps_translations
from harness.core.cache import disk_errors
from harness.core.errors import InfrastructureError
from harness.core.processes import process, scheduling
from harness.core.processes.capped_log import CappedLog
from harness.core.processes.temporary_folder import refuse_long
from harness.core.sockets import held_port
from harness.record import fault_log, stored_run
from harness.record.cell_events import NO_PONG, STOPPED
from harness.record.edge_coverage import EdgeCoverage
from harness.record.proxy import peer_user
from harness.run.servers import probes
from harness.run.servers.endings import STOPPED_BY, ServerEnd, describe_exit, last_words, sender_of_end
from harness.run.servers.probes import answers_ping
from harness.run.servers.recorded_access import RecordedAccess
from harness.run.servers.server_evidence import ServerEvidence
from harness.run.servers.start_options import (
    crash_arguments,
    debug_arguments,
    module_arguments,
    monitors_for_threads,
    options_to_start,
    with_own_options,
)
from harness.run.servers.waits import Waits

if TYPE_CHECKING:
    import socket
    import subprocess
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import PurePath

    from harness.build.emulators.runner import Runner
    from harness.core.sockets import Address
    from harness.protocol.resp import Client
    from harness.record.cell_events import End
    from harness.record.executed_blocks.process_blocks import ProcessBlocks
    from harness.run.servers.server_spec import ServerSpec

START_SECONDS = 10.0
STOP_SECONDS = 20.0
"""A server that is told to end may save its data first, and since Redis 7 it waits 10 s for replicas that are behind
(`shutdown-timeout`)."""
REPLY_SECONDS = 5.0
SETTLE_SECONDS = 1.0
CRASH_SECONDS = 10.0
"""How long a server may report its crash, which in the first server of a cell tests its memory too."""
STILL_SECONDS = 10.0
"""A server that reports a crash and uses no processor for so long waits for something that does not come."""
WAITED_SHARE = 0.75
"""A server hangs for certain if in its whole life it waited for a processor for less than this share of its limit."""
KILL_SECONDS = 10.0
"""How long another machine may take to end a server."""
POLL_SECONDS = 0.02
LOG_LINES = 1000
PANIC = "Guru Meditation"
"""Redis and Valkey log it before they deliberately stop themselves by a signal (serverPanic)."""


class StartError(Exception):
    """The guest ended, or did not answer PING, before it was ready."""

    def __init__(self, end: End, detail: str, *, log: str = "") -> None:
        super().__init__(f"the server did not start: {detail}")
        self.end = end
        self.detail = detail
        self.log = log
        """The end of its log."""


class Guest:
    """One running server. `folder` keeps its log and fault log, `sockets` (a short path) its Unix socket."""

    def __init__(self, spec: ServerSpec, runner: Runner, folder: Path, *, sockets: Path) -> None:
        self.spec = spec
        self.build = spec.build
        self.version = spec.version
        self.runner = runner
        self.folder = folder
        self.options = list(spec.options)
        self.execution: ProcessBlocks | None = None
        """Records which blocks it executes; None if that is not requested."""
        self.evidence = ServerEvidence(folder, runner.target.emulator.detector)
        self.waits = Waits()
        """What the cell's tests have awaited in vain."""
        self.access = RecordedAccess(deadline_seconds=lambda: self.deadline_seconds)
        self.ended: ServerEnd | None = None
        """How it ended; None while it runs."""
        self.edges: EdgeCoverage | None = None
        """While it runs, the edges of its code that it took; None without `coverage`, or where the emulator cannot
        record them."""
        self._coverage = spec.coverage and runner.reports_edges
        self._process: subprocess.Popen[bytes] | None = None
        self._capped: CappedLog | None = None
        self._sockets = sockets
        self._socket_folder = sockets
        self._held_port: socket.socket | None = None
        self._has_answered = False
        """Whether a client has reached it by its socket."""
        self._told_to_end = False
        """Whether it may have removed its socket itself, as servers do before the last steps of their shutdown."""
        self.had_a_processor = False
        """Whether it hung although it could have used a processor for most of the time limit."""

    @property
    def name(self) -> str:
        """Its folder's name: `guest-1`."""
        return self.folder.name

    @property
    def detail(self) -> str:
        """How it ended, for the reader; empty while it runs."""
        return self.ended.detail if self.ended is not None else ""

    def lacks(self, *needs: str) -> str:
        """The first of these needs that its release does not meet (harness.core.model.Abilities.lacks); empty if it
        meets all.
        """
        return self.build.abilities.lacks(needs)

    @property
    def pid(self) -> int:
        """Process number on the host: the emulator's, or for a native build the server's own."""
        assert self._process is not None
        return self._process.pid

    @property
    def host_pid(self) -> int:
        """Number of the host process that must get a processor for the server to proceed."""
        return self.pid

    @property
    def first_pid(self) -> int:
        """Number of its first process, as in its fault log; 0 before it starts."""
        return self.pid if self.started() else 0

    @property
    def left(self) -> tuple[str, ...]:
        """Files that the server certainly leaves in its folder."""
        ledger = (fault_log.ledger_of(self.evidence.fault_log).name,) if self.runner.records_faults else ()
        return (self.evidence.log.name, *ledger) if self.started() else ()

    @property
    def deadline_seconds(self) -> float:
        """Time limit for a reply on this target. If the server hung in tests before, it is a fraction of the usual."""
        return self.waits.reply_limit(self.runner.target.whole_deadline_seconds(REPLY_SECONDS))

    @property
    def probe_seconds(self) -> float:
        """Time limit for an answer at once, to a probe."""
        return self.runner.target.host_deadline_seconds(probes.REPLY_SECONDS)

    @property
    def socket_path(self) -> Path:
        """The server's own Unix socket, which is not recorded."""
        return self._socket_folder / "s"

    @property
    def _tcp_port(self) -> int:
        """The port for clients by TCP: the one that its options name, or one that the kernel has chosen."""
        if "--port" in self.options:
            return int(self.options[self.options.index("--port") + 1])
        if self._held_port is None:
            self._held_port = held_port(peer_user.HOST)
        return int(self._held_port.getsockname()[1])

    @property
    def upstream(self) -> Address:
        """The server's own address, behind the proxy."""
        return self.socket_path if self.spec.io == "unix" else (peer_user.HOST, self._tcp_port)

    @property
    def _private_address(self) -> Address:
        """An address at which only this server can answer, which it does if it listens everywhere."""
        return self.socket_path

    def client(self, *, deadline_seconds: float | None = None) -> Client:
        """A recorded client in this process, whose operations have this deadline, or that of a reply."""
        return self.access.client(deadline_seconds=deadline_seconds)

    def __enter__(self) -> Self:
        """Start the server and wait until it answers PING. Raises StartError, or InfrastructureError for a fault of the
        machine.
        """
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with disk_errors(self._sockets):
                self._socket_folder = Path(tempfile.mkdtemp(dir=self._sockets))
        except FileNotFoundError as error:
            raise InfrastructureError(
                "the folder for sockets is gone",
                where=str(self._sockets),
                because="the run that made it has ended, or something deleted it",
                remedy="plumb check, which makes another one",
            ) from error
        try:
            refuse_long(self.socket_path)
            try:
                self._start()
            except FileNotFoundError:
                self.refuse_lost_folder()
                raise
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server if it still runs, classify its end, and clean up."""
        self.access.close_monitors()
        if self.execution is not None:
            self.execution.stopping()
        if self.started():
            # Nothing asks a server that hangs to end.
            if self.alive() and self.ended is None:
                self._stop()
            self.kill()
        if self._capped is not None:
            self._capped.close()
        self.access.close()
        if self._held_port is not None:
            self._held_port.close()
            self._held_port = None
        if self.edges is not None:
            self.edges.close()
            self.edges = None
        stored_run.remove_ways_out(self.folder)
        # A guest that was never entered has no socket folder.
        if self._socket_folder != self._sockets:
            shutil.rmtree(self._socket_folder, ignore_errors=True)

    def _stop(self) -> None:
        """Tell the server to end.

        How it ends is evidence too: a server that crashes or hangs during its shutdown has not stopped. A server that
        has begun to report a crash ends of that.
        """
        if self.reports_crash():
            if self.settle():
                self.hung()
            return
        self.terminate()
        usual = self.runner.target.deadline_seconds(STOP_SECONDS)
        limit = usual if self.spec.patience_seconds is None else self.spec.patience_seconds
        # On a busy machine it waits for a processor, which is not its fault.
        started = scheduling.usable_clock(self.host_pid)
        while (code := self.poll()) is None and scheduling.usable_clock(self.host_pid) - started <= limit:
            time.sleep(POLL_SECONDS)
        if code is None:
            self.refuse_silence()
            late = f"it did not end within {limit:.0f} s of the order to stop"
            self.ended = ServerEnd("hang", STOPPED if self.is_suspended() else late, stopping=True)
        elif code in STOPPED_BY:
            self.ended = ServerEnd("stopped")
        else:
            self.ended = self._end(code, stopping=True)

    def started(self) -> bool:
        """Whether there is, or was, a server process."""
        return self._process is not None

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def terminate(self) -> None:
        """Tell the server and all processes that it started to end, by SIGTERM."""
        assert self._process is not None
        self._told_to_end = True
        process.terminate_group(self._process)

    def kill(self) -> None:
        """End the server and all processes that it started."""
        assert self._process is not None
        process.kill_group(self._process)

    def alive(self) -> bool:
        """Whether the server runs; after its end, `ended` says how."""
        if not self.started():
            return False
        code = self.poll()
        if code is None:
            return True
        if self.ended is None:
            self.ended = self._end(code)
        return False

    def _end(self, code: int, *, stopping: bool = False) -> ServerEnd:
        """How it ended, and who ended it. `stopping`: whether it was told to end before."""
        return sender_of_end(
            code,
            self.evidence.log_content(),
            self.first_pid,
            faults=self._faults(),
            emulated=not self.runner.target.emulator.runs_here,
            stopping=stopping,
        )

    def _faults(self) -> set[int] | None:
        """The signals that its instructions raised; None if nothing records all of them, as a real kernel."""
        return self.evidence.signals_of(self.first_pid) if self.runner.records_faults else None

    def await_end(self) -> int:
        """Wait until the server, which a test has told to end, has ended. With the exit status 0 it has stopped.

        Returns the exit status, negative for a signal. Raises TimeoutError.
        """
        what = "a server to end"
        deadline = time.monotonic() + self.waits.limit(what, self.deadline_seconds)
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise self.waits.expired(what)
            time.sleep(POLL_SECONDS)
        self.ended = describe_exit(code) if code else ServerEnd("stopped")
        return code

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """While in the context, the server neither reads nor writes: SIGSTOP has stopped it.

        Raises TimeoutError if it does not stop.
        """
        self.send_signal(signal.SIGSTOP)
        try:
            what = "a server to be stopped"
            deadline = time.monotonic() + self.waits.limit(what, self.deadline_seconds)
            while not self.is_suspended():
                if time.monotonic() > deadline:
                    raise self.waits.expired(what)
                time.sleep(POLL_SECONDS)
            yield
        finally:
            self.send_signal(signal.SIGCONT)

    def refuse_silence(self) -> None:
        """Raise InfrastructureError if something else than the server explains that it does not answer."""
        self.refuse_lost_socket()

    def refuse_lost_folder(self) -> None:
        """Raise InfrastructureError if a folder that the server needs to start is gone: its end then says nothing."""
        for folder in (self.folder, self._socket_folder):
            if not folder.is_dir():
                self.ended = ServerEnd("stopped", "a folder of it was gone")
                raise InfrastructureError(
                    f"a folder of {self.name} is gone",
                    where=str(folder),
                    because="the server cannot start; something on this machine deletes folders of running programs",
                    remedy="keep cleaners away from the folder for temporary files and from runs",
                )

    def refuse_lost_socket(self) -> None:
        """Raise InfrastructureError if a file by which clients reach a running server is gone."""
        on_host = not self.runner.target.emulator.is_elsewhere and self.spec.io == "unix" and not self._told_to_end
        needed = [self.socket_path, *([] if self.access.recorder is None else [self.access.path])]
        lost = next((path for path in needed if not path.exists()), None)
        if on_host and self._has_answered and lost is not None and self.alive():
            raise InfrastructureError(
                f"the socket of {self.name} is gone",
                where=str(lost),
                because="no client can reach the server; something on this machine deletes files of running programs",
                remedy="keep cleaners away from the folder for temporary files, or set TMPDIR to another one",
            )

    def send_signal(self, number: int) -> None:
        """Send a signal to the server's process. Nothing happens if it has ended."""
        assert self._process is not None
        self._process.send_signal(number)

    def is_suspended(self) -> bool:
        """Whether SIGSTOP has stopped the server's process."""
        return scheduling.is_stopped(self.pid)

    def reports_crash(self) -> bool:
        """Whether the server's own process has begun to report its crash, after which it ends."""
        return self.started() and self.evidence.reports_crash(self.first_pid)

    def settle(self) -> bool:
        """Wait after a lost connection or a fault, for a limited time, until the process has ended. Returns whether it
        lives on.

        Of a crash in a background thread the server may report while its first thread goes on: its report is awaited,
        unless the server stands still.
        """
        began = time.monotonic()
        target = self.runner.target
        if not self.reports_crash():
            self._await_end_until(began + target.whole_deadline_seconds(SETTLE_SECONDS))
        if self.alive() and self.reports_crash():
            self._await_end_until(
                began + target.whole_deadline_seconds(CRASH_SECONDS),
                still_seconds=target.host_deadline_seconds(STILL_SECONDS),
            )
        return self.alive()

    def _await_end_until(self, deadline: float, *, still_seconds: float = math.inf) -> None:
        """Wait until the server has ended, until the deadline, or until it has done nothing for some time."""
        # A server on another machine is no process here.
        stillness = scheduling.Stillness(self._process.pid) if self._process is not None else None
        while self.alive() and time.monotonic() < deadline:
            if stillness is not None and stillness.look() > still_seconds:
                return
            time.sleep(POLL_SECONDS)

    def start_recording(self) -> None:
        """Open the recording proxy in front of the server, so that clients can connect."""
        monitors = monitors_for_threads(self.version, self.options)
        self.access.open(self.upstream, self._socket_folder / "r", monitors=monitors)

    def failed_to_start(self, error: StartError, *, may_refuse: bool = False) -> None:
        """Derive its end from its failed start. A server that `may_refuse` and exited by itself has stopped."""
        refused = may_refuse and self.ended is not None and self.ended.how == "exit"
        self.ended = ServerEnd("stopped", f"refused: {error.detail}") if refused else ServerEnd(error.end, error.detail)

    def hung(self) -> None:
        """Mark the server as hanging, and kill it."""
        if self.alive():
            self.refuse_silence()
            stopped = scheduling.is_stopped(self.host_pid)
            seconds = self.runner.target.whole_deadline_seconds(CRASH_SECONDS)
            late = f"no reply within {self.deadline_seconds:.0f} s"
            if self.reports_crash():
                late = f"it began to report a crash, and did not end within {seconds:.0f} s"
            self.ended = ServerEnd("hang", STOPPED if stopped else late)
            waited = scheduling.waited_seconds(self.host_pid)
            self.had_a_processor = not stopped and waited < self.deadline_seconds * WAITED_SHARE
            self.kill()

    def read(self, name: str) -> bytes:
        """A file of its working folder, as dump.rdb after SAVE. Raises FileNotFoundError."""
        return (self.folder / name).read_bytes()

    def launch(self) -> None:
        """Start the server process, with its files in place."""
        self.lay_files()
        if self._coverage:
            self.edges = EdgeCoverage(self.folder / "edges")
        coverage = self.edges.path if self.edges else None
        if self.runner.records_faults:
            fault_log.open_ledger(self.evidence.fault_log)
        binary, preload = self.build.server_binary, self.build.preload
        runner = runner_of(self.build, self.runner)
        command = runner.command(
            binary,
            self.arguments(),
            self.evidence.fault_log,
            coverage,
            preload=preload,
            fatal_faults=self.spec.fatal_faults,
            no_crash_maps=self.hides_crash_maps,
            plugin=self.execution.plugin if self.execution else "",
        )
        environment = {**process.PLAIN_ENVIRONMENT, **self.runner.environment}
        with self.evidence.log.open("wb") as log:
            self._capped = CappedLog(log.fileno())
            self._process = process.start(
                command,
                output=log,
                folder=self.folder,
                environment=environment,
                steady_addresses=keeps_translations(command),
            )

    @property
    def hides_crash_maps(self) -> bool:
        """Whether to hide the memory from a crash handler's test. Releases before 6.2 have no option for that."""
        return not self.spec.tests_memory and not crash_arguments(self.build)

    def lay_files(self) -> None:
        """Write its files into its working folder."""
        for name, content in self.spec.files.items():
            place = self.folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)

    def _start(self) -> None:
        self.launch()
        started = scheduling.usable_clock(self.host_pid)
        limit = self.runner.target.deadline_seconds(START_SECONDS)
        while not answers_ping(self._private_address, deadline_seconds=self.probe_seconds):
            if not self.alive():
                self.refuse_lost_folder()
                raise self._failed_start()
            # On a busy machine it waits for a processor, which is not its fault.
            if scheduling.usable_clock(self.host_pid) - started > limit:
                self.refuse_silence()
                self.refuse_lost_folder()
                self.ended = ServerEnd("hang", STOPPED if scheduling.is_stopped(self.host_pid) else NO_PONG)
                raise StartError("hang", self.detail)
            time.sleep(POLL_SECONDS)
        self._has_answered = True
        if self.execution is not None:
            self.execution.ready()
        self.start_recording()

    def _failed_start(self) -> StartError:
        """The error for a server that has ended before it was ready."""
        log = self.evidence.log_tail(LOG_LINES)
        return StartError("start-failed", "; ".join(filter(None, [self.detail, last_words(log)])), log=log)

    def arguments(self) -> list[str]:
        """The server's command line after its own name."""
        # Programs beside the server still take the Unix socket.
        by_socket = self.spec.io == "unix"
        listens = ["--port", "0"] if by_socket else ["--port", str(self._tcp_port), "--bind", peer_user.HOST]
        arguments = [*listens, "--unixsocket", str(self.socket_path), "--save", "", "--dir", str(self.folder)]
        arguments += options_to_start(self.runner.target, self.build.abilities)
        return self._with_options(arguments, self.build.modules)

    def _with_options(self, arguments: Sequence[str], modules: Iterable[PurePath]) -> list[str]:
        """A command line with what every server of its build gets, and with its own options. `modules`: their paths
        where it runs.
        """
        reports = [] if self.spec.tests_memory else crash_arguments(self.build)
        common = [*arguments, *debug_arguments(self.build), *reports, *module_arguments(modules)]
        return with_own_options(common, self.options)


class RemoteGuest(Guest):
    """A server on another machine, real or emulated. The process number is the one there."""

    def __init__(self, spec: ServerSpec, runner: Runner, folder: Path, *, sockets: Path) -> None:
        super().__init__(spec, runner, folder, sockets=sockets)
        self._pid = 0
        """0 before its launch, and after its machine was lost."""

    @property
    def pid(self) -> int:
        """The server's number on its machine."""
        return self._pid

    @property
    def _private_address(self) -> Address:
        """The address that leads to it: nothing else uses that."""
        return self.upstream

    def started(self) -> bool:
        """Whether there is, or was, a server process."""
        return self._pid != 0

    def _await_kill(self, poll: Callable[[], int | None]) -> None:
        """Wait for a short time until a killed server has ended. Raises what `poll` raises."""
        deadline = time.monotonic() + self.runner.target.host_deadline_seconds(KILL_SECONDS)
        while poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def __exit__(self, *_: object) -> None:
        """Stop the server, if its machine still answers."""
        if self.started():
            try:
                self.poll()
            except InfrastructureError:
                # Nothing more can be learned of it.
                self._pid = 0
        super().__exit__()
