"""A replica has its primary's data on every pair of machines, even after an interruption."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from suites._shared import link
from suites._shared.formats import places
from suites._shared.keyspace import dataset, server
from suites._shared.keyspace.values import Pending, differences
from suites._shared.needs import require

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest

OPTIONS = [*server.OPTIONS, "--repl-diskless-sync-delay", "0", "--repl-backlog-size", "4mb"]
ROLES = ["primary", "replica"]
"""The role of the cell's own target; the peer has the other role."""
TRANSFERS = {
    "by a file": ["--repl-diskless-sync", "no"],
    "by a stream": ["--repl-diskless-sync", "yes", "--repl-diskless-load", "swapdb"],
    "by a channel of its own": ["--repl-diskless-sync", "yes"],
}
CHANNELS = {
    "redis": ("repl-rdb-channel", b"(rdb-channel)"),
    "valkey": ("dual-channel-replication-enabled", b"dual-channel"),
}
"""Family -> the setting that gives the file a connection of its own, and a text that the primary then logs."""
KEYS = 2000
"""Number of keys of a thousand bytes: twice as many as the memory limit of the eviction test allows."""
BATCH = 100


def pair(start_guest: StartGuest, cell: CellSpec, peer: str, role: str, *options: str) -> tuple[Guest, Guest]:
    """Primary and replica."""
    everything = [*(server.OPTIONS if cell.lacks("option repl-diskless-sync") else OPTIONS), *options]
    own = start_guest(options=everything)
    other = start_guest(target=peer, options=everything)
    return (own, other) if role == "primary" else (other, own)


def assert_equal(primary: Guest, replica: Guest, cell: CellSpec, family: str) -> None:
    """Assert that both servers have the data set, compared by value."""
    expected = server.expected(cell, family)
    snapshots = [server.snapshot(guest) for guest in (primary, replica)]
    lines = differences(expected, snapshots[0])
    assert not lines, f"primary: {len(lines)} keys differ: " + "; ".join(lines[:5])
    places.check_copies(expected, snapshots[1], primary, replica)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("transfer", TRANSFERS)
def test_a_full_synchronisation_carries_the_whole_data_set(
    companion: str, transfer: str, role: str, cell: CellSpec, family: str, start_guest: StartGuest
) -> None:
    if transfer == "by a stream":
        require(cell, "option repl-diskless-load")
    own_channel = transfer == "by a channel of its own"
    setting, logged = CHANNELS[family]
    if own_channel:
        require(cell, f"option {setting}")
    options = [] if cell.lacks("option repl-diskless-sync") else TRANSFERS[transfer]
    if has_channel := not cell.lacks(f"option {setting}"):
        options = [*options, f"--{setting}", "yes" if own_channel else "no"]
    primary, replica = pair(start_guest, cell, companion, role, *options)
    server.write(primary, family)
    link.join(replica, primary)
    assert_equal(primary, replica, cell, family)
    if has_channel:
        used = logged in primary.evidence.log.read_bytes()
        assert used == own_channel, f"the primary sent it by {'a channel of its own' if used else 'the only channel'}"
    if not cell.lacks("command function"):
        assert server.functions(replica) == [dataset.FUNCTION]


@pytest.mark.parametrize("role", ROLES)
def test_commands_arrive_as_they_are_executed_and_after_a_break_in_the_link(
    companion: str, role: str, cell: CellSpec, family: str, start_guest: StartGuest
) -> None:
    primary, replica = pair(start_guest, cell, companion, role)
    link.join(replica, primary)
    server.write(primary, family)
    link.await_in_step(replica, primary)
    assert_equal(primary, replica, cell, family)
    if cell.lacks("form CLIENT KILL TYPE"):
        return
    partial = int(link.info(primary, "stats")["sync_partial_ok"])
    link.cut(replica)
    with server.client(primary) as client:
        client.pipeline([("DEL", "integer:0"), ("SETBIT", "bits", 77, 1), ("INCRBYFLOAT", "float", "0.1")])
        client.pipeline([("SET", "integer:0", 0), ("SETBIT", "bits", 77, 0), ("DEL", "float")])
        # The string keeps the length that its last set bit required.
        client.pipeline([("DEL", "bits"), ("SETBIT", "bits", 32, 1)])
    link.await_in_step(replica, primary)
    link.await_that(
        lambda: int(link.info(primary, "stats")["sync_partial_ok"]) > partial,
        [primary, replica],
        "a partial synchronisation",
    )
    assert_equal(primary, replica, cell, family)


@pytest.mark.parametrize("role", ROLES)
def test_a_replica_that_comes_back_from_its_file_goes_on_where_it_was(
    companion: str, role: str, cell: CellSpec, family: str, start_guest: StartGuest
) -> None:
    """The file's auxiliary fields contain the primary's id and offset, which avoid a full synchronisation."""
    require(cell, "info master_replid")
    primary, replica = pair(start_guest, cell, companion, role)
    link.join(replica, primary)
    server.write(primary, family)
    with server.client(primary) as client:
        client.pipeline([("SELECT", 9), ("SET", "apart", "before")])
    link.await_in_step(replica, primary)
    content = server.saved(replica)
    with server.client(primary) as client:
        # The stream selects a database only when it changes, so the file must contain the last one.
        client.pipeline([("SELECT", 9), ("SET", "apart", "after")])
        client.pipeline([("SELECT", 0), ("SET", "integer:0", 1), ("SET", "integer:0", 0)])
    before = link.info(primary, "stats")
    there = replica.runner.target.name
    host, port = primary.access.endpoint
    follow = ["--slaveof", str(host), str(port)]
    again = start_guest(target=there, options=[*OPTIONS, *follow], files={"dump.rdb": content})
    link.await_in_step(again, primary)
    with server.client(again) as client:
        assert client.pipeline([("SELECT", 9), ("GET", "apart")]) == [b"OK", b"after"]
    with server.client(primary) as client:
        client.pipeline([("SELECT", 9), ("DEL", "apart")])
    link.await_in_step(again, primary)
    assert_equal(primary, again, cell, family)
    after = link.info(primary, "stats")
    assert int(after["sync_partial_ok"]) > int(before["sync_partial_ok"]), "the file's offset was not accepted"


@pytest.mark.parametrize("role", ROLES)
def test_what_a_primary_evicts_its_replica_forgets(
    companion: str, role: str, cell: CellSpec, start_guest: StartGuest
) -> None:
    # The backlog also uses memory, and grows with the writes.
    primary, replica = pair(start_guest, cell, companion, role, "--repl-backlog-size", "16kb")
    link.join(replica, primary)
    with server.client(primary) as client:
        client.command("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
        # A server's own memory differs between machines; the limit adds a fixed amount for keys.
        used = int(link.info(primary, "memory")["used_memory"])
        client.command("CONFIG", "SET", "maxmemory", used + 1_000_000)
        content = dataset.noise(1000)
        for first in range(0, KEYS, BATCH):
            client.pipeline([("SET", f"key:{number}", content) for number in range(first, first + BATCH)])
        client.command("CONFIG", "SET", "maxmemory", 0)
    link.await_in_step(replica, primary)
    evicted = int(link.info(primary, "stats")["evicted_keys"])
    on_primary, on_replica = server.snapshot(primary), server.snapshot(replica)
    assert differences(on_primary, on_replica) == []
    assert 0 < evicted < KEYS
    assert len(on_primary) == KEYS - evicted


@pytest.mark.parametrize("role", ROLES)
def test_what_a_script_writes_and_what_expires_is_the_same_on_both(
    companion: str, role: str, cell: CellSpec, start_guest: StartGuest
) -> None:
    primary, replica = pair(start_guest, cell, companion, role)
    link.join(replica, primary)
    script = (
        "redis.call('SET', 'packed', cmsgpack.pack({1, -1, 255, 65536, -70000, 4294967296, 0.5, 'text'})) "
        "redis.call('SET', 'structure', struct.pack('>I4<I8i2', 1, 2, -3)) "
        "redis.call('SET', 'document', cjson.encode({1, 2.5, 'text'})) return redis.call('DBSIZE')"
    )
    with server.client(primary) as client:
        assert client.command("EVAL", script, 0) == 3
        client.command("SET", "soon", "gone")
        client.command("PEXPIRE", "soon", 1)
        link.await_that(lambda: client.command("EXISTS", "soon") == 0, [primary], "a key to expire")
    link.await_in_step(replica, primary)
    on_primary, on_replica = server.snapshot(primary), server.snapshot(replica)
    assert differences(on_primary, on_replica) == []
    packed = {key.name: entry.value for key, entry in on_replica.items()}
    assert packed[b"structure"].content == bytes.fromhex("00000001 0200000000000000 fdff")  # type: ignore[union-attr]
    assert packed[b"packed"].content == (  # type: ignore[union-attr]
        bytes.fromhex("98 01 ff ccff ce00010000 d2fffeee90 cf0000000100000000") + PACKED_TAIL
    )
    assert b"soon" not in packed


# One half as a 32-bit float, which is exact, then a string of four bytes (the MessagePack specification).
PACKED_TAIL = bytes.fromhex("ca3f000000 a4") + b"text"


@pytest.mark.parametrize("role", ROLES)
def test_what_a_group_remembers_arrives(companion: str, role: str, cell: CellSpec, start_guest: StartGuest) -> None:
    """A primary replicates groups with commands of its own. A real stream would take years to reach these numbers."""
    require(cell, "form XSETID ENTRIESADDED")
    primary, replica = pair(start_guest, cell, companion, role)
    link.join(replica, primary)
    read, deliveries = 5_000_000_000_123, 70_000
    with server.client(primary) as client:
        client.command("XADD", "stream", f"{1 << 40}-{1 << 33}", "field", "value")
        client.command("XSETID", "stream", f"{1 << 40}-{1 << 33}", "ENTRIESADDED", read + 1)
        client.command("XGROUP", "CREATE", "stream", "asked", 0)
        client.command("XGROUP", "CREATE", "stream", "reading", 0, "ENTRIESREAD", read)
        client.command("XREADGROUP", "GROUP", "asked", "me", "STREAMS", "stream", ">")
        how = ("TIME", 1_500_000_000_123, "RETRYCOUNT", deliveries)
        client.command("XCLAIM", "stream", "asked", "me", 0, f"{1 << 40}-{1 << 33}", *how)
        client.command("XREADGROUP", "GROUP", "reading", "me", "NOACK", "STREAMS", "stream", ">")
    link.await_in_step(replica, primary)
    for guest in (primary, replica):
        with server.client(guest) as client:
            groups = server.stream(client, b"stream").groups
            idle: Any = client.command("XPENDING", "stream", "asked", "-", "+", 1)
        assert groups[b"reading"].read == read + 1, guest.name
        (pending,) = groups[b"asked"].pending[b"me"]
        assert pending == Pending((1 << 40, 1 << 33), deliveries), guest.name
        # More than a year ago.
        assert idle[0][2] > 366 * 86_400_000


def test_a_file_that_was_for_a_replica_alone_is_removed(
    companion: str, family: str, cell: CellSpec, start_guest: StartGuest
) -> None:
    """A server without persistence does not keep the file of a synchronisation either."""
    require(cell, "option rdb-del-sync-files")
    primary = start_guest(options=[*OPTIONS, "--rdb-del-sync-files", "yes", "--repl-diskless-sync", "no"])
    server.write(primary, family)
    replica = start_guest(target=companion, options=OPTIONS)
    link.join(replica, primary)
    file = primary.folder / "dump.rdb"
    link.await_that(lambda: not file.exists(), [primary, replica], "the file to be removed")
    # With a save point the file is also the server's own snapshot.
    with server.client(primary) as client:
        client.command("CONFIG", "SET", "save", "3600 1000000")
    link.cut(replica)
    other = start_guest(target=companion, options=OPTIONS)
    link.join(other, primary)
    assert file.exists()
