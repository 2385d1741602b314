"""Makes a server empty again for the next stream, with its settings as they were at first.

To restore every setting, the users, scripts and functions takes thirty commands, more than most streams have. After a
stream that was all that a server received, only what the stream may have changed is restored.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from harness.protocol import reply_comparison
from harness.protocol.command_stream import Command, clients_of, command, wire
from harness.protocol.control_connection import ControlConnection
from harness.protocol.conversation import SUBSCRIBING
from suites.fuzz.values import SCRIPT

if TYPE_CHECKING:
    from harness.protocol.command_stream import Stream
    from harness.protocol.resp import Client
    from harness.run.server_process import Guest

UNDO = (
    command("CONFIG", "SET", "notify-keyspace-events", ""),
    command("ACL", "DELUSER", "plumb"),
    command("SCRIPT", "LOAD", SCRIPT),
)
"""Commands that undo what streams do to a server besides its keys and thresholds, or refused by an older release. The
script by which EVALSHA names it is known to every stream."""
FLUSH = (command("FLUSHALL"),)
NO_REPLICA = (command("SLAVEOF", "NO", "ONE"),)
"""It precedes FLUSHALL, which a replica refuses. Before Redis 7 a server becomes one of port -1."""
_MAKING_REPLICAS = frozenset({"FAILOVER", "REPLICAOF", "SLAVEOF"})
RESET = command("RESET")
"""It makes a client as a new one, in releases from SINCE_RESET on."""
SINCE_RESET = (6, 2)
_OWN_CLIENT = SUBSCRIBING | {
    "ACL",
    "AUTH",
    "CLIENT",
    "FAILOVER",
    "MIGRATE",
    "MONITOR",
    "PSYNC",
    "QUIT",
    "REPLCONF",
    "REPLICAOF",
    "SLAVEOF",
    "SYNC",
}
"""Commands that change or end connections, their own or others', in ways that RESET does not undo, or whose replies a
client alone cannot count."""
_OWN_CLIENT_OF_TWO = _OWN_CLIENT - SUBSCRIBING - {"ACL", "AUTH", "CLIENT"}
"""Those of them for streams of several clients, which end with RESET by each."""
_UNDONE = frozenset({b"CACHING", b"GETNAME", b"GETREDIR", b"ID", b"INFO", b"LIST", b"TRACKING", b"TRACKINGINFO"})
"""What CLIENT does that RESET undoes, or that changes nothing."""
_ENCODINGS = (b"hash-", b"list-", b"set-", b"zset-", b"stream-", b"hll-", b"sanitize-")


class Emptying:
    """The servers of a cell: what restores their settings, and what they have received since they were emptied.

    Each has a connection that is not recorded, and remains while the server does. It may also have clients that
    remain from one stream to the next: a guest takes as long to accept and to end one as for a whole stream.
    """

    def __init__(self) -> None:
        self._whole: dict[str, Stream] = {}
        """A server's folder -> the commands that restore all that streams change, its settings as read before any."""
        self._received: dict[str, Stream] = {}
        """A server's folder -> the one stream that it has received since it was emptied."""
        self._controls: dict[str, tuple[Guest, ControlConnection]] = {}
        self._clients: dict[str, list[Client]] = {}
        """A server's folder -> its clients, for each of which RESET was the last command that changed it."""

    def control(self, server: Guest) -> ControlConnection:
        """The connection to a server."""
        place = str(server.folder)
        if place not in self._controls:
            for other in [other for other, (guest, _) in self._controls.items() if not guest.alive()]:
                self._controls.pop(other)[1].close()
                self._drop_clients(other)
            deadline_seconds = server.deadline_seconds
            self._controls[place] = server, ControlConnection(server.upstream, deadline_seconds=deadline_seconds)
        return self._controls[place][1]

    def empty(self, *servers: Guest) -> None:
        """Remove all keys and settings, and wait for clients that were blocked. The servers do it at the same time.

        Raises OSError where a server is gone, or a client stays blocked, and AssertionError where a server keeps its
        keys.
        """
        unclean = []
        for server in servers:
            stream = self._received.pop(str(server.folder), None)
            if stream != ():
                control = self.control(server)
                due = self._due(server, control, stream)
                control.begin(wire(due), len(due))
                unclean.append((server, control, stream, due.index(*FLUSH)))
        for server, control, stream, place in unclean:
            if (reply := control.end()[place]) != b"OK":
                raise AssertionError(f"{server.folder.name} keeps its keys: {reply!r}")
            if stream is None or clients_of(stream) > 1:
                control.await_no_blocked_client()

    def sent(self, server: Guest, stream: Stream) -> None:
        """Say that a server has received a stream since it was emptied, and nothing else; or none, and is empty."""
        self._received[str(server.folder)] = stream

    def sent_bytes(self, server: Guest, content: bytes) -> None:
        """Say that a client, which may still be blocked, has sent nothing but these bytes since a server was emptied.

        They need not be commands. Where they contain what may change more than keys, nobody knows what they changed.
        """
        if not any(name in content.lower() for name in _CHANGING_MORE):
            self.sent(server, _BY_ANOTHER)

    def restoring(self, server: Guest, stream: Stream) -> Stream:
        """What a client sends after its stream to restore the server. The first command is FLUSHALL."""
        return self._due(server, self.control(server), stream)

    def take_client(self, server: Guest) -> Client | None:
        """A client that remained, if one has. Its owner closes it, or gives it back with all restored."""
        remaining = self._clients.get(str(server.folder))
        return remaining.pop() if remaining else None

    def keep_client(self, server: Guest, client: Client) -> None:
        """Keep a client for later streams."""
        self._clients.setdefault(str(server.folder), []).append(client)

    def forget(self) -> None:
        """Take nothing for granted: others may have used the servers."""
        self._received.clear()
        self.drop_clients()

    def drop_clients(self) -> None:
        """Close the clients that remained: what follows may end them, or count them."""
        for place in list(self._clients):
            self._drop_clients(place)

    def close(self) -> None:
        """Close all connections."""
        for _, control in self._controls.values():
            control.close()
        self._controls.clear()
        self.drop_clients()

    def _drop_clients(self, place: str) -> None:
        for client in self._clients.pop(place, []):
            client.close()

    def _due(self, server: Guest, control: ControlConnection, stream: Stream | None) -> Stream:
        """What restores a server: all of it where nobody knows what the server has received."""
        place = str(server.folder)
        if stream is None:
            self._drop_clients(place)
        if place not in self._whole:
            self._whole[place] = reply_comparison.EMPTY + UNDO + _settings(control)
        whole = self._whole[place]
        if stream is None:
            return NO_REPLICA + whole
        due = FLUSH + undoing(stream, whole)
        return due if _MAKING_REPLICAS.isdisjoint({one.name for one in stream}) else NO_REPLICA + due


def leaves_client(server: Guest, stream: Stream) -> bool:
    """Whether each client that sends a stream is as a new one after RESET, and all other clients are as before.

    One of several may be blocked or closed at the end of the stream, though.
    """
    names = {one.name for one in stream}
    if server.version < SINCE_RESET:
        return False
    if clients_of(stream) == 1:
        return _OWN_CLIENT.isdisjoint(names)
    return _OWN_CLIENT_OF_TWO.isdisjoint(names) and (
        "CLIENT" not in names
        or all(b"".join(one.words[1:2]).upper() in _UNDONE for one in stream if one.name == "CLIENT")
    )


_CHANGING = (b"config", b"function", b"acl", b"script")
"""Names of the commands that restore a server, besides FLUSHALL. A stream without them has changed keys alone."""
_CHANGING_MORE = (*_CHANGING, *(name.lower().encode() for name in sorted(_MAKING_REPLICAS)), b"\\x")
"""What bytes contain that may change more than keys. An inline command may have its name in hexadecimal digits."""
_BY_ANOTHER = (Command(words=(b"PING",), client=1),)
"""A stream that changed keys alone, by two clients: one may be blocked."""


def undoing(stream: Stream, whole: Stream) -> Stream:
    """Those of the commands that restore a server which a stream makes necessary; FLUSHALL is always.

    A setting is restored where the stream names it, all else where a word contains the command's name: a script may
    call it. Scripts may not call CONFIG.
    """
    all_words = b" ".join([word for one in stream for word in one.words]).lower()
    changing = [name for name in _CHANGING if name in all_words]
    if not changing:
        return ()
    words = {word.lower() for one in stream for word in one.words} if b"config" in changing else set()
    settings = {_of_all_releases(word) for word in words} if b"config" in words else set()
    return tuple(
        one
        for one, (name, setting) in zip(whole, _restored(whole), strict=True)
        if (setting in settings if setting else name in changing)
    )


class _Restored(NamedTuple):
    """What one command restores."""

    name: bytes
    """The command's name."""
    setting: bytes
    """The name of the setting in all releases; empty for another command."""


@lru_cache(maxsize=16)
def _restored(whole: Stream) -> list[_Restored]:
    return [
        _Restored(name=one.words[0].lower(), setting=_of_all_releases(one.words[2]) if one.name == "CONFIG" else b"")
        for one in whole
    ]


def _of_all_releases(name: bytes) -> bytes:
    """A setting's name: since Redis 7 the older one is an alias."""
    return name.replace(b"ziplist", b"listpack")


def _settings(control: ControlConnection) -> Stream:
    """The commands that restore every threshold to its present value."""
    questions = tuple(command("CONFIG", "GET", f"*{part}*") for part in ("-max-", "compress-depth", "sanitize-dump"))
    found = control.ask(wire(questions), len(questions))
    words = [word for reply in found if isinstance(reply, list) for word in reply]
    return tuple(
        command("CONFIG", "SET", name, value)
        for name, value in zip(words[::2], words[1::2], strict=True)
        if isinstance(name, bytes) and isinstance(value, bytes) and name.startswith(_ENCODINGS)
    )
