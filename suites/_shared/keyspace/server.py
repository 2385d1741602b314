"""Writes the data set to a server, reads it back with commands, and fetches it as files."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import hiredis

from suites._shared.keyspace import dataset
from suites._shared.keyspace.values import (
    ConsumerGroup,
    Fields,
    Key,
    KeyEntry,
    Members,
    Pending,
    Scores,
    Sequence,
    Stream,
    Text,
    identifier,
    score,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.protocol.resp import Client
    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest
    from suites._shared.keyspace.values import Value

OPTIONS = ["--databases", "16"]
_BATCH = 200
_POLL_SECONDS = 0.05


def client(guest: Guest) -> Client:
    """A connection to the guest."""
    return guest.client()


def write(guest: Guest, family: str) -> None:
    """Write the whole data set to an empty server. An error reply raises AssertionError, which names the command."""
    requests: list[tuple[Any, ...]] = []
    database = 0
    for item in dataset.items(guest.version, family):
        if item.key.database != database:
            database = item.key.database
            requests.append(("SELECT", database))
        requests += item.commands
        if database:
            requests.append(("SELECT", 0))
            database = 0
    if not guest.lacks("command function"):
        requests.append(("FUNCTION", "LOAD", dataset.FUNCTION))
    with client(guest) as connection:
        for at in range(0, len(requests), _BATCH):
            some = requests[at : at + _BATCH]
            for request, reply in zip(some, connection.pipeline(some), strict=True):
                assert not isinstance(reply, hiredis.ReplyError), f"{request!s:.100}: {reply}"


def snapshot(guest: Guest) -> dict[Key, KeyEntry]:
    """Read every key of every database with commands. Times of expiry are included since 7.0, when commands report
    them.
    """
    found: dict[Key, KeyEntry] = {}
    with client(guest) as connection:
        every = [request for database in range(16) for request in (("SELECT", database), ("KEYS", "*"))]
        for database, names in enumerate(_replies(connection, every)[1::2]):
            if names:
                _replies(connection, [("SELECT", database)])
                found |= _entries(connection, database, names, tells_expiry=not guest.lacks("command pexpiretime"))
    return found


def _entries(connection: Client, database: int, names: list[bytes], *, tells_expiry: bool) -> dict[Key, KeyEntry]:
    """Some keys of the current database, read in a few pipelines because every round trip takes time."""
    kinds = [_KINDS[_word(kind)] for kind in _replies(connection, [("TYPE", name) for name in names])]
    replies = _replies(connection, [(kind.command, name, *kind.rest) for kind, name in zip(kinds, names, strict=True)])
    times: list[Any] = [-1] * len(names)
    if tells_expiry:
        times = _replies(connection, [("PEXPIRETIME", name) for name in names])
    found = {}
    for name, kind, reply, time_left in zip(names, kinds, replies, times, strict=True):
        found[Key(database, name)] = KeyEntry(kind.read(connection, name, reply), None if time_left < 0 else time_left)
    return found


def _replies(connection: Client, requests: list[tuple[Any, ...]]) -> list[Any]:
    """The replies to a pipeline. Raises the first error reply."""
    replies = connection.pipeline(requests)
    for reply in replies:
        if isinstance(reply, hiredis.ReplyError):
            raise reply
    return replies


def without_times(entries: dict[Key, KeyEntry], reader: Guest | CellSpec) -> dict[Key, KeyEntry]:
    """The entries as `snapshot` reads them from a server: some have no command that tells when a key expires."""
    return (
        {key: KeyEntry(entry.value) for key, entry in entries.items()}
        if reader.lacks("command pexpiretime")
        else entries
    )


def expected(cell: CellSpec, family: str) -> dict[Key, KeyEntry]:
    """The data set as `snapshot` reads it from the cell's servers."""
    return without_times(dataset.expected(cell.version, family), cell)


def functions(guest: Guest) -> list[bytes]:
    """The code of the server's function libraries."""
    with client(guest) as connection:
        listed = _list(connection.command("FUNCTION", "LIST", "WITHCODE"))
    return [dict(zip(one[::2], one[1::2], strict=True))[b"library_code"] for one in listed]


def saved(guest: Guest) -> bytes:
    """The server's RDB file, written by SAVE."""
    with client(guest) as connection:
        assert _word(connection.command("SAVE")) == "OK"
    return guest.read("dump.rdb")


def save_by_a_child(guest: Guest) -> None:
    """Have BGSAVE's child process write the RDB file, and wait until it is done."""
    with client(guest) as connection:
        connection.command("BGSAVE")
        _await_child(guest, connection, ("rdb_bgsave_in_progress",), "rdb_last_bgsave_status", "BGSAVE")


def saved_by_a_child(guest: Guest) -> bytes:
    """The server's RDB file, written by BGSAVE's child process."""
    save_by_a_child(guest)
    return guest.read("dump.rdb")


def await_rewrite(guest: Guest) -> None:
    """Rewrite the append-only file, and wait for the end of the rewrite."""
    progress = ("aof_rewrite_in_progress", "aof_rewrite_scheduled")
    with client(guest) as connection:
        connection.command("BGREWRITEAOF")
        _await_child(guest, connection, progress, "aof_last_bgrewrite_status", "BGREWRITEAOF")


def _await_child(guest: Guest, connection: Client, progress: tuple[str, ...], status: str, what: str) -> None:
    """Wait until INFO reports that a child has ended successfully."""
    ended = {f"{name}:0".encode() for name in progress}
    fields = _await_persistence(guest, connection, ended.issubset, what)
    assert f"{status}:ok".encode() in fields, f"{what} failed"


def _await_persistence(
    guest: Guest, connection: Client, reached: Callable[[list[bytes]], bool], what: str
) -> list[bytes]:
    """Wait until INFO's fields about persistence, as `NAME:VALUE`, fulfil a condition. Returns the fields. Raises
    TimeoutError.
    """
    deadline = time.monotonic() + guest.waits.limit(what, 4 * guest.deadline_seconds)
    while True:
        fields = bytes(connection.command("INFO", "persistence")).split()  # type: ignore[arg-type]
        if reached(fields):
            return fields
        if time.monotonic() > deadline:
            raise guest.waits.expired(what)
        time.sleep(_POLL_SECONDS)


def append_only_files(guest: Guest) -> dict[str, bytes]:
    """The append-only file, or since 7.0 the append-only files, by name in the working folder. They contain every write
    that the server has acknowledged.
    """
    with client(guest) as connection:
        _await_empty_buffer(guest, connection)
    if "appenddirname" not in guest.build.abilities.options:
        return {"appendonly.aof": guest.read("appendonly.aof")}
    folder = "appendonlydir"
    manifest = f"{folder}/appendonly.aof.manifest"
    content = guest.read(manifest)
    words = [line.split() for line in content.decode().splitlines()]
    names = [f"{folder}/{line[line.index('file') + 1]}" for line in words]
    return {manifest: content, **{name: guest.read(name) for name in names}}


def _await_empty_buffer(guest: Guest, connection: Client) -> None:
    """Wait until the append-only file has been written.

    With `appendfsync everysec`, a server postpones writing for up to two seconds while another thread synchronises the
    file, but still replies to clients (src/aof.c, flushAppendOnlyFile).
    """

    def is_empty(fields: list[bytes]) -> bool:
        # Without an append-only file there is no such field.
        return all(field == b"aof_buffer_length:0" for field in fields if field.startswith(b"aof_buffer_length:"))

    _await_persistence(guest, connection, is_empty, "the append-only file to be written")


def _list(reply: Any) -> list[Any]:
    assert isinstance(reply, list), f"expected a list, got {reply!r:.100}"
    return reply


def _word(reply: Any) -> str:
    return reply.decode() if isinstance(reply, bytes) else str(reply)


def _text(_connection: Client, _name: bytes, reply: Any) -> Value:
    return Text(reply)


def _sequence(_connection: Client, _name: bytes, reply: Any) -> Value:
    return Sequence(tuple(_list(reply)))


def _members(_connection: Client, _name: bytes, reply: Any) -> Value:
    return Members(frozenset(_list(reply)))


def _scores(_connection: Client, _name: bytes, reply: Any) -> Value:
    flat = _list(reply)
    return Scores({member: score(float(text)) for member, text in zip(flat[::2], flat[1::2], strict=True)})


def _fields(connection: Client, name: bytes, reply: Any) -> Value:
    fields = _named(_list(reply))
    if b":times:" not in name:
        return Fields(fields)
    times = _list(connection.command("HPEXPIRETIME", name, "FIELDS", len(fields), *fields))
    return Fields(fields, {field: time for field, time in zip(fields, times, strict=True) if time >= 0})


def stream(connection: Client, name: bytes) -> Stream:
    """A stream, as the server's commands describe it."""
    return _stream(connection, name, connection.command("XRANGE", name, "-", "+"))


def _stream(connection: Client, name: bytes, reply: Any) -> Stream:
    about = _named(connection.command("XINFO", "STREAM", name))
    groups = {}
    for one in _list(connection.command("XINFO", "GROUPS", name)):
        group = _named(one)
        read = group.get(b"entries-read")
        groups[group[b"name"]] = ConsumerGroup(
            identifier(group[b"last-delivered-id"]),
            _pending(connection, name, group),
            read=-1 if read is None else read,
        )
    return Stream(
        entries=tuple((identifier(one), tuple(flat)) for one, flat in _list(reply)),
        last=identifier(about[b"last-generated-id"]),
        groups=groups,
        deleted=identifier(about.get(b"max-deleted-entry-id", b"0-0")),
        added=about.get(b"entries-added", 0),
    )


def _pending(connection: Client, name: bytes, group: dict[bytes, Any]) -> dict[bytes, tuple[Pending, ...]]:
    found: dict[bytes, tuple[Pending, ...]] = {}
    for one, consumer, _, deliveries in _list(connection.command("XPENDING", name, group[b"name"], "-", "+", 1000)):
        found[consumer] = (*found.get(consumer, ()), Pending(identifier(one), deliveries))
    return found


def _named(flat: Any) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


class _Kind(NamedTuple):
    """How to read a value of one kind: the command, its arguments after the key's name, and the reply's reader."""

    command: str
    rest: tuple[Any, ...]
    read: Callable[[Client, bytes, Any], Value]


_KINDS = {
    "string": _Kind("GET", (), _text),
    "list": _Kind("LRANGE", (0, -1), _sequence),
    "set": _Kind("SMEMBERS", (), _members),
    "zset": _Kind("ZRANGE", (0, -1, "WITHSCORES"), _scores),
    "hash": _Kind("HGETALL", (), _fields),
    "stream": _Kind("XRANGE", ("-", "+"), _stream),
}
