"""Empties a server for the next stream, and restores its initial settings. Restoring all settings, users, scripts and
functions takes thirty commands, more than most streams have. If a server has received only one stream, only what this
stream may have changed is restored.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from harness.protocol import reply_comparison
from harness.protocol.command_stream import clients_of, command, wire
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
"""Commands that undo the effects of streams, except on keys and thresholds. Older releases refuse some of them. SCRIPT
LOAD lets every stream call the script by its digest with EVALSHA.
"""
OFTEN, SELDOM = (command("CONFIG", "SET", "hz", times_a_second) for times_a_second in (500, 50))
"""How often a server's timer runs per second: for streams that wait for it, and for all others. The timers of a guest
and of the native build take 3.5 % of a processor at 500, and 1 % at 50 (redis-7.0.15 on ARMv5).
"""
FLUSH = (command("FLUSHALL"),)
NO_REPLICA = (command("SLAVEOF", "NO", "ONE"),)
"""Sent before FLUSHALL, which a replica refuses. Before Redis 7, a stream can make a server a replica of port -1."""
_MAKING_REPLICAS = frozenset({"FAILOVER", "REPLICAOF", "SLAVEOF"})
RESET = command("RESET")
"""Resets a client to the state of a new one, if the server has it."""
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
"""Commands that change or close the client's own connection or others in ways that RESET does not undo."""
_ENCODINGS = (b"hash-", b"list-", b"set-", b"zset-", b"stream-", b"hll-", b"sanitize-")


class Emptying:
    """The servers of a cell: the commands that restore their settings, and the stream that each has received since it
    was emptied. Each server has a control connection, which is not recorded and lasts as long as the server. It may
    also have a client that several streams use in turn.
    """

    def __init__(self) -> None:
        self._whole: dict[str, Stream] = {}
        """A server's folder -> the commands that restore everything that streams change, with its initial settings."""
        self._received: dict[str, Stream] = {}
        """A server's folder -> the only stream that it has received since it was emptied."""
        self._controls: dict[str, tuple[Guest, ControlConnection]] = {}
        self._clients: dict[str, Client] = {}
        """A server's folder -> its kept client, whose last command was RESET."""

    def control(self, server: Guest) -> ControlConnection:
        """The control connection to a server."""
        place = str(server.folder)
        if place not in self._controls:
            for other in [other for other, (guest, _) in self._controls.items() if not guest.alive()]:
                self._controls.pop(other)[1].close()
                self._drop_client(other)
            deadline_seconds = server.deadline_seconds
            self._controls[place] = server, ControlConnection(server.upstream, deadline_seconds=deadline_seconds)
        return self._controls[place][1]

    def empty(self, *servers: Guest) -> None:
        """Remove all keys, restore all settings, and wait until no client is blocked. The servers work in parallel.

        Raises OSError if a server is gone, or a client stays blocked, and AssertionError if a server keeps its keys.
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

    def hasten(self, *servers: Guest) -> None:
        """Make the timers of empty servers run often, until the servers are restored. Raises OSError like `empty`."""
        for server in servers:
            self.control(server).begin(wire((OFTEN,)), 1)
        for server in servers:
            self.control(server).end()

    def sent(self, server: Guest, stream: Stream) -> None:
        """Record that a server has received only this stream since it was emptied. An empty stream means that the
        server is empty.
        """
        self._received[str(server.folder)] = stream

    def restoring(self, server: Guest, stream: Stream) -> Stream:
        """The commands that a client sends after its stream to restore the server. The first is FLUSHALL."""
        return self._due(server, self.control(server), stream)

    def take_client(self, server: Guest) -> Client | None:
        """The kept client, if there is one. The caller closes it, or gives it back after restoring everything."""
        return self._clients.pop(str(server.folder), None)

    def keep_client(self, server: Guest, client: Client) -> None:
        """Keep a client for the next stream."""
        self._clients[str(server.folder)] = client

    def forget(self) -> None:
        """Assume nothing about the servers' state: others may have used them."""
        self._received.clear()
        self.drop_clients()

    def drop_clients(self) -> None:
        """Close the kept clients, because the following commands may close or count them."""
        for place in list(self._clients):
            self._drop_client(place)

    def close(self) -> None:
        """Close all connections."""
        for _, control in self._controls.values():
            control.close()
        self._controls.clear()
        self.drop_clients()

    def _drop_client(self, place: str) -> None:
        if client := self._clients.pop(place, None):
            client.close()

    def _due(self, server: Guest, control: ControlConnection, stream: Stream | None) -> Stream:
        """The commands that restore a server: all of them if it is unknown what the server has received."""
        place = str(server.folder)
        if stream is None:
            self._drop_client(place)
        if place not in self._whole:
            self._whole[place] = (*reply_comparison.EMPTY, *UNDO, *_settings(control), SELDOM)
        whole = self._whole[place]
        if stream is None:
            return NO_REPLICA + whole
        due = FLUSH + undoing(stream, whole)
        if awaits_time(stream):
            due += (SELDOM,)
        return due if _MAKING_REPLICAS.isdisjoint({one.name for one in stream}) else NO_REPLICA + due


def leaves_client(server: Guest, stream: Stream) -> bool:
    """Whether RESET after a stream makes its only client equal to a new one, and the stream affects no other client."""
    names = {one.name for one in stream}
    return not server.lacks("command reset") and clients_of(stream) == 1 and _OWN_CLIENT.isdisjoint(names)


_TIMED = frozenset(
    {"BLMOVE", "BLMPOP", "BLPOP", "BRPOP", "BRPOPLPUSH", "BZMPOP", "BZPOPMAX", "BZPOPMIN", "WAIT", "WAITAOF"}
)
_TIMED_BY = {"CLIENT": b"PAUSE", "XREAD": b"BLOCK", "XREADGROUP": b"BLOCK"}
"""Command -> the option with which it waits for a time; _TIMED has the commands that always do."""


def awaits_time(stream: Stream) -> bool:
    """Whether a command of a stream may wait for the server's timer."""
    return any(
        one.name in _TIMED or (one.name in _TIMED_BY and _TIMED_BY[one.name] in [word.upper() for word in one.words])
        for one in stream
    )


_CHANGING = (b"config", b"function", b"acl", b"script")
"""Names of the commands that restore a server, except FLUSHALL. A stream without these names has changed only keys."""


def undoing(stream: Stream, whole: Stream) -> Stream:
    """The commands of `whole` that a stream makes necessary, in addition to FLUSHALL. A setting is restored if the
    stream names it. Anything else is restored if a word contains the command's name, because a script may call the
    command. Scripts may not call CONFIG.
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
    """What a command restores."""

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
