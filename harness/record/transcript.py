"""Transcripts: what crossed the connections of a guest. They can be read as requests, saved, and sent again."""

from __future__ import annotations

import base64
import contextlib
import re
import time
from typing import TYPE_CHECKING, Literal

import hiredis
import msgspec

from harness.core import json_codec
from harness.core.model import Record
from harness.core.sockets import Address, connect

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Iterator
    from pathlib import Path

INCOMPLETE = object()
CHUNK_BYTES = 65536
UNANSWERED_SHOWN = 200
BLOCKING_SECONDS = 0.01
"""The time for a server to block a client, before another client sends the command that frees it."""


Direction = Literal["request", "reply"]


class Chunk(Record, frozen=True):
    """Bytes that crossed the proxy, in order."""

    connection: int
    direction: Direction
    data: str
    """Base 64."""

    @property
    def content(self) -> bytes:
        """The bytes."""
        return base64.b64decode(self.data)


def save(path: Path, chunks: list[Chunk]) -> None:
    """Write chunks, one JSON object per line."""
    path.write_bytes(b"".join(json_codec.encode(chunk) + b"\n" for chunk in chunks))


def load(path: Path) -> list[Chunk]:
    """Read the chunks that `save` wrote. None of a damaged file, which the seal of the evidence reports."""
    try:
        chunks = [json_codec.decode(line, Chunk) for line in path.read_bytes().splitlines()]
    except msgspec.DecodeError:
        return []
    return chunks if are_whole(chunks) else []


def are_whole(chunks: Iterable[Chunk]) -> bool:
    """Whether all chunks have the bytes that they claim to have."""
    try:
        for chunk in chunks:
            base64.b64decode(chunk.data, validate=True)
    except ValueError:
        return False
    return True


def unanswered(chunks: list[Chunk]) -> list[str]:
    """The requests without a reply, in order and human-readable; at most UNANSWERED_SHOWN.

    Considers only the connection that sent last. A server writes the replies of a pipeline together, so a pipeline's
    fatal request is among these, but not always the first.
    """
    last = next((chunk.connection for chunk in reversed(chunks) if chunk.direction == "request"), None)
    if last is None:
        return []
    requests = parsed(b"".join(c.content for c in chunks if c.connection == last and c.direction == "request"))
    replies = parsed(b"".join(c.content for c in chunks if c.connection == last and c.direction == "reply"))
    return [_readable(request) for request in requests[len(replies) :][:UNANSWERED_SHOWN]]


LOOKS = {"CONFIG", "DEBUG", "DEL", "ECHO", "EXISTS", "FLUSHALL", "FLUSHDB", "INFO", "KEYS", "OBJECT", "PING", "SELECT"}
"""Commands that inspect or clear the effects of others. A wrong reply to one of them is rarely its own fault."""


def last_request(chunks: list[Chunk]) -> str:
    """The last request that does more than look, human-readable: in a failed test the likeliest to have a wrong reply.

    Empty if it was one of a pipeline of different commands, or not an array.
    """
    for sent in _sendings(chunks):
        commands = [one for one in parsed(sent) if isinstance(one, list) and one]
        names = {_name_of(one) for one in commands}
        if not names:
            return ""
        if telling := names - LOOKS:
            last = next(one for one in reversed(commands) if _name_of(one) in telling)
            return _readable(last) if len(telling) == 1 else ""
    return ""


def _name_of(command: list[object]) -> str:
    name = command[0]
    return name.decode("latin-1").upper() if isinstance(name, bytes) else str(name)


def _sendings(chunks: list[Chunk]) -> Iterator[bytes]:
    """The bytes that a connection sent without a reply in between; those that were answered last come first."""
    parts: dict[int, list[Chunk]] = {}
    ended: list[list[Chunk]] = []
    for chunk in chunks:
        if chunk.direction == "request":
            parts.setdefault(chunk.connection, []).append(chunk)
        elif chunk.connection in parts:
            ended.append(parts.pop(chunk.connection))
    for one in reversed(ended):
        yield b"".join(chunk.content for chunk in one)


def requests(chunks: list[Chunk]) -> list[str]:
    """Every request that was sent, human-readable, connection by connection."""
    sent = [chunk for chunk in chunks if chunk.direction == "request"]
    connections = dict.fromkeys(chunk.connection for chunk in sent)
    streams = [b"".join(chunk.content for chunk in sent if chunk.connection == one) for one in connections]
    return [_readable(request) for stream in streams for request in parsed(stream)]


def has_whole_request(chunks: list[Chunk]) -> bool:
    """Whether a server would act on what was sent, if anything was: on a line, or on the first INLINE_BYTES of one.

    False only for requests that all end before, after which a server waits for the rest.
    """
    sent: dict[int, bytes] = {}
    for chunk in chunks:
        if chunk.direction == "request":
            sent[chunk.connection] = sent.get(chunk.connection, b"") + chunk.content
    return not sent or any(b"\n" in one or len(one) >= INLINE_BYTES for one in sent.values())


INLINE_BYTES = 1 << 16
"""The longest line that a server reads (PROTO_INLINE_MAX_SIZE in src/server.h)."""


def parsed(stream: bytes) -> list[object]:
    """The requests, or replies, that a stream of bytes begins with."""
    reader = hiredis.Reader(notEnoughData=INCOMPLETE)
    reader.feed(stream)
    found: list[object] = []
    try:
        while (one := reader.gets()) is not INCOMPLETE:
            found.append(one)
    except hiredis.ProtocolError:
        # Requests after a malformed or inline one cannot be separated.
        pass
    return found


def _readable(request: object) -> str:
    if not isinstance(request, list):
        return repr(request)
    return " ".join(_word(argument) for argument in request)


def _word(argument: object) -> str:
    if not isinstance(argument, bytes):
        return str(argument)
    if re.fullmatch(rb"[!#-&(-~]{1,40}", argument):
        return argument.decode()
    shown = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in argument[:16]
    )
    return f'"{shown}"' if len(argument) <= 16 else f'"{shown}"…({len(argument)} bytes)'


def send_again(address: Address, chunks: list[Chunk], *, reply_seconds: float) -> str:
    """Send the recorded requests to a server, in order, each after the replies that preceded it.

    Waits for as many bytes of a reply as were recorded, and continues with the next request after a timeout.
    Ends early, without an error, if the endpoint closes a connection, as a crashing server does.
    A client whose reply did not come may be blocked: the server then does not read what it sends later.
    Returns why not all requests were sent, or may have been read; empty if all were.
    """
    whole, sent = sum(chunk.direction == "request" for chunk in chunks), 0
    waits = _Waits()
    sockets: dict[int, socket.socket] = {}
    silent = 0
    try:
        for chunk in chunks:
            if chunk.connection not in sockets:
                sockets[chunk.connection] = connect(address, deadline_seconds=reply_seconds)
            peer = sockets[chunk.connection]
            if chunk.direction == "request":
                if silent not in {0, chunk.connection}:
                    # The other client was blocked, and must be again.
                    time.sleep(BLOCKING_SECONDS)
                silent = chunk.connection
                waits.sent(silent)
                peer.sendall(chunk.content)
                sent += 1
                continue
            received = _receive(peer, len(chunk.content))
            if received is None:
                if sent < whole:
                    return f"it closed a connection, {sent} of {whole} requests had been sent"
                break
            silent = 0
            waits.received(chunk.connection, received, len(chunk.content))
        # The last request may be the fatal one: give the server time to crash.
        for connection, peer in sockets.items():
            peer.settimeout(reply_seconds / 4)
            with contextlib.suppress(TimeoutError):
                waits.received(connection, len(peer.recv(CHUNK_BYTES)), 0)
    except OSError as error:
        return f"{sent} of {whole} requests were sent: {error}" if sent < whole else ""
    finally:
        for peer in sockets.values():
            peer.close()
    return "a client whose reply did not come sent more requests, and received nothing" if waits.unread else ""


class _Waits:
    """The connections that wait for a reply that did not arrive, and send more requests nevertheless."""

    def __init__(self) -> None:
        self._late: set[int] = set()
        """Those whose last reply did not come whole."""
        self.unread: set[int] = set()
        """Those that sent a request since, and have received nothing."""

    def sent(self, connection: int) -> None:
        """A connection sent a request."""
        self.unread |= self._late & {connection}

    def received(self, connection: int, count: int, of: int) -> None:
        """A connection received some bytes of those that it waited for."""
        if count:
            self._late.discard(connection)
            self.unread.discard(connection)
        if count < of:
            self._late.add(connection)


def _receive(peer: socket.socket, length: int) -> int | None:
    """How many of this many bytes arrived before the deadline; None if the connection is closed."""
    deadline = time.monotonic() + (peer.gettimeout() or 0)
    received = 0
    while received < length and time.monotonic() < deadline:
        try:
            content = peer.recv(length - received)
        except TimeoutError:
            break
        if not content:
            return None
        received += len(content)
    return received
