"""A guest: a build running under an emulator on a Unix socket, or on a port of loopback, behind a recording proxy.

A context manager: on every exit, the guest's process group is killed and its socket folder is removed.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import hiredis

from harness.analysis.detectors.registry import reports
from harness.build.emulators.package_root import runner_of
from harness.build.emulators.runner import keeps_translations
from harness.core.cache import disk_errors
from harness.core.errors import InfrastructureError
from harness.core.processes import process, scheduling
from harness.core.processes.capped_log import LIMIT_BYTES, CappedLog, last_lines
from harness.core.processes.temporary_folder import refuse_long
from harness.core.sockets import connect, held_port
from harness.protocol.monitors import Monitors
from harness.protocol.resp import Client
from harness.record import fault_log, peer_user, stored_run
from harness.record.edge_coverage import EdgeCoverage
from harness.record.recording_proxy import Recorder
from harness.record.run_folder import NO_PONG, STOPPED
from harness.run.servers.endings import STOPPED_BY, describe_exit, last_words
from harness.run.servers.start_options import (
    crash_arguments,
    debug_arguments,
    module_arguments,
    monitors_for_threads,
    options_to_start,
)

if TYPE_CHECKING:
    import socket
    import subprocess
    from collections.abc import Mapping, Sequence

    from harness.analysis.detectors.registry import Report
    from harness.build.emulators.runner import Runner
    from harness.core.model import Build, Transport
    from harness.core.sockets import Address
    from harness.record.executed_blocks.process_blocks import ProcessBlocks
    from harness.record.run_folder import End

START_SECONDS = 10.0
STOP_SECONDS = 2.0
REPLY_SECONDS = 5.0
POLL_SECONDS = 0.02
WAITED = "timed out waiting for"
"""How a test's words begin where a state did not come about in time: whether its server hangs, is another question."""
PING_SECONDS = 1.0
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
    """One running server. `folder` keeps its log and fault log, `sockets` (a short path) its Unix socket.

    `options` are added to the server's command line, as `--io-threads 2`; a configuration file may come first. `files`
    (name -> content) are in its working folder when it starts, as dump.rdb. With `coverage` it records the edges that
    it takes, where its emulator supports this. By `io` clients, and the proxy, reach it.
    """

    def __init__(
        self,
        build: Build,
        runner: Runner,
        folder: Path,
        *,
        sockets: Path,
        version: tuple[int, ...],
        options: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
        coverage: bool = False,
        io: Transport = "unix",
    ) -> None:
        self.build = build
        self.runner = runner
        self.folder = folder
        self.version = version
        self.options = list(options)
        self.tests_memory = True
        """Whether it does all that its release does when it crashes, also where that takes most of its life."""
        self.fatal_faults: Path | None = None
        """Where servers note of which misaligned accesses they died, after a report of their own. One that meets such
        an access again dies without a report."""
        self.execution: ProcessBlocks | None = None
        """Notes which blocks it executes; None where nobody wants to know."""
        self.files = dict(files or {})
        self.fault_log = folder / "faults.jsonl"
        self.log = folder / "log"
        self._end: End | None = None
        self._detail = ""
        self._ended_stopping = False
        self._recorder: Recorder | None = None
        self._monitors: Monitors | None = None
        self.edges: EdgeCoverage | None = None
        """While it runs, the edges of its code that it took; None without `coverage`, or where the emulator cannot
        record them."""
        self._coverage = coverage and runner.reports_edges
        self._process: subprocess.Popen[bytes] | None = None
        self._capped: CappedLog | None = None
        self._counted_faults = (0, 0)
        """The length of the fault log when it was read last, and the number of faults in it."""
        self._counted_crashes = (0, 0)
        """Likewise, and the number of its children that crashed."""
        self._sockets = sockets
        self._socket_folder = sockets
        self._io = io
        self._held_port: socket.socket | None = None

    @property
    def name(self) -> str:
        """Its folder's name: `guest-1`."""
        return self.folder.name

    @property
    def end(self) -> End | None:
        """How it ended; None while it runs."""
        return self._end

    @property
    def detail(self) -> str:
        """How it ended, for the reader."""
        return self._detail

    @property
    def ended_stopping(self) -> bool:
        """Whether the server ended in this way after it received the order to stop."""
        return self._ended_stopping

    @property
    def recorder(self) -> Recorder | None:
        """The recorder of its clients' requests; None before the server is ready."""
        return self._recorder

    @property
    def pid(self) -> int:
        """Number of the process on this machine: the emulator's, or for a native build the server's own."""
        assert self._process is not None
        return self._process.pid

    @property
    def first_pid(self) -> int:
        """Number of its first process, as in its fault log; 0 before it starts."""
        return self.pid if self.started() else 0

    @property
    def left(self) -> tuple[str, ...]:
        """Files that the server certainly leaves in its folder."""
        ledger = (fault_log.ledger_of(self.fault_log).name,) if self.runner.records_faults else ()
        return (self.log.name, *ledger) if self.started() else ()

    @property
    def deadline_seconds(self) -> float:
        """Time limit for a reply on this target."""
        return REPLY_SECONDS * self.runner.target.slowdown

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
        return self.socket_path if self._io == "unix" else (peer_user.HOST, self._tcp_port)

    @property
    def _private_address(self) -> Address:
        """Where nobody but this server can answer. It does when it listens everywhere."""
        return self.socket_path

    @property
    def recorded_path(self) -> Path:
        """The address for other processes' clients: the recording proxy's Unix socket."""
        return self._socket_folder / "r"

    @property
    def client_endpoint(self) -> tuple[Path, Path | None]:
        """The address for a client in another process that can record by itself, and the file that it appends to
        (Recorder.file); None where the proxy records it.
        """
        if self._recorder is not None and isinstance(self.upstream, Path):
            return self.upstream, self._recorder.file
        return self.recorded_path, None

    def connection(self, *, deadline_seconds: float | None = None) -> socket.socket:
        """A recorded connection for a client in this process: no proxy is between it and the server.

        Its operations have this deadline, or that of a reply.
        """
        assert self._recorder is not None
        return self._recorder.connection(deadline_seconds=deadline_seconds or self.deadline_seconds)

    def client(self, *, deadline_seconds: float | None = None) -> Client:
        """A client on such a connection."""
        return Client(self.connection(deadline_seconds=deadline_seconds))

    @property
    def endpoint(self) -> tuple[str, int]:
        """The proxy's address on loopback, for clients that know TCP alone: Tcl, and servers. It accepts only this
        user.

        Raises InfrastructureError where the machine cannot tell who connects.
        """
        assert self._recorder is not None
        return peer_user.HOST, self._recorder.port

    @property
    def strangers(self) -> int:
        """Number of refused connections: those of other users, and those closed before their user was known."""
        return self._recorder.strangers if self._recorder is not None else 0

    def __enter__(self) -> Self:
        """Start the server and wait until it answers PING. Raises StartError, or InfrastructureError for a fault of the
        machine.
        """
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        if not self._sockets.is_dir():
            raise InfrastructureError(
                "the folder for sockets is gone",
                where=str(self._sockets),
                because="the run that made it has ended, or somebody tidied up",
                remedy="plumb check, which makes another one",
            )
        with disk_errors(self._sockets):
            self._socket_folder = Path(tempfile.mkdtemp(dir=self._sockets))
        try:
            refuse_long(self.socket_path)
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server if it still runs, classify its end, and clean up."""
        if self._monitors is not None:
            self._monitors.close()
            self._monitors = None
        if self.execution is not None:
            self.execution.stopping()
        if self.started():
            if self.alive():
                self._stop()
            self.kill()
        if self._capped is not None:
            self._capped.close()
        if self._recorder is not None:
            self._recorder.close()
        if self._held_port is not None:
            self._held_port.close()
            self._held_port = None
        if self.edges is not None:
            self.edges.close()
            self.edges = None
        stored_run.remove_ways_out(self.folder)
        # A guest that was never entered has no socket folder of its own.
        if self._socket_folder != self._sockets:
            shutil.rmtree(self._socket_folder, ignore_errors=True)

    def _stop(self) -> None:
        """Tell the server to end.

        How it ends is evidence too: a server that crashes during its shutdown has not stopped.
        """
        self.kill(grace_seconds=STOP_SECONDS * self.runner.target.slowdown)
        code = self.poll()
        if code is None or code in STOPPED_BY:
            self._end = "stopped"
        else:
            self._end, detail = describe_exit(code)
            self._detail, self._ended_stopping = f"{detail} when it was told to stop", True

    def started(self) -> bool:
        """Whether there is, or was, a server process."""
        return self._process is not None

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def kill(self, *, grace_seconds: float = 0.0) -> None:
        """End the server and all processes that it started."""
        assert self._process is not None
        process.kill_group(self._process, grace_seconds=grace_seconds)

    def alive(self) -> bool:
        """Whether the server runs; after its end, `end` and `detail` describe how it ended."""
        if not self.started():
            return False
        code = self.poll()
        if code is None:
            return True
        if self._end is None:
            self._end, self._detail = describe_exit(code)
        return False

    def await_end(self) -> int:
        """Wait until the server, which a test has told to end, has ended. With the exit status 0 it has stopped.

        Returns the exit status, negative for a signal. Raises TimeoutError.
        """
        deadline = time.monotonic() + self.deadline_seconds
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{WAITED} {self.name} to end")
            time.sleep(POLL_SECONDS)
        self._end, self._detail = describe_exit(code) if code else ("stopped", "")
        return code

    def settle(self) -> bool:
        """Wait after a lost connection or a fault, for a limited time, until the process has ended. Returns whether it
        lives on.
        """
        deadline = time.monotonic() + 1.0 * self.runner.target.slowdown
        while self.alive() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return self.alive()

    def start_recording(self) -> None:
        """Open the recording proxy in front of the server, so that clients can connect."""
        self._recorder = Recorder(self.upstream, self.recorded_path)
        if monitors := monitors_for_threads(self.version, self.options):
            self._monitors = Monitors(self.upstream, monitors, deadline_seconds=self.deadline_seconds)

    def failed_to_start(self, error: StartError, *, may_refuse: bool = False) -> None:
        """Derive its end from its failed start. A server that `may_refuse` and exited by itself has stopped."""
        if may_refuse and self._end == "exit":
            self._end, self._detail = "stopped", f"refused: {error.detail}"
        else:
            self._end, self._detail, self._ended_stopping = error.end, error.detail, False

    def hung(self) -> None:
        """Mark the server as hanging, and kill it."""
        if self.alive():
            stopped = scheduling.is_stopped(self.pid)
            late = f"no reply within {self.deadline_seconds:.0f} s"
            self._end, self._detail = "hang", STOPPED if stopped else late
            self.kill()

    def faults(self) -> int:
        """The number of faults that the emulator has recorded so far."""
        size = _size_bytes(self.fault_log)
        if size != self._counted_faults[0]:
            self._counted_faults = size, fault_log.count_faults(self.fault_log)
        return self._counted_faults[1]

    def died_of_fault(self, since: int) -> bool:
        """Whether a fault after the first `since` records was the server's own, and not that of a child it forked."""
        return any(f.event == "fault" and f.pid == self.pid for f in fault_log.read_faults(self.fault_log)[since:])

    def crashed_children(self) -> int:
        """The number of processes that it forked and that crashed so far, if the emulator records ends."""
        size = _size_bytes(self.fault_log)
        if size != self._counted_crashes[0]:
            self._counted_crashes = size, len(fault_log.crashed_processes(self.fault_log) - {self.first_pid})
        return self._counted_crashes[1]

    def commands(self) -> int:
        """The number of commands that the server has processed (INFO); 0 when it no longer replies."""
        if not self.alive():
            return 0
        try:
            with Client(connect(self.upstream, deadline_seconds=PING_SECONDS)) as client:
                stats = client.command("INFO", "stats")
        except (OSError, hiredis.HiredisError):
            return 0
        found = (
            re.search(rb"^total_commands_processed:(\d+)", stats, re.MULTILINE) if isinstance(stats, bytes) else None
        )
        return int(found[1]) if found else 0

    def log_tail(self, lines: int = 5) -> str:
        """The last lines of the server's log."""
        return last_lines(self.log, lines)

    def log_bytes(self) -> int:
        """The present length of its log."""
        return _size_bytes(self.log)

    def reports(self, since: int) -> list[Report]:
        """The reports of its detector in the log from an offset on; empty where the target has no detector."""
        if not self.runner.target.emulator.detector or not self.log.is_file():
            return []
        with self.log.open("rb") as stream:
            # The middle of a longer log may already be gone.
            stream.seek(max(since, self.log_bytes() - LIMIT_BYTES))
            return reports(stream.read(), self.runner.target.emulator.detector)

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
            fault_log.open_ledger(self.fault_log)
        binary, preload = self.build.server_binary, self.build.preload
        runner = runner_of(self.build, self.runner)
        command = runner.command(
            binary,
            self.arguments(),
            self.fault_log,
            coverage,
            preload=preload,
            fatal_faults=self.fatal_faults,
            no_crash_maps=self.hides_crash_maps,
            plugin=self.execution.plugin if self.execution else "",
        )
        environment = {**process.PLAIN_ENVIRONMENT, **self.runner.environment}
        with self.log.open("wb") as log:
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
        """Whether a crash handler shall find no memory to test. Releases before 6.2 have no option for that."""
        return not self.tests_memory and not crash_arguments(self.build)

    def lay_files(self) -> None:
        """Write its files into its working folder."""
        for name, content in self.files.items():
            place = self.folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)

    def _start(self) -> None:
        self.launch()
        started, limit = time.monotonic(), self.runner.target.deadline_seconds(START_SECONDS)
        while not answers_ping(self._private_address):
            if not self.alive():
                log = self.log_tail(LOG_LINES)
                raise StartError("start-failed", "; ".join(filter(None, [self._detail, last_words(log)])), log=log)
            # On a busy machine it waits for a processor, which is not its fault.
            if time.monotonic() - started - scheduling.waited_seconds(self.pid) > limit:
                self._end, self._detail = "hang", STOPPED if scheduling.is_stopped(self.pid) else NO_PONG
                raise StartError("hang", self._detail)
            time.sleep(POLL_SECONDS)
        if self.execution is not None:
            self.execution.ready()
        self.start_recording()

    def arguments(self) -> list[str]:
        """The server's command line after its own name."""
        # Programs beside the server still take the Unix socket.
        listens = ["--port", "0"] if self._io == "unix" else ["--port", str(self._tcp_port), "--bind", peer_user.HOST]
        arguments = [*listens, "--unixsocket", str(self.socket_path), "--save", "", "--dir", str(self.folder)]
        arguments += options_to_start(self.runner.target, self.build.abilities)
        arguments += debug_arguments(self.build)
        arguments += [] if self.tests_memory else crash_arguments(self.build)
        arguments += module_arguments(self.build.modules)
        # A configuration file, which a sentinel requires, is the program's first word.
        file = [word for word in self.options[:1] if not word.startswith("-")]
        return file + arguments + self.options[len(file) :]


def _size_bytes(path: Path) -> int:
    """The length of a file that only grows; 0 if there is none. Every example asks for some."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def answers_ping(address: Address) -> bool:
    """Whether a server at that address answers PING at once."""
    try:
        with connect(address, deadline_seconds=PING_SECONDS) as client:
            client.sendall(b"*1\r\n$4\r\nPING\r\n")
            return client.recv(64).startswith(b"+PONG")
    except OSError:
        return False
