"""A guest on a board: a server that a command such as ssh started there, reached through a socket or a port."""

from __future__ import annotations

import contextlib
import re
import signal
from typing import TYPE_CHECKING

from harness.core.errors import InfrastructureError
from harness.record import fault_log, kernel_faults
from harness.run.boards.reached_machine import Tunnel
from harness.run.boards.remote_process import RemoteProcess
from harness.run.server_process import RemoteGuest, StartError
from harness.run.servers.probes import identity

if TYPE_CHECKING:
    from pathlib import Path

    from harness.build.emulators.runner import Runner
    from harness.core.sockets import Address
    from harness.run.boards.reached_machine import ReachedMachine
    from harness.run.servers.server_spec import ServerSpec

PORTS_TRIED = 5
CONNECTION = "connection"
"""The file in a guest's folder with what the connection said: its own messages, and those of our script there."""
_TAKEN = re.compile(r"Address (?:already )?in use", re.IGNORECASE)


class BoardGuest(RemoteGuest):
    """One server on a board. Its log arrives here while it runs."""

    def __init__(self, spec: ServerSpec, runner: Runner, folder: Path, *, host: ReachedMachine, sockets: Path) -> None:
        super().__init__(spec, runner, folder, sockets=sockets)
        self.host = host
        self._remote: RemoteProcess | None = None
        self._tunnel: Tunnel | None = None

    @property
    def host_pid(self) -> int:
        """Number of the process here that holds the connection."""
        assert self._remote is not None
        return self._remote.process.pid

    @property
    def left(self) -> tuple[str, ...]:
        """Its log: the board records no faults."""
        return (self.evidence.log.name,) if self.started() else ()

    @property
    def upstream(self) -> Address:
        """The socket, or the port of loopback, that leads to the server."""
        assert self._tunnel is not None
        return self._tunnel.address

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs.

        Raises InfrastructureError when a connection has ended: the state of the server is then unknown.
        """
        assert self._remote is not None
        assert self._tunnel is not None
        code = self._remote.poll()
        if code is None:
            self._tunnel.refuse_ended()
        elif -code in fault_log.CRASHES:
            self._keep_kernel_log()
        return code

    def _keep_kernel_log(self) -> None:
        """Keep what the board's kernel says of its end, once."""
        place = self.folder / kernel_faults.LOG
        if not place.is_file():
            place.write_text("".join(f"{line}\n" for line in self.host.kernel_log(self._pid)), "utf-8")

    def terminate(self) -> None:
        """Tell the server to end, by SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the server, and whatever it has started there."""
        assert self._remote is not None
        self.send_signal(signal.SIGKILL)
        # The script there kills the server when its connection ends.
        with contextlib.suppress(InfrastructureError):
            self._await_kill(self._remote.poll)

    def refuse_silence(self) -> None:
        """Raise InfrastructureError if the board does not answer either: that explains the server's silence."""
        assert self._remote is not None
        assert self._tunnel is not None
        self._remote.state()
        self._tunnel.refuse_ended()

    def send_signal(self, number: int) -> None:
        """Send a signal to the server's process there. Nothing happens if it has ended."""
        assert self._remote is not None
        self._remote.send_signal(number)

    def is_suspended(self) -> bool:
        """Whether SIGSTOP has stopped the server there."""
        assert self._remote is not None
        return self._remote.state() == "T"

    def read(self, name: str) -> bytes:
        """A file of its working folder there. Raises FileNotFoundError."""
        return self.host.shell.get(f"{self._work_folder}/{name}")

    def launch(self) -> None:
        """Start the server there, and the way to its port."""
        machine = self.host.machine()
        places = {f"{self._work_folder}/{name}".rpartition("/")[0] for name in self.spec.files}
        machine.shell.run("mkdir", "-p", self._work_folder, *sorted(places))
        for name, content in self.spec.files.items():
            machine.shell.put(content, f"{self._work_folder}/{name}")
        self._tunnel = Tunnel(machine.image, here=self.socket_path, there=f"{self._work_folder}/s")
        self._remote = RemoteProcess(
            machine.shell,
            [*machine.image.board.under, machine.server_place(), *self.arguments()],
            folder=self._work_folder,
            log=self.evidence.log,
            said=self.folder / CONNECTION,
        )
        machine.opened(self._remote, self._tunnel)
        self._pid = self._remote.pid()

    def _start(self) -> None:
        """Start it on a port that is free there.

        Raises InfrastructureError if no tried port is, and if another server answers.
        """
        for _ in range(PORTS_TRIED):
            try:
                super()._start()
                self._refuse_other_server()
            except StartError as error:
                if not _TAKEN.search(error.log):
                    raise
                self._disconnect()
                self.ended = None
                continue
            return
        raise InfrastructureError(
            "the server found no free port on the board",
            where=self.host.shell.shown,
            because=self.evidence.log_tail(1).strip(),
            remedy="start the run again, which tries other ports",
        )

    def _refuse_other_server(self) -> None:
        """Raise InfrastructureError if the server that answers is not the one that was started, or not of the release.

        Suites delete all keys of a server, so it must be ours. Raises StartError if ours has ended meanwhile.
        """
        told = identity(self.upstream, deadline_seconds=self.deadline_seconds)
        number, version = (told.get(name, b"").decode("utf-8", "replace") for name in ("process_id", "version"))
        because = ""
        if number != str(self._pid):
            if not self.settle():
                raise self._failed_start()
            because = f"its process is {number or 'not named'}, and {self._pid} was started"
        elif self.host.image.board.program and version != ".".join(map(str, self.version)):
            because = f"it is {version}, and the run is for {'.'.join(map(str, self.version))}"
        if because:
            raise InfrastructureError(
                "another server answers in place of the board's",
                where=self.host.shell.shown,
                because=because,
                remedy="make `reach` lead to the machine of `start`, and `program` the release of --server",
            )

    def arguments(self) -> list[str]:
        """The server's command line. It listens on a socket in a folder of its user's, or on loopback."""
        assert self._tunnel is not None
        arguments = [*self._tunnel.listens, "--save", "", "--dir", self._work_folder]
        return self._with_options(arguments, map(self.host.module_place, self.build.modules))

    def __exit__(self, *_: object) -> None:
        """Stop the server, and end the connections."""
        try:
            super().__exit__()
        finally:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._remote is not None:
            self.host.closed(self._remote)
            self._remote.close()
        if self._tunnel is not None:
            self._tunnel.close()

    @property
    def _work_folder(self) -> str:
        return f"{self.host.folder}/{self.name}"
