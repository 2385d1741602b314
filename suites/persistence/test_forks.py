"""A server's child processes write the stored data: by BGSAVE, BGREWRITEAOF and a transfer without a file.

A child is a process of its own: a fault ends only the child, and the server continues. The quick tier tests each of the
three here; `replication` tests the transfer between all machines. A file of many megabytes takes calls of the kernel
that a small one does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.run.vm.init_channel import RefusedError
from suites._shared import link
from suites._shared.formats import places, rdb
from suites._shared.keyspace import dataset, server
from suites._shared.keyspace.values import Key, Pending, Stream, differences
from suites.persistence.conftest import FORMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites.persistence.conftest import Written

PIECE = 4 << 20
"""Bytes of a file after which a child has the kernel write them to the disk (server.h, REDIS_AUTOSYNC_BYTES)."""
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
    assert found.functions == ([dataset.FUNCTION] if cell.version >= (7,) else [])


def test_what_a_child_saves_of_a_pending_entry_is_what_was_claimed(cell: CellSpec, start_guest: StartGuest) -> None:
    if cell.version < (5,):
        pytest.skip("streams came with 5.0")
    guest = start_guest(options=server.OPTIONS)
    claimed = Pending((1, 2), deliveries=70_000, delivered=1_500_000_000_123)
    with guest.client() as client:
        client.command("XADD", "stream", "1-2", "field", "value")
        client.command("XGROUP", "CREATE", "stream", "group", "0")
        client.command("XREADGROUP", "GROUP", "group", "me", "STREAMS", "stream", ">")
        how = ("TIME", claimed.delivered, "RETRYCOUNT", claimed.deliveries, "JUSTID")
        assert client.command("XCLAIM", "stream", "group", "me", 0, "1-2", *how) == [b"1-2"]
    value = rdb.read(server.saved_by_a_child(guest)).entries[Key(0, b"stream")].value
    assert isinstance(value, Stream)
    (saved,) = value.groups[b"group"].pending[b"me"]
    assert (saved, saved.delivered) == (claimed, claimed.delivered)


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
    if cell.version < (2, 8, 18):
        pytest.skip("a transfer without a file came with 2.8.18")
    options = [*server.OPTIONS, "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]
    primary = start_guest(options=options)
    server.write(primary, family)
    replica = start_guest(target=READER, options=options)
    link.join(replica, primary)
    assert_stored(replica, cell, family)
    with pytest.raises((FileNotFoundError, RefusedError)):
        primary.read("dump.rdb")


def test_what_a_child_saves_is_synchronised_meanwhile(cell: CellSpec, start_guest: StartGuest) -> None:
    """From the second piece on, the child also waits for the one before: three whole ones take every such call."""
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
    expected = server.without_times(dataset.expected(cell.version, family), cell.version)
    lines = differences(expected, server.snapshot(reader))
    assert not lines, places.message_of(lines)
