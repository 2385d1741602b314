"""The board of a cell: its folder there with the cell's programs, and the ways that lead to its servers."""

from __future__ import annotations

import random
import shlex
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, Self

from harness.core.errors import InfrastructureError
from harness.core.processes import process
from harness.core.sockets import held_port
from harness.plan.board import PORT_HERE, PORT_THERE
from harness.run.boards.board_keeper import BoardKeeper
from harness.run.boards.remote_shell import RemoteShell, reserved_name, with_values

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from pathlib import PurePath

    from harness.core.sockets import Address
    from harness.record.cell_events import Counters
    from harness.run.boards.board_image import BoardImage
    from harness.run.boards.remote_process import RemoteProcess

LOOPBACK = "127.0.0.1"
SERVER = "server"
CANARY = "accesses"
"""Names of programs in the cell's folder there."""
PORTS = (20000, 32767)
"""Ports there that are tried: below those that Linux gives to clients, and above those of usual services."""


class ProgramEnd(NamedTuple):
    """How a program there ended."""

    code: int
    """Exit status; negative for a signal."""


class ProgramResult(NamedTuple):
    """A program that has ended there."""

    end: ProgramEnd | None
    output: bytes


class Tunnel:
    """A server's socket on the board, or a port of its loopback, as one of this host, as long as it is open."""

    def __init__(self, image: BoardImage, *, here: Path, there: str) -> None:
        """`here`, `there`: the paths of the sockets, if the way to the board knows sockets. A server that runs already
        has its own place there.

        Raises InfrastructureError if its command cannot be started.
        """
        self._image = image
        self._holder: socket.socket | None = None
        values: dict[str, str] = {}
        self.listens: list[str] = []
        if image.board.address:
            host, _, port = image.board.address.rpartition(":")
            self.address: Address = (host, int(port))
        elif image.board.by_port:
            self._holder = held_port(LOOPBACK)
            port_here, port_there = int(self._holder.getsockname()[1]), random.randint(*PORTS)
            self.address = (LOOPBACK, port_here)
            self.listens = ["--port", str(port_there), "--bind", LOOPBACK]
            values = {PORT_HERE: str(port_here), PORT_THERE: str(port_there)}
        else:
            self.address = here if image.board.reach else Path(there)
            self.listens = ["--port", "0", "--unixsocket", there]
            values = {"{here}": str(here), "{there}": there}
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._process = None
        if image.board.reach:
            self._process = process.start(
                with_values(image.board.reach, values),
                output=self._said,
                environment=image.environment,
            )

    def refuse_ended(self) -> None:
        """Raise InfrastructureError if its command has ended with an error: clients lost their connections by that."""
        if self._said.closed or self._process is None or not (code := self._process.poll()):
            return
        self._said.seek(0)
        said = self._said.read().decode("utf-8", "replace").strip().splitlines()
        raise InfrastructureError(
            "the way to the board's server has ended",
            where=f"{self._image.file}: reach = {shlex.join(self._image.board.reach)}",
            because="\n".join([*said[-5:], f"it ended with {code}"]),
            remedy=self._image.check_command,
        )

    def close(self) -> None:
        """End it. Nothing happens if it is closed already."""
        if self._said.closed:
            return
        if self._process is not None:
            process.kill_group(self._process)
        self._said.close()
        if self._holder is not None:
            self._holder.close()


class ReachedMachine:
    """The board of a cell, with the cell's programs on it. It is made on first use."""

    def __init__(self, image: BoardImage) -> None:
        self.image = image
        self.shell = RemoteShell(image)
        self.folder = ""
        """The cell's folder there; empty before its first use, and after `close`."""
        self._keeper: BoardKeeper | None = None
        self._open: list[tuple[RemoteProcess, Tunnel]] = []

    def machine(self) -> Self:
        """The machine with the cell's programs on it. Raises InfrastructureError if it cannot be reached."""
        if self.folder:
            return self
        folder = f"{self.image.board.folder.rstrip('/')}/{reserved_name()}"
        self._keeper = BoardKeeper(self.shell, folder)
        self.folder = folder
        for name, program in self.image.programs.items():
            self.shell.put(program, f"{folder}/{name}")
            self.shell.run("chmod", "755", f"{folder}/{name}")
        return self

    def run(self, command: Sequence[str], *, deadline_seconds: float, traced: bool = False) -> ProgramResult:
        """Run a program of the cell there, by its name, to its end. Nothing there can trace it."""
        assert not traced
        words = [*self.image.board.under, f"{self.folder}/{command[0]}", *command[1:]]
        ended = self.shell.run(*words, deadline_seconds=deadline_seconds, quiet=False)
        return ProgramResult(ProgramEnd(ended.code), ended.output)

    def module_place(self, module: PurePath) -> PurePosixPath:
        """The path there of a module that the server loads when it starts."""
        return PurePosixPath(self.folder, module.name)

    def server_place(self) -> str:
        """The path there of the server: the user's own, or the one that was copied."""
        return self.image.board.program or f"{self.folder}/{SERVER}"

    def opened(self, started: RemoteProcess, tunnel: Tunnel) -> None:
        """Watch a server's connections."""
        self._open.append((started, tunnel))

    def closed(self, started: RemoteProcess) -> None:
        """A server has ended, so that its connections may, too."""
        self._open = [one for one in self._open if one[0] is not started]

    def counters(self) -> Counters | None:
        """The kernel's counters of misaligned accesses, of every program there; None if nothing tells them yet."""
        return self._keeper.counters() if self._keeper is not None else None

    def mode(self) -> int | None:
        """The mode of misaligned accesses that its kernel has now; None if nothing tells it."""
        return self._keeper.mode() if self._keeper is not None else None

    def kernel_log(self, pid: int) -> list[str]:
        """The new lines of its kernel's log about a process; empty if its user may not read them."""
        return self._keeper.log_of(pid) if self._keeper is not None else []

    def refuse_ended(self) -> None:
        """Raise InfrastructureError if a connection to a server was lost."""
        for started, tunnel in self._open:
            started.poll()
            tunnel.refuse_ended()

    def close(self) -> None:
        """Remove the cell's folder there, and put the alignment mode back. If the connection is lost, that happens
        there.
        """
        self.folder = ""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None
