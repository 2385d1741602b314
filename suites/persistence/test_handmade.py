"""The target loads or refuses files that no current server writes as the native build does, with the same message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.core.target_model import ORACLE, Endianness
from harness.protocol.resp import Client
from harness.run.server_process import StartError
from suites._shared.formats import rdb
from suites._shared.formats.handmade import FILES
from suites._shared.formats.old_files import PORTABLE_TIMES, VERSIONS, old_file
from suites._shared.keyspace import server
from suites._shared.keyspace.values import Key, KeyEntry, Text, differences
from suites._shared.needs import require, skip_in_short_tiers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites.persistence.conftest import Written

MINUTE = 60_000
QUICK = {PORTABLE_TIMES - 1, PORTABLE_TIMES}
"""The versions of old files in the tier quick: what differs is the byte order of times."""
OPTIONS = [*server.OPTIONS, "--maxmemory-policy", "allkeys-lru"]


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_a_file_made_by_hand_is_taken_as_on_this_machine(
    content: bytes, start_guest: StartGuest, cell: CellSpec
) -> None:
    require(cell, "option sanitize-dump-payload")
    skip_in_short_tiers(cell, "it starts two servers for each file: only in the tiers full and thorough")
    native, guest = (taken(start_guest, target, content) for target in (ORACLE, ""))
    if isinstance(native, str) or isinstance(guest, str):
        assert guest == native
        return
    assert differences(native, guest) == []


def taken(start_guest: StartGuest, target: str, content: bytes) -> dict[Key, KeyEntry] | str:
    """The data that a server loads from a file, or the message with which it refuses the file."""
    try:
        guest = start_guest(target=target, options=OPTIONS, files={"dump.rdb": content}, may_refuse=True)
    except StartError as error:
        return str(error)
    return server.snapshot(guest)


@pytest.mark.parametrize("writer_order", Endianness, ids=[f"{one.value}-endian" for one in Endianness])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_of_an_old_version_is_loaded_in_either_byte_order(
    version: int,
    writer_order: Endianness,
    start_guest: StartGuest,
    cell: CellSpec,
    written: Callable[[str], Written],
) -> None:
    """A machine of the other byte order takes old times for others, which are known, and the rest for what it is."""
    if version not in QUICK:
        skip_in_short_tiers(cell, f"version {version}: only in the tiers full and thorough")
    own_version = rdb.version_of(written(cell.runner.target.name).rdb)
    if version > own_version:
        pytest.skip(f"the server's own files have version {own_version}")
    content, entries = old_file(version, writer_order, cell.runner.target.endianness)
    check_entries(start_guest(options=server.OPTIONS, files={"dump.rdb": content}), entries)


@pytest.mark.parametrize("writer_order", Endianness, ids=[f"{one.value}-endian" for one in Endianness])
@pytest.mark.parametrize("version", sorted(QUICK))
def test_an_append_only_file_that_begins_with_an_old_file_is_loaded_in_either_byte_order(
    version: int, writer_order: Endianness, start_guest: StartGuest, cell: CellSpec
) -> None:
    """A rewritten append-only file begins with an RDB file since 4.0, which wrote version 8."""
    skip_in_short_tiers(cell, "it starts a server for each file: only in the tiers full and thorough")
    require(cell, "option aof-use-rdb-preamble")
    if version == PORTABLE_TIMES and cell.version < (5,):
        pytest.skip("version 9 came with 5.0")
    content, entries = old_file(version, writer_order, cell.runner.target.endianness)
    added = Client.pack([("SELECT", "0"), ("SET", "added", "value")])
    options = [*server.OPTIONS, "--appendonly", "yes"]
    guest = start_guest(options=options, files={"appendonly.aof": content + added})
    check_entries(guest, entries | {Key(0, b"added"): KeyEntry(Text(b"value"))})


def check_entries(guest: Guest, entries: Mapping[Key, KeyEntry]) -> None:
    """Compare a server's keys with those of a file, and their times to live, which some releases tell in no other
    way.
    """
    lines = differences(server.without_times(dict(entries), guest), server.snapshot(guest))
    assert not lines, f"{len(lines)} keys differ: " + "; ".join(lines[:5])
    with guest.client() as client:
        for key, entry in entries.items():
            client.command("SELECT", key.database)
            left, now = (client.command(*words) for words in (("PTTL", key.name), ("TIME",)))
            expires = -1 if entry.expires is None else entry.expires - int(now[0]) * 1000  # type: ignore[index, arg-type]
            assert abs(left - expires) <= (0 if entry.expires is None else MINUTE), f"{key}: {left!r} ms are left"  # type: ignore[operator]
