"""A board: a machine of the user's that Plumbline reaches by commands, as a TOML file describes it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core.errors import UsageError
from harness.core.model import Record
from harness.core.strict_toml import at_line, read_text, read_toml

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


PORT_HERE = "{port here}"
PORT_THERE = "{port there}"
_FILES = ("{from}", "{to}")
_ADDRESS = re.compile(r"\S+:\d{1,5}")


class Board(Record, frozen=True):
    """A machine that you can reach, for `plumb check --board FILE` and `plumb board FILE`."""

    target: str
    """The target that the machine is: its builds run there, and its demands and policies are the machine's."""
    start: list[str] = msgspec.field(default_factory=list)
    """The words that run a program there: `["ssh", "pi"]`, `["adb", "shell"]`, `["docker", "exec", "-i", "box"]`.
    Plumbline appends a command for the machine's `sh`, which starts the server and says how it ended. Standard input
    and both outputs must pass. Empty: a server runs there already, which `reach` or `address` leads to.
    """
    words: Literal["shell", "exact"] = "shell"
    """Whether a shell there splits what follows `start`, as with ssh and adb, or each word arrives as it is, as with
    docker and chroot.
    """
    under: list[str] = msgspec.field(default_factory=list)
    """Words that go before every program there, such as `["taskset", "-c", "1"]` or the command of an emulator."""
    program: str = ""
    """The path there of a server of the release that `--server` names. Empty: Plumbline builds it and copies it."""
    folder: str = "/tmp"  # noqa: S108 - a folder of the board; each cell makes one of its own inside
    """The folder there in which each cell makes a folder of its own, and removes it."""
    put: list[str] = msgspec.field(default_factory=list)
    """A command of this host that copies a file there: `["scp", "{from}", "pi:{to}"]`. Empty: through `start`."""
    get: list[str] = msgspec.field(default_factory=list)
    """A command of this host that copies a file from there: `["scp", "pi:{from}", "{to}"]`. Empty: through `start`."""
    reach: list[str] = msgspec.field(default_factory=list)
    """A command of this host that makes the socket {there} of the machine the socket {here} of this host, which nobody
    else can open: `["ssh", "-N", "-L", "{here}:{there}", "pi"]`. It may run until it is ended, or end at once with
    status 0. A way that knows only ports names {port here} and {port there}, of loopback, which other users of both
    machines can then reach. Empty: the machine has this host's files. Without `start`, it makes the server that runs
    already {here} or {port here}, and names the server's own place itself.
    """
    address: str = ""
    """HOST:PORT of a server that runs already, where nothing has to lead to it. Requests are not encrypted then, and
    `--insecure` allows that."""

    @property
    def runs_already(self) -> bool:
        """Whether a server runs there that Plumbline has not started."""
        return not self.start

    @property
    def by_port(self) -> bool:
        """Whether servers there listen on a port."""
        return any(PORT_HERE in word or PORT_THERE in word for word in self.reach)


def read_board(path: Path) -> Board:
    """A board's file. Raises UsageError for one that is not valid."""
    board = read_toml(path, Board)
    lines = read_text(path).splitlines()

    def refuse(key: str, because: str, remedy: str) -> None:
        line = next((number for number, line in enumerate(lines, 1) if re.match(rf"\s*{key}\s*=", line)), 0)
        raise UsageError("not a valid board", where=at_line(path, line), because=because, remedy=remedy)

    _refuse_mixture(board, refuse)
    ways = [PORT_HERE, PORT_THERE] if board.by_port else ["{here}", "{there}"]
    for key, places in {"put": _FILES, "get": _FILES, "reach": ways[: 1 if board.runs_already else 2]}.items():
        words: list[str] = getattr(board, key)
        for place in places if words else ():
            if not any(place in word for word in words):
                refuse(
                    key, f"{key} does not contain {place}", f"write {place} where the value belongs, or remove the key"
                )
    for key in ("folder", "program"):
        value: str = getattr(board, key)
        if value and not value.startswith("/"):
            refuse(key, f"{value} is not an absolute path", f'{key} = "/…"')
    return board


def _refuse_mixture(board: Board, refuse: Callable[[str, str, str], None]) -> None:
    """Refuse keys of a server that Plumbline starts beside those of one that runs already."""
    if board.runs_already:
        if bool(board.reach) is bool(board.address):
            refuse("reach", "without start, one of reach and address leads to a server", 'start = ["ssh", "user@host"]')
        for key in ("under", "program", "put", "get"):
            if getattr(board, key):
                refuse(key, f"{key} has no effect without start", "name start, or remove the key")
    elif board.address:
        refuse("address", "the server that start starts has no other address", "remove the key, or start")
    if board.address and not _ADDRESS.fullmatch(board.address):
        refuse("address", f"{board.address} is not HOST:PORT", 'address = "192.168.1.5:6379"')
