"""Clients that record by themselves, so that nothing stands between them and the guest.

A client in the harness' own process has a RecordedConnection. A client in another process, such as that of Tcl suites,
appends to the recorder's file.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

from harness.record.transcript import Direction

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Buffer

Noted = tuple[int, Direction, bytes]
"""A chunk in its form while the test runs: its connection, its direction and its bytes. Most tests pass, and their
chunks are never read."""
HEAD = struct.Struct("=III")
"""Before each chunk in the file of a client that records by itself: the number that it gives the connection, 1 for a
reply and 0 for a request, and the length of the bytes that follow."""


class RecordedConnection(socket.socket):
    """A connection to a guest that records what it sends and receives, with nothing in between.

    A message through the proxy's threads takes several times the processor time that a guest takes to answer it.
    """

    def __init__(self, connected: socket.socket, number: int, noted: list[Noted]) -> None:
        """Takes over `connected`. `noted` receives the chunks."""
        deadline_seconds = connected.gettimeout()
        super().__init__(connected.family, connected.type, connected.proto, fileno=connected.detach())
        self.settimeout(deadline_seconds)
        self._number = number
        self._noted = noted

    def sendall(self, data: Buffer, flags: int = 0, /) -> None:
        """Record bytes and send them all. Raises OSError."""
        # First: a guest that dies of a request has received it.
        self._noted.append((self._number, "request", bytes(data)))
        super().sendall(data, flags)

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Receive bytes and record them. Raises OSError."""
        content = super().recv(bufsize, flags)
        if content:
            self._noted.append((self._number, "reply", content))
        return content


def read_file(path: Path, *, after: int) -> list[Noted]:
    """The chunks that clients in other processes recorded. Their connections have numbers above `after`.

    The last chunk of a client that was killed may be cut.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    found: list[Noted] = []
    # A client's count continues from guest to guest and from test to test.
    numbers: dict[int, int] = {}
    at = 0
    while at + HEAD.size <= len(content):
        number, is_reply, length = HEAD.unpack_from(content, at)
        at += HEAD.size
        number = numbers.setdefault(number, after + len(numbers) + 1)
        found.append((number, "reply" if is_reply else "request", content[at : at + length]))
        at += length
    return found
