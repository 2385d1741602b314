"""Makes a server empty again for the next stream, with its settings as they were at first.

To restore every setting, the users, scripts and functions takes thirty commands, more than most streams have. After a
stream that was all that a server received, only what the stream may have changed is restored.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from harness.core.sockets import connect
from harness.protocol import reply_comparison
from harness.protocol.command_stream import clients_of, command
from harness.protocol.conversation import await_no_blocked_client
from harness.protocol.resp import Client
from suites.fuzz.values import SCRIPT

if TYPE_CHECKING:
    from harness.protocol.command_stream import Command, Stream
    from harness.run.server_process import Guest

RESET = (
    command("CONFIG", "SET", "notify-keyspace-events", ""),
    command("ACL", "DELUSER", "plumb"),
    command("SCRIPT", "LOAD", SCRIPT),
)
"""Commands that undo what streams do to a server besides its keys and thresholds, or refused by an older release. The
script by which EVALSHA names it is known to every stream."""
FLUSH = (command("FLUSHALL"),)
_ENCODINGS = (b"hash-", b"list-", b"set-", b"zset-", b"stream-", b"hll-", b"sanitize-")


class Emptying:
    """The servers of a cell: what restores their settings, and what they have received since they were emptied."""

    def __init__(self) -> None:
        self._settings: dict[str, Stream] = {}
        """A server's folder -> the commands that restore its settings, read before any stream changes them."""
        self._received: dict[str, Stream] = {}
        """A server's folder -> the one stream that it has received since it was emptied."""

    def empty(self, server: Guest) -> None:
        """Remove all keys and settings on a connection that is not recorded, and wait for clients that were blocked.

        Raises OSError where the server is gone, or a client stays blocked.
        """
        place = str(server.folder)
        received = self._received.pop(place, None)
        with contextlib.closing(connect(server.upstream, deadline_seconds=server.deadline_seconds)) as connection:
            client = Client(connection)
            if place not in self._settings:
                self._settings[place] = _settings(client)
            whole = reply_comparison.EMPTY + RESET + self._settings[place]
            reply_comparison.ask(client, whole if received is None else FLUSH + undoing(received, whole))
            if received is None or clients_of(received) > 1:
                await_no_blocked_client(client, deadline_seconds=server.deadline_seconds)

    def sent(self, server: Guest, stream: Stream) -> None:
        """Say that a server has received a stream since it was emptied, and nothing else."""
        self._received[str(server.folder)] = stream

    def forget(self) -> None:
        """Take nothing for granted: others may have used the servers."""
        self._received.clear()


def undoing(stream: Stream, whole: Stream) -> Stream:
    """Those of the commands that restore a server which a stream makes necessary; FLUSHALL is always.

    A setting is restored where the stream names it, all else where a word contains the command's name: a script may
    call it. Scripts may not call CONFIG.
    """
    words = [word.lower() for one in stream for word in one.words]
    all_words = b" ".join(words)
    names = {_of_all_releases(word) for word in words} if b"config" in words else set()

    def is_due(one: Command) -> bool:
        if one.name == "CONFIG":
            return bool(names) and _of_all_releases(one.words[2]) in names
        return one.name != "FLUSHALL" and one.words[0].lower() in all_words

    return tuple(one for one in whole if is_due(one))


def _of_all_releases(name: bytes) -> bytes:
    """A setting's name: since Redis 7 the older one is an alias."""
    return name.replace(b"ziplist", b"listpack")


def _settings(client: Client) -> Stream:
    """The commands that restore every threshold to its present value."""
    parts = ("-max-", "compress-depth", "sanitize-dump")
    found = reply_comparison.ask(client, tuple(command("CONFIG", "GET", f"*{part}*") for part in parts))
    words = [word for reply in found if isinstance(reply, list) for word in reply]
    return tuple(
        command("CONFIG", "SET", name, value)
        for name, value in zip(words[::2], words[1::2], strict=True)
        if isinstance(name, bytes) and isinstance(value, bytes) and name.startswith(_ENCODINGS)
    )
