"""A connection that never waits: it sends as much as the socket accepts and receives the available data.

A client whose server is held between its turns cannot wait for a reply, nor for room in the socket's buffer.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import hiredis

from harness.core.sockets import connect
from harness.protocol.resp import INCOMPLETE, ServerGoneError

if TYPE_CHECKING:
    from harness.core.sockets import Address
    from harness.protocol.resp import Reply

CONNECT_SECONDS = 10.0
_RECEIVED_BYTES = 1 << 20


class PatientConnection:
    """One connection, with requests that wait to be sent and replies that are due."""

    def __init__(self, address: Address) -> None:
        """Connect. Raises OSError, for example when the server's queue of connections is full."""
        self._socket = connect(address, deadline_seconds=CONNECT_SECONDS)
        self._socket.setblocking(False)
        self._reader = hiredis.Reader(notEnoughData=INCOMPLETE)
        self._unsent = memoryview(b"")
        self._due = 0
        self._replies: list[Reply] = []

    @property
    def done(self) -> bool:
        """Whether every request was sent and every reply has arrived."""
        return not self._unsent and len(self._replies) >= self._due

    def ask(self, requests: bytes, replies: int) -> None:
        """Begin to send requests that have so many replies; the replies of those before are dropped."""
        self._unsent, self._due, self._replies = memoryview(requests), replies, []
        self.send()

    def send(self) -> None:
        """Send as much as the socket takes. Raises ServerGoneError."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ServerGoneError("connection closed by the server while sending") from error

    def receive(self) -> None:
        """Receive the replies that have arrived. Raises ServerGoneError, and hiredis.ReplyError for an error reply."""
        with contextlib.suppress(BlockingIOError):
            while len(self._replies) < self._due:
                try:
                    content = self._socket.recv(_RECEIVED_BYTES)
                except ConnectionResetError as error:
                    raise ServerGoneError("connection reset by the server while waiting for a reply") from error
                if not content:
                    raise ServerGoneError("connection closed by the server while waiting for a reply")
                self._reader.feed(content)
                while (reply := self._reader.gets()) is not INCOMPLETE:
                    if isinstance(reply, hiredis.ReplyError):
                        raise reply
                    self._replies.append(reply)

    @property
    def replies(self) -> list[Reply]:
        """The replies so far to the latest requests."""
        return self._replies

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
