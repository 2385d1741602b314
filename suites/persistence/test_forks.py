"""A server's child processes write the stored data: by BGSAVE, BGREWRITEAOF and a transfer without a file.

A child is a separate process: a fault ends only the child, and the server continues. The quick tier tests each of the
three here; `replication` tests the transfer between all machines. Some of the system calls occur only for files of many
megabytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness.run.vm.init_channel import RefusedError
from suites._shared import link
from suites._shared.formats import places, rdb
from suites._shared.keyspace import dataset, server
from suites._shared.keyspace.values import Key, Pending, Stream, differences
from suites._shared.needs import require
from suites.persistence.conftest import FORMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.protocol.resp import Client
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.keyspace.values import Identifier
    from suites.persistence.conftest import Written

PIECE = 4 << 20
"""Number of bytes after which a child makes the kernel write them to the disk (server.h, REDIS_AUTOSYNC_BYTES)."""
SWITCH = "rdb-save-incremental-fsync"
READER = "native"
"""The target whose reader judges the children's files."""


def test_what_a_child_saves_is_what_was_stored(
    cell: CellSpec, family: str, start_guest: StartGuest, written: Callable[[str], Written]
) -> None:
    guest = start_guest(options=server.OPTIONS)
    server.write(guest, family)
    content = server.saved_by_a_child(guest)
    own = cell.runner.target.name
    found = places.check_file(content, written(READER).rdb, writer=own, version=cell.version, family=family)
    assert found.functions == ([dataset.FUNCTION] if not cell.lacks("command function") else [])


def test_what_a_child_saves_of_a_pending_entry_is_what_was_claimed(cell: CellSpec, start_guest: StartGuest) -> None:
    require(cell, "command xadd")
    guest = start_guest(options=server.OPTIONS)
    claimed = Pending((1, 2), deliveries=70_000, delivered=1_500_000_000_123)
    with guest.client() as client:
        begun = milliseconds(client)
        client.command("XADD", "stream", "1-2", "field", "value")
        client.command("XGROUP", "CREATE", "stream", "group", "0")
        client.command("XREADGROUP", "GROUP", "group", "me", "STREAMS", "stream", ">")
        how = ("TIME", claimed.delivered, "RETRYCOUNT", claimed.deliveries, "JUSTID")
        assert client.command("XCLAIM", "stream", "group", "me", 0, "1-2", *how) == [b"1-2"]
        ended = milliseconds(client)
    group = saved_stream(guest).groups[b"group"]
    (saved,) = group.pending[b"me"]
    assert (saved, saved.delivered) == (claimed, claimed.delivered)
    # The server reads the clock only occasionally.
    assert begun - 1000 <= group.seen[b"me"] <= ended + 1000


@pytest.mark.parametrize("rewrites", [False, True], ids=["a save", "a rewrite as commands"])
def test_what_a_child_writes_of_a_streams_history_is_what_was_set(
    cell: CellSpec, start_guest: StartGuest, *, rewrites: bool
) -> None:
    """The numbers exceed 32 bits. A real stream would take years to reach them."""
    require(cell, "form XSETID ENTRIESADDED")
    appends = ["--appendonly", "yes", "--aof-use-rdb-preamble", "no"] if rewrites else []
    guest = start_guest(options=[*server.OPTIONS, *appends])
    last, deleted, added, read = ((1 << 32) + 5, 9), ((1 << 32) + 3, 7), 5_000_000_000_123, 4_999_999_999_999
    with guest.client() as client:
        client.command("XADD", "stream", "1-2", "field", "value")
        set_to = ("ENTRIESADDED", added, "MAXDELETEDID", f"{deleted[0]}-{deleted[1]}")
        assert client.command("XSETID", "stream", f"{last[0]}-{last[1]}", *set_to) == b"OK"
        assert client.command("XGROUP", "CREATE", "stream", "group", "0", "ENTRIESREAD", read) == b"OK"
        assert client.command("XGROUP", "CREATE", "stream", "another", "0") == b"OK"
        if rewrites:
            server.await_rewrite(guest)
        else:
            assert history(saved_stream(guest)) == (last, deleted, added, read, -1)
        assert client.command("DEBUG", "LOADAOF" if rewrites else "RELOAD") == b"OK"
        assert history(server.stream(client, b"stream")) == (last, deleted, added, read, -1)


def history(stream: Stream) -> tuple[Identifier, Identifier, int, int, int]:
    """The history numbers of a stream and of its two groups."""
    return stream.last, stream.deleted, stream.added, stream.groups[b"group"].read, stream.groups[b"another"].read


@pytest.mark.parametrize(("policy", "option", "used"), [("lru", "IDLETIME", 10_000_000), ("lfu", "FREQ", 200)])
def test_what_a_child_saves_of_a_keys_use_is_loaded_again(
    policy: str, option: str, used: int, cell: CellSpec, start_guest: StartGuest
) -> None:
    """A key's idle time and its frequency."""
    require(cell, "form RESTORE IDLETIME")
    # Without a memory limit a 32-bit server evicts nothing, whatever its policy.
    options = ["--maxmemory", "1gb", "--maxmemory-policy", f"allkeys-{policy}", "--lfu-decay-time", "0"]
    guest = start_guest(options=[*server.OPTIONS, *options])
    with guest.client() as client:
        client.command("SET", "other", "value")
        payload = client.command("DUMP", "other")
        client.command("DEL", "other")
        assert client.command("RESTORE", "key", 0, payload, option, used) == b"OK"  # type: ignore[arg-type]
        (saved,) = rdb.read(server.saved_by_a_child(guest)).hints
        assert client.command("DEBUG", "RELOAD") == b"OK"
        value: Any = client.command("OBJECT", option, "key")
    # The idle time grows during the test. Before 7.0 it may instead be half the period of the 24-bit clock, which shows
    # only for some values of the clock.
    least = used if policy == "lfu" or cell.version >= (7,) else 1 << 23
    most = used + 600 if policy == "lru" else used
    assert least <= saved <= most
    assert least <= value <= most


def test_packed_numbers_that_a_child_rewrites_are_what_was_stored(cell: CellSpec, start_guest: StartGuest) -> None:
    """Members of sorted sets, and names and values of fields, are numbers of up to 64 bits in a packed encoding."""
    mixed = ["--aof-use-rdb-preamble", "no"] if not cell.lacks("option aof-use-rdb-preamble") else []
    guest = start_guest(options=[*server.OPTIONS, "--appendonly", "yes", *mixed])
    numbers = [b"%d" % number for number in dataset.INTEGERS]
    with guest.client() as client:
        client.command("ZADD", "sorted", *[part for number in numbers for part in (number, number)])
        client.command("HMSET", "fields", *[part for number in numbers for part in (number, number)])
        keys = ("sorted", "fields")
        encodings = [client.command("OBJECT", "ENCODING", key) for key in keys]
        asked = [("ZRANGE", "sorted", 0, -1, "WITHSCORES"), ("HGETALL", "fields")]
        before: list[Any] = client.pipeline(asked)
        server.await_rewrite(guest)
        assert client.command("DEBUG", "LOADAOF") == b"OK"
        assert client.pipeline(asked) == before
        assert [client.command("OBJECT", "ENCODING", key) for key in keys] == encodings
    assert set(encodings) <= {b"listpack", b"ziplist"}
    assert [set(reply[::2]) for reply in before] == [set(numbers)] * 2


def milliseconds(client: Client) -> int:
    """The server's clock, in milliseconds since 1970."""
    seconds, microseconds = (int(part) for part in client.command("TIME"))  # type: ignore[union-attr,arg-type]
    return seconds * 1000 + microseconds // 1000


def saved_stream(guest: Guest) -> Stream:
    """The key `stream`, as a child saves it."""
    value = rdb.read(server.saved_by_a_child(guest)).entries[Key(0, b"stream")].value
    assert isinstance(value, Stream)
    return value


@pytest.mark.parametrize("rewritten", FORMS[1:])
def test_what_a_child_rewrites_is_what_was_stored(
    rewritten: str, cell: CellSpec, family: str, start_guest: StartGuest, written: Callable[[str], Written]
) -> None:
    files = written(cell.runner.target.name).append_only
    if rewritten not in files:
        pytest.skip("append-only files have a preamble since 4.0")
    reader = start_guest(target=READER, options=[*server.OPTIONS, "--appendonly", "yes"], files=files[rewritten])
    assert_stored(reader, cell, family)


def test_what_a_child_sends_without_a_file_is_what_was_stored(
    cell: CellSpec, family: str, start_guest: StartGuest
) -> None:
    require(cell, "option repl-diskless-sync")
    options = [*server.OPTIONS, "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]
    primary = start_guest(options=options)
    server.write(primary, family)
    replica = start_guest(target=READER, options=options)
    link.join(replica, primary)
    assert_stored(replica, cell, family)
    with pytest.raises((FileNotFoundError, RefusedError)):
        primary.read("dump.rdb")


def test_what_a_child_saves_is_synchronised_meanwhile(cell: CellSpec, start_guest: StartGuest) -> None:
    """From the second piece on, the child also waits for the previous piece. Three whole pieces cause all of these
    system calls.
    """
    if SWITCH not in cell.abilities.options:
        pytest.skip("a file is saved in pieces since 5.0")
    guest = start_guest(options=[*server.OPTIONS, "--rdbcompression", "no"])
    with guest.client() as client:
        for name, value in ((SWITCH, b"yes"), ("rdbcompression", b"no")):
            assert client.command("CONFIG", "GET", name) == [name.encode(), value]
        for number in range(3):
            assert client.command("SETRANGE", f"piece:{number}", PIECE - 1, "x") == PIECE
    server.save_by_a_child(guest)


def assert_stored(reader: Guest, cell: CellSpec, family: str) -> None:
    """Assert that the reader has the data set."""
    expected = server.expected(cell, family)
    lines = differences(expected, server.snapshot(reader))
    assert not lines, places.message_of(lines)
