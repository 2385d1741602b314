"""Primaries and replicas of different machines with offsets beyond 2^32: failovers, WAIT, and chains of replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hiredis
import pytest

from suites._shared import link
from suites._shared.formats import places
from suites._shared.keyspace import dataset, server
from suites._shared.keyspace.values import KeyEntry, differences
from suites.life.linked_servers import OFFSET, OPTIONS, ROLES, LinkedServers, await_swapped, failover_state, follow

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from suites._shared.ports import Ports

BRIEF_MILLISECONDS = 300
"""A time limit that a test waits for."""
LONG_MILLISECONDS = 600_000


@pytest.mark.parametrize("role", ROLES)
def test_a_failover_hands_the_stream_over(
    companion: str, role: str, cell: CellSpec, family: str, start_guest: StartGuest, ports: Ports
) -> None:
    linked = LinkedServers(start_guest, ports, cell, companion, role)
    primary, replica = linked.primary, linked.replica
    server.write(primary, family)
    link.await_in_step(replica, primary)
    linked.assert_same(family)
    words = ("FAILOVER", "TO", "127.0.0.1", linked.replica_port, "TIMEOUT", LONG_MILLISECONDS)
    assert linked.ask(*words) == b"OK"
    await_swapped(primary, replica)
    with server.client(replica) as client:
        client.pipeline([("SET", "integer:0", 1), ("SET", "integer:0", 0)])
    link.await_in_step(primary, replica)
    linked.assert_same(family)
    # The former primary continues at its offset.
    assert link.info(replica, "stats")["sync_full"] == "0"
    assert int(link.info(replica, "replication")["second_repl_offset"]) > 1 << 32


@pytest.mark.parametrize("role", ROLES)
def test_a_failover_to_a_silent_replica_is_aborted_or_forced(
    companion: str, role: str, cell: CellSpec, start_guest: StartGuest, ports: Ports
) -> None:
    linked = LinkedServers(start_guest, ports, cell, companion, role)
    primary, replica = linked.primary, linked.replica
    to = ("FAILOVER", "TO", "127.0.0.1", linked.replica_port)
    with replica.suspended():
        linked.ask("SET", "k", dataset.noise(1000))
        linked.ask("FAILOVER")
        assert failover_state(primary) == "waiting-for-sync"
        assert linked.ask("FAILOVER", "ABORT") == b"OK"
        assert linked.ask(*to, "TIMEOUT", BRIEF_MILLISECONDS) == b"OK"
        link.await_that(lambda: failover_state(primary) == "no-failover", [primary], "the failover's time limit")
        assert linked.ask("INCR", "counter") == 1
        assert linked.ask(*to, "FORCE", "TIMEOUT", BRIEF_MILLISECONDS) == b"OK"
        link.await_that(lambda: failover_state(primary) == "failover-in-progress", [primary], "a forced failover")
    await_swapped(primary, replica)
    link.await_in_step(primary, replica)
    assert differences(server.snapshot(replica), server.snapshot(primary)) == []


@pytest.mark.parametrize("role", ROLES)
def test_waiting_ends_when_the_replica_has_the_offset(
    companion: str, role: str, cell: CellSpec, start_guest: StartGuest, ports: Ports
) -> None:
    writes_files = not cell.lacks("command waitaof")
    settings = {"appendonly": "yes", "appendfsync": "always"} if writes_files else {}
    linked = LinkedServers(start_guest, ports, cell, companion, role)
    primary, replica = linked.primary, linked.replica
    for one in (primary, replica):
        with server.client(one) as client:
            for setting in settings.items():
                client.command("CONFIG", "SET", *setting)
    with server.client(primary) as client:
        for number in range(20):
            client.command("SET", number, dataset.noise(100))
            assert client.command("WAIT", 1, LONG_MILLISECONDS) == 1
            with server.client(replica) as reader:
                assert reader.command("GET", number) == dataset.noise(100)
        assert client.command("WAIT", 2, BRIEF_MILLISECONDS) == 1
        assert int(link.info(primary, "replication")["master_repl_offset"]) > 1 << 32
        if writes_files:
            assert client.command("WAITAOF", 1, 1, LONG_MILLISECONDS) == [1, 1]
        with replica.suspended():
            client.command("SET", "k", "v")
            assert client.command("WAIT", 1, BRIEF_MILLISECONDS) == 0
            if writes_files:
                assert client.command("WAITAOF", 1, 1, BRIEF_MILLISECONDS) == [1, 0]
        assert client.command("WAIT", 1, LONG_MILLISECONDS) == 1


def test_a_replica_of_a_replica_follows_and_stays_when_the_middle_one_is_promoted(
    companion: str, cell: CellSpec, family: str, start_guest: StartGuest, ports: Ports
) -> None:
    linked = LinkedServers(start_guest, ports, cell, companion, "primary")
    middle = linked.replica
    last = start_guest(options=OPTIONS)
    follow(last, linked.replica_port)
    link.await_in_step(last, middle)
    server.write(linked.primary, family)
    link.await_in_step(middle, linked.primary)
    link.await_in_step(last, middle)
    before = [int(link.info(one, "stats")["sync_partial_ok"]) for one in (linked.primary, middle)]
    for one in (middle, last):
        link.cut(one)
    linked.ask("SET", "integer:0", 0)
    link.await_in_step(middle, linked.primary)
    link.await_in_step(last, middle)
    after = [int(link.info(one, "stats")["sync_partial_ok"]) for one in (linked.primary, middle)]
    assert all(now > then for then, now in zip(before, after, strict=True)), f"{after} after {before}"
    full = link.info(middle, "stats")["sync_full"]
    with server.client(middle) as client:
        client.command("REPLICAOF", "NO", "ONE")
        client.command("SET", "integer:0", 0)
    link.await_in_step(last, middle)
    assert link.info(middle, "stats")["sync_full"] == full
    expected = server.expected(cell, family)
    places.check_copies(expected, server.snapshot(last), middle, last)
    assert int(link.info(last, "replication")["master_repl_offset"]) > 1 << 32


@pytest.mark.parametrize("role", ROLES)
def test_roles_tell_the_offset_beyond_32_bits(
    companion: str, role: str, cell: CellSpec, start_guest: StartGuest, ports: Ports
) -> None:
    linked = LinkedServers(start_guest, ports, cell, companion, role)
    linked.ask("SET", "k", dataset.noise(1000))
    link.await_in_step(linked.replica, linked.primary)
    offset = int(link.info(linked.primary, "replication")["master_repl_offset"])
    assert offset > 1 << 32
    for guest in (linked.primary, linked.replica):
        assert OFFSET < int(link.info(guest, "replication")["repl_backlog_first_byte_offset"]) <= offset, guest.name
    with server.client(linked.replica) as client:
        assert client.command("ROLE") == [b"slave", b"127.0.0.1", linked.port, b"connected", offset]

    def acknowledged() -> bool:
        return bool(linked.ask("ROLE")[2][0][2] == b"%d" % offset)

    link.await_that(acknowledged, [linked.primary], "the replica to acknowledge the offset")
    assert linked.ask("ROLE") == [b"master", offset, [[b"127.0.0.1", b"%d" % linked.replica_port, b"%d" % offset]]]
    with server.client(linked.replica) as client:
        nobody = ports.free()
        client.command("REPLICAOF", "127.0.0.1", nobody)
        reply: Any = client.command("ROLE")
        assert reply[:3] == [b"slave", b"127.0.0.1", nobody]
        assert (reply[3] in {b"connect", b"connecting"}, reply[4]) == (True, -1)


DATABASES = [0, 1, 31, 32, 33, 62, 63]
"""A replica records in 64 bits the databases in which its own keys may expire (expire.c)."""


def test_a_writable_replica_removes_its_own_keys_in_time(
    companion: str, cell: CellSpec, start_guest: StartGuest, ports: Ports
) -> None:
    linked = LinkedServers(
        start_guest, ports, cell, companion, "replica", "--databases", "64", "--replica-read-only", "no"
    )
    with server.client(linked.primary) as client:
        for database in DATABASES:
            client.pipeline([("SELECT", database), ("SET", "of the primary", "v", "PXAT", _in_an_hour(client))])
    link.await_in_step(linked.replica, linked.primary)
    with server.client(linked.replica) as client:
        for database in DATABASES:
            client.command("SELECT", database)
            for number in range(20):
                assert client.command("SET", number, "v", "PX", BRIEF_MILLISECONDS) == b"OK"
            client.pipeline([("SET", "lasting", "v", "PX", LONG_MILLISECONDS), ("SET", "meanwhile", "v", "PX", 1)])
            client.command("PERSIST", "meanwhile")

        def sizes() -> list[Any]:
            return client.pipeline([words for one in DATABASES for words in (("SELECT", one), ("DBSIZE",))])[1::2]

        # No request touches the keys, so only the replica's own cycle can remove them.
        link.await_that(lambda: max(sizes()) <= 3, [linked.replica], "the keys to be removed")
        client.command("SELECT", DATABASES[-1])
        assert client.command("EXISTS", "of the primary", "lasting", 0) == 2


def _in_an_hour(client: Any) -> int:
    return (int(client.command("TIME")[0]) + 3600) * 1000


WORD = "secret"
SOON_MILLISECONDS = 60_000
"""How much later a migrated key may expire, before the target's slowdown."""


@pytest.mark.parametrize("role", ["source", "goal"])
def test_keys_that_migrate_arrive_as_they_were(
    companion: str, role: str, cell: CellSpec, family: str, start_guest: StartGuest, ports: Ports
) -> None:
    targets = ("", companion) if role == "source" else (companion, "")
    source = start_guest(target=targets[0], options=OPTIONS)
    goal, port = link.on_a_port(start_guest, ports, targets[1], *OPTIONS)
    server.write(source, family)
    expected = {key: entry for key, entry in dataset.expected(cell.version, family).items() if key.database == 0}
    names = [key.name for key in expected if key.name]
    first = names[::2]
    with server.client(source) as client, server.client(goal) as there:
        there.command("ACL", "SETUSER", "mover", "on", f">{WORD}", "~*", "+@all")
        there.command("CONFIG", "SET", "requirepass", WORD)

        def migrate(*rest: Any, key: Any = b"", database: int = 0, to: int = port) -> Any:
            return client.pipeline([("MIGRATE", "127.0.0.1", to, key, database, LONG_MILLISECONDS, *rest)])[0]

        def refused(reply: Any, *words: str) -> bool:
            return isinstance(reply, hiredis.ReplyError) and any(word in str(reply) for word in words)

        assert refused(migrate(key=first[0]), "NOAUTH")
        assert refused(migrate("AUTH", "wrong", key=first[0]), "WRONGPASS", "invalid")
        assert refused(migrate(key=first[0], to=ports.free()), "IOERR")
        assert client.command("DBSIZE") == len(expected)
        assert migrate("AUTH", WORD, key="no such key") == b"NOKEY"
        assert migrate("COPY", "AUTH", WORD, "KEYS", *first, "no such key") == b"OK"
        assert client.command("EXISTS", *first) == len(first)
        assert refused(migrate("AUTH2", "mover", WORD, "KEYS", *first), "BUSYKEY")
        assert migrate("REPLACE", "AUTH2", "mover", WORD, "KEYS", *names) == b"OK"
        assert client.command("EXISTS", *names) == 0
        client.command("SET", "moved", dataset.noise(70_000))
        client.command("PEXPIRE", "moved", LONG_MILLISECONDS)
        assert migrate("AUTH", WORD, key="moved", database=7) == b"OK"
        there.command("SELECT", 7)
        assert there.command("GET", "moved") == dataset.noise(70_000)
        left: Any = there.command("PTTL", "moved")
        assert 0 < left <= LONG_MILLISECONDS
        there.pipeline([("FLUSHDB",), ("CONFIG", "SET", "requirepass", "")])
    found = server.snapshot(goal)
    due = {key: entry for key, entry in expected.items() if key.name}
    lines = differences(
        {key: KeyEntry(one.value) for key, one in due.items()}, {key: KeyEntry(one.value) for key, one in found.items()}
    )
    assert not lines, "; ".join(lines[:3])
    # MIGRATE sends the remaining time to live, not the time at which a key expires.
    limit = goal.runner.target.whole_deadline_seconds(SOON_MILLISECONDS)
    for key, entry in due.items():
        times = entry.expires, found[key].expires
        assert times == (None, None) or 0 <= int(times[1] or 0) - int(times[0] or 0) < limit, f"{key}: {times}"
