"""Nodes of different byte order and width agree on their identities, their slots and their messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import hiredis
import pytest

from suites._shared import cluster_nodes as nodes
from suites._shared.formats.handmade import of_primary
from suites._shared.keyspace import dataset
from suites._shared.link import await_that
from suites._shared.needs import require

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.run.cell_spec import CellSpec
    from suites._shared.cluster_nodes import Node

HALF = nodes.SLOTS // 2
EPOCH = (1 << 40) + 3
"""A configuration epoch that needs more than 32 bits."""
OFFSET = 1 << 32
"""An offset in a primary's replication stream that needs more than 32 bits."""


@pytest.fixture
def pair(companion: str, start_node: Callable[..., Node]) -> Callable[[], list[Node]]:
    """A node on the cell's target and one on the peer, in one cluster. The first has the lower half of the slots."""

    def made() -> list[Node]:
        both = [start_node(), start_node(target=companion)]
        nodes.join(both)
        return both

    return made


def test_the_nodes_agree_on_names_slots_and_epochs(pair: Callable[[], list[Node]]) -> None:
    both = pair()
    for node in both:
        state, view = node.state(), node.view()
        assert (state["cluster_slots_assigned"], state["cluster_known_nodes"]) == (str(nodes.SLOTS), "2")
        if state["cluster_current_epoch"] != "2":
            (other,) = (one for one in both if one is not node)
            raise nodes.misread("currentEpoch", 2, int(state["cluster_current_epoch"]), other, node)
        for number, other in enumerate(both):
            words = view[other.identifier]
            assert words[1].startswith(f"127.0.0.1:{other.port}"), words
            # The two times, both in milliseconds, must be plausible.
            assert words[6] == str(number + 1), f"configuration epoch of {other.identifier}: {words}"
            assert words[8] == ("0-8191" if number == 0 else "8192-16383")
            assert 0 <= int(words[5]) - int(words[4]) < 60_000 or words[4] == "0" or "myself" in words[2]


def test_keys_live_where_their_slot_does_and_others_are_told(pair: Callable[[], list[Node]]) -> None:
    first, second = pair()
    low, high = nodes.key_in(0, HALF - 1), nodes.key_in(HALF, nodes.SLOTS - 1)
    for node, mine, other in ((first, low, (high, second)), (second, high, (low, first))):
        assert node.ask("SET", mine, "here") == b"OK"
        assert node.ask("CLUSTER", "KEYSLOT", mine) == nodes.slot_of(mine)
        key, there = other
        with pytest.raises(hiredis.ReplyError, match=f"MOVED {nodes.slot_of(key)} 127.0.0.1:{there.port}"):
            node.ask("GET", key)


@pytest.mark.parametrize("upwards", [True, False], ids=["from the first", "from the second"])
@pytest.mark.parametrize("atomic", [False, True], ids=["key by key", "at once"])
def test_a_slot_and_its_keys_move_to_the_other_machine(
    pair: Callable[[], list[Node]], atomic: bool, upwards: bool, cell: CellSpec
) -> None:
    if atomic:
        require(cell, "command cluster|migrateslots")
    first, second = pair()
    source, goal = (first, second) if upwards else (second, first)
    slot = 5 if upwards else nodes.SLOTS - 5
    tag = nodes.key_in(slot, slot).decode()
    values = {f"{{{tag}}}:{length}".encode(): dataset.noise(length) for length in (0, 1, 44, 300, 16384)}
    for name, content in values.items():
        source.ask("SET", name, content)
    expires = dataset.EXPIRIES[0]
    source.ask("PEXPIREAT", f"{{{tag}}}:300", expires)
    assert source.ask("CLUSTER", "COUNTKEYSINSLOT", slot) == len(values)
    assert set(source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100)) == set(values)
    if atomic:
        nodes.move_at_once(slot, source, goal)
    else:
        nodes.move_key_by_key(slot, values, source, goal)
    nodes.await_agreement([first, second])
    assert {name: goal.ask("GET", name) for name in values} == values
    # The remaining milliseconds must be right to the second: all nodes use one machine's clock.
    seconds, microseconds = (int(word) for word in goal.ask("TIME"))
    left = goal.ask("PTTL", f"{{{tag}}}:300")
    assert abs(seconds * 1000 + microseconds // 1000 + left - expires) < 60_000


def test_hostnames_of_every_length_cross_the_bus(pair: Callable[[], list[Node]], cell: CellSpec) -> None:
    """Hostnames follow a ping's gossip as extensions, each padded to eight bytes (cluster.h, clusterMsgPingExt)."""
    require(cell, "option cluster-announce-hostname")
    both = pair()
    for length in (1, 7, 8, 9, 200):
        names = {node.identifier: f"{'ab'[number]}" * length for number, node in enumerate(both)}
        for node in both:
            node.ask("CONFIG", "SET", "cluster-announce-hostname", names[node.identifier])

        def every_view_has_them(names: dict[str, str] = names) -> bool:
            views = [node.view() for node in both]
            return all(view[one][1].split(",")[1:2] == [name] for view in views for one, name in names.items())

        await_that(every_view_has_them, [node.guest for node in both], f"hostnames of {length} characters to be known")


def test_messages_cross_the_bus_byte_by_byte(pair: Callable[[], list[Node]], cell: CellSpec) -> None:
    first, second = pair()
    for publisher, subscriber in ((first, second), (second, first)):
        guest = subscriber.guest
        with guest.client() as client:
            channel = bytes(range(256))
            client.command("SUBSCRIBE", channel)
            for length in (0, 1, 7, 256, 5000):
                publisher.ask("PUBLISH", channel, dataset.noise(length))
                assert client.receive() == [b"message", channel, dataset.noise(length)], f"a message of {length} bytes"
            if not cell.lacks("command ssubscribe"):
                # Only the owners of a sharded channel's slot receive its messages, so both ends belong to the slot's
                # owner here.
                mine = nodes.key_in(*((0, HALF - 1) if subscriber is first else (HALF, nodes.SLOTS - 1)), "channel")
                client.command("UNSUBSCRIBE", channel)
                client.command("SSUBSCRIBE", mine)
                subscriber.ask("SPUBLISH", mine, "sharded")
                assert client.receive() == [b"smessage", mine, b"sharded"]


def test_epochs_of_more_than_32_bits_are_the_same_everywhere(companion: str, start_node: Callable[..., Node]) -> None:
    first, second = start_node(), start_node(target=companion)
    first.ask("CLUSTER", "SET-CONFIG-EPOCH", EPOCH)
    first.ask("CLUSTER", "ADDSLOTS", *range(HALF))
    second.ask("CLUSTER", "ADDSLOTS", *range(HALF, nodes.SLOTS))
    first.ask("CLUSTER", "MEET", "127.0.0.1", second.port)
    nodes.await_agreement([first, second])
    epochs = [
        ("configEpoch", first.view()[first.identifier][6], second.view()[first.identifier][6]),
        ("currentEpoch", first.state()["cluster_current_epoch"], second.state()["cluster_current_epoch"]),
    ]
    for field, sent, received in epochs:
        assert sent == str(EPOCH), f"{field} of the node that was given {EPOCH}: {sent}"
        if received != sent:
            raise nodes.misread(field, int(sent), int(received), first, second)


@pytest.mark.parametrize("role", ["primary", "replica"])
def test_a_replica_takes_over_when_it_is_told_to(
    companion: str, role: str, start_node: Callable[..., Node], cell: CellSpec
) -> None:
    # Since 7.0 a primary continues at the offset in its file, which only a start with a file shows. Before a failover
    # the replica waits for the primary's offset.
    files = {"dump.rdb": of_primary(OFFSET)} if cell.version >= (7,) else None
    own = start_node(files=files if role == "primary" else None)
    other = start_node(target=companion, files=None if role == "primary" else files)
    primary, replica = (own, other) if role == "primary" else (other, own)
    primary.ask("CLUSTER", "ADDSLOTS", *range(nodes.SLOTS))
    primary.ask("CLUSTER", "MEET", "127.0.0.1", replica.port)
    nodes.await_agreement([own, other])
    for length in (0, 31, 300, 4096):
        primary.ask("SET", f"noise:{length}", dataset.noise(length))
    guests = [primary.guest, replica.guest]
    await_that(lambda: primary.identifier in replica.view(), guests, "the replica to know its primary")
    replica.ask("CLUSTER", "REPLICATE", primary.identifier)
    await_that(lambda: nodes.link_state(replica) == "up", guests, "the replica's link")
    # A primary ignores a takeover request from an unknown node, and no node repeats the request.
    known = "the primary to know its replica"
    await_that(lambda: primary.view()[replica.identifier][3] == primary.identifier, guests, known)
    if cell.version >= (7,):
        wait = "both nodes to report the same replication offsets"
        await_that(lambda: 0 not in (seen := replicated(own)).values() and seen == replicated(other), guests, wait)
        assert min(replicated(own).values()) > OFFSET
    replica.ask("CLUSTER", "FAILOVER")
    await_that(lambda: "slave" in primary.view()[primary.identifier][2], guests, "the failover")
    nodes.await_agreement([own, other])
    for length in (0, 31, 300, 4096):
        assert replica.ask("GET", f"noise:{length}") == dataset.noise(length)


def replicated(viewer: Node) -> dict[bytes, int]:
    """Node -> its replication offset, according to `viewer`. Since 7.0 nodes learn other nodes' offsets on the bus."""
    shards = (nodes.fields(shard) for shard in viewer.ask("CLUSTER", "SHARDS"))
    members = (nodes.fields(one) for shard in shards for one in shard["nodes"])
    return {bytes(one["id"]): int(one["replication-offset"]) for one in members}


def test_a_nodes_file_is_read_by_the_other_machine(companion: str, start_node: Callable[..., Node]) -> None:
    """nodes.conf is text whose numbers the servers format themselves."""
    writer = start_node(target=companion)
    writer.ask("CLUSTER", "SET-CONFIG-EPOCH", EPOCH)
    writer.ask("CLUSTER", "ADDSLOTS", *range(0, nodes.SLOTS, 2))
    # These epochs are greater than those of all nodes in the file.
    epochs = b"vars currentEpoch %d lastVoteEpoch %d\n" % (EPOCH + (1 << 41), EPOCH + (1 << 33))
    written = re.sub(rb"^vars .*\n", epochs, writer.guest.read("nodes.conf"), flags=re.MULTILINE)
    reader = start_node(files={"nodes.conf": written})
    assert reader.identifier == writer.identifier
    assert reader.state()["cluster_current_epoch"] == str(EPOCH + (1 << 41))
    assert reader.ask("CLUSTER", "SAVECONFIG") == b"OK"
    assert epochs in reader.guest.read("nodes.conf")
    mine = reader.view()[reader.identifier]
    assert mine[6] == str(EPOCH)
    assert len(mine[8:]) == nodes.SLOTS // 2
