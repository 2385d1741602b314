"""What a server must survive: bytes that may not be valid protocol, and files that may be damaged."""

from __future__ import annotations

import contextlib
import re
import socket
from typing import TYPE_CHECKING

from harness.core.sockets import connect
from harness.protocol import pipeline, reply_comparison
from harness.protocol.command_stream import command
from harness.protocol.resp import Client
from harness.run.server_process import PANIC, StartError
from suites.fuzz.failure import Failure, gone
from suites.fuzz.stored_data import reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.run.server_process import Guest

REFUSED = "refused to start"
DIED = "died"
KEYS = re.compile("[1-9][0-9]* keys ")
"""The start of the result of `taken` if the server has stored a key."""


def shout(guest: Guest, content: bytes) -> Failure | None:
    """Send bytes that may not be valid protocol, disconnect, and check that the guest still serves others."""
    known_faults = guest.evidence.faults()
    try:
        _send_and_hang_up(guest, content)
        with guest.client() as client:
            client.command("PING")
    except OSError as error:
        return gone(guest, known_faults, (command("PING"),), 0, error)
    return None


def _send_and_hang_up(guest: Guest, content: bytes) -> None:
    with (
        contextlib.closing(guest.access.connection()) as connection,
        # After a protocol error the server closes the connection, perhaps before everything is sent.
        contextlib.suppress(ConnectionError),
    ):
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


def taken(start: Callable[[], Guest]) -> str:
    """The result of starting a server with files: its stored data, REFUSED, or DIED with the cause."""
    try:
        return _contents(start())
    except StartError as error:
        # At a duplicate key the server panics with this text, which counts as a refusal.
        refused = error.detail.startswith("exit status 1;") or PANIC in error.log
        return REFUSED if refused else f"{DIED}: {error}"
    except OSError as error:
        return f"{DIED}: {type(error).__name__}: {error}"


def _contents(server: Guest) -> str:
    with contextlib.closing(connect(server.upstream, deadline_seconds=server.deadline_seconds)) as connection:
        client = Client(connection)
        keys = sorted(key for key in client.command("KEYS", "*") if isinstance(key, bytes))  # type: ignore[union-attr]
        types = client.pipeline([["TYPE", key] for key in keys])
        stream = tuple(one for key, kind in zip(keys, types, strict=True) for one in reading(kind, key))
        replies = pipeline.ask(client, stream)
    contents = [
        (one.words[1], reply_comparison.comparable(one.name, reply)) for one, reply in zip(stream, replies, strict=True)
    ]
    return f"{len(keys)} keys {contents!r}"
