"""A small RESP client for the Python suites: hiredis packs and parses, and a plain socket transports.

redis-py does not serve here: tests need the bytes themselves, every release since 2.8, and no set-up commands.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any, Self

import hiredis

from harness.core.sockets import connect

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from harness.core.sockets import Address

INCOMPLETE = object()
Argument = bytes | str | int | float
Reply = bytes | int | float | bool | list["Reply"] | dict["Reply", "Reply"] | Exception | None


class ServerGoneError(ConnectionError):
    """The server closed the connection during a conversation, usually because it died."""


class UnreadableReplyError(ConnectionError):
    """The server sent bytes that are no reply, so nothing after them on the connection can be read."""


class ReplyError(hiredis.ReplyError):
    """An error that a server replied. Two with the same text are equal, so that lists of replies can be compared."""

    def __eq__(self, other: object) -> bool:
        """Whether the other one is an error reply with the same text."""
        return isinstance(other, ReplyError) and self.args == other.args

    def __hash__(self) -> int:
        """A number that equal ones have in common."""
        return hash(self.args)


class Client:
    """One connection. Waiting for a reply beyond the deadline raises TimeoutError."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        # hiredis' default sign for "no complete reply yet" is False, which is also RESP3's false.
        self._reader = hiredis.Reader(notEnoughData=INCOMPLETE, replyError=ReplyError)

    @classmethod
    def at_socket(cls, address: Address, *, deadline_seconds: float) -> Self:
        """Connect to a server. Raises OSError."""
        return cls(connect(address, deadline_seconds=deadline_seconds))

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def command(self, *arguments: Argument) -> Reply:
        """Send one request and return its reply. An error reply raises hiredis.ReplyError."""
        reply = self.pipeline([arguments])[0]
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    def pipeline(self, requests: Sequence[Any]) -> list[Reply]:
        """Send all requests at once and return all replies, with error replies in place."""
        return self.exchange(self.pack(requests), len(requests))

    def exchange(self, packed: bytes, count: int) -> list[Reply]:
        """As `pipeline`, of so many requests that are packed already."""
        self.send(packed)
        replies: list[Reply] = []
        self.receive_into(replies, count)
        return replies

    @staticmethod
    def pack(requests: Sequence[Any]) -> bytes:
        """Requests as arrays of bulk strings."""
        pack = hiredis.pack_command
        return b"".join([pack(tuple(request)) for request in requests])

    def send(self, content: bytes) -> None:
        """Send raw bytes."""
        try:
            self._socket.sendall(content)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ServerGoneError("connection closed by the server while sending") from error

    def receive_within(self, seconds: float) -> Reply | object:
        """The next reply if it begins to arrive within this time, else INCOMPLETE."""
        reply = self._next()
        if reply is INCOMPLETE and select.select([self._socket], [], [], seconds)[0]:
            return self.receive()
        return reply

    def receive(self) -> Reply:
        """The next reply."""
        while True:
            reply = self._next()
            if reply is not INCOMPLETE:
                return reply  # type: ignore[return-value]
            self._read()

    def receive_into(self, replies: list[Reply], count: int) -> None:
        """Append this number of replies to a list as they arrive: those before an error are kept."""
        get = self._reader.gets
        try:
            for _ in range(count):
                while (reply := get()) is INCOMPLETE:
                    self._read()
                replies.append(reply)
        except hiredis.ProtocolError as error:
            raise UnreadableReplyError(f"the server sent no reply: {error}") from error

    def _next(self) -> Reply | object:
        try:
            return self._reader.gets()  # type: ignore[no-any-return]
        except hiredis.ProtocolError as error:
            raise UnreadableReplyError(f"the server sent no reply: {error}") from error

    def _read(self) -> None:
        try:
            content = self._socket.recv(65536)
        except ConnectionResetError as error:
            raise ServerGoneError("connection reset by the server while waiting for a reply") from error
        if not content:
            raise ServerGoneError("connection closed by the server while waiting for a reply")
        self._reader.feed(content)


def info_fields(reply: Reply) -> dict[str, str]:
    """The fields of a reply to INFO."""
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else ""
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
