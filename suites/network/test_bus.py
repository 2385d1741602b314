"""The test plays two nodes of a cluster. A server's packets contain the values that it was given, and it accepts those
in the test's packets. The bytes of all numbers differ, so that another byte order is another number.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from suites._shared.cluster_nodes import Node
from suites._shared.formats.handmade import of_primary
from suites._shared.link import await_that, on_a_port
from suites._shared.needs import require
from suites._shared.ports import BUS_DISTANCE
from suites.network import bus
from suites.network.bus import About, Listener, Packet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from suites._shared.ports import Ports

OWN_EPOCH, SECOND_EPOCH, NEWEST_EPOCH = 0x0102030405060708, 0x0203040506070809, 0x1112131415161718
OWN_OFFSET, OFFSET = 0x0000020304050607, 0x0000010203040506
OWN_SLOTS, FIRST_SLOTS, SECOND_SLOTS = {0, 5, 6, 7, 8, 300, 16383}, {1, 9, 1000, 1001}, {2, 700}
FIRST, SECOND = "a1" * 20, "b2" * 20
OWN_HOST, FIRST_HOST = "a-server-with-a-name.example", "first.example"
PATIENCE_SECONDS = 20.0
CLOCK_SECONDS = 600
"""Maximum difference between two current times: a byte-swapped time is years away."""


class PlayedNodes:
    """A server, and two nodes of its cluster that the test plays."""

    def __init__(self, server: Node, first: Listener, second: Listener, ports: tuple[int, int]) -> None:
        self.server = server
        self.first = first
        self.second = second
        self.ports = ports

    def of_first(self, kind: int, **changed: Any) -> Packet:
        """A packet of the first node, with an entry for the second one and its own host name."""
        other = About(SECOND, self.ports[1], self.ports[1] + BUS_DISTANCE)
        return Packet(
            kind=kind,
            sender=FIRST,
            port=self.ports[0],
            bus_port=self.ports[0] + BUS_DISTANCE,
            current_epoch=NEWEST_EPOCH,
            configuration_epoch=SECOND_EPOCH,
            offset=OFFSET,
            slots=frozenset(FIRST_SLOTS),
            entries=1,
            extensions=1,
            message_flags=bus.EXTENDED,
            body=bus.gossip_section([other]) + bus.host_name(FIRST_HOST),
        )._replace(**changed)

    def of_second(self, kind: int, **changed: Any) -> Packet:
        """A packet of the second node, without entries for other nodes."""
        port = self.ports[1]
        return Packet(
            kind=kind, sender=SECOND, port=port, bus_port=port + BUS_DISTANCE, slots=frozenset(SECOND_SLOTS)
        )._replace(**changed)

    def meet(self) -> Packet:
        """Have the server meet the first node, and return the packet with which it does."""
        self.server.ask("CLUSTER", "MEET", "127.0.0.1", self.ports[0])
        met = self.first.receive(bus.MEET, answer=self.of_first(bus.PONG))
        # From now on the server knows the sender, and reads whole packets.
        self.first.send(self.of_first(bus.PING))
        return met

    def await_line(self, name: str, *expected: tuple[int, str]) -> list[str]:
        """The words of a node's line in CLUSTER NODES, once those at the given places are as expected."""
        wanted = dict(expected)
        line: list[str] = []

        def is_so() -> bool:
            line[:] = self.server.view().get(name, [])
            return len(line) > max(wanted) and all(line[place] == word for place, word in wanted.items())

        with contextlib.suppress(TimeoutError):
            await_that(is_so, [self.server.guest], f"{name}'s line")
        assert {place: line[place] for place in wanted if place < len(line)} == wanted, f"CLUSTER NODES has {line}"
        return line


@pytest.fixture
def cluster(cell: CellSpec, start_guest: StartGuest, ports: Ports) -> Iterator[PlayedNodes]:
    """A server in cluster mode that has slots, an epoch and a host name, and knows no other node yet."""
    require(cell, "option cluster-announce-hostname")
    # A long time-out: the server must not suspect a node that is silent for a while.
    options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "60000"]
    options += ["--cluster-announce-hostname", OWN_HOST]
    guest, port = on_a_port(start_guest, ports, "", *options, files={"dump.rdb": of_primary(OWN_OFFSET)})
    server = Node(guest, port)
    server.ask("CLUSTER", "SET-CONFIG-EPOCH", OWN_EPOCH)
    server.ask("CLUSTER", "ADDSLOTS", *OWN_SLOTS)
    patience = cell.runner.target.deadline_seconds(PATIENCE_SECONDS)
    both = ports.free(), ports.free()
    with (
        Listener(both[0] + BUS_DISTANCE, guest, deadline_seconds=patience) as first,
        Listener(both[1] + BUS_DISTANCE, guest, deadline_seconds=patience) as second,
    ):
        yield PlayedNodes(server, first, second, both)


def test_a_packet_says_what_its_sender_was_told(cluster: PlayedNodes) -> None:
    met = cluster.meet()
    server = cluster.server
    assert met._replace(flags=0, entries=0, extensions=0, message_flags=0, body=b"") == Packet(
        kind=bus.MEET,
        sender=server.identifier,
        port=server.port,
        bus_port=server.port + BUS_DISTANCE,
        current_epoch=OWN_EPOCH,
        configuration_epoch=OWN_EPOCH,
        offset=OWN_OFFSET,
        slots=frozenset(OWN_SLOTS),
        flags=0,
    )
    assert met.flags & (bus.PRIMARY | bus.MYSELF) == bus.PRIMARY | bus.MYSELF
    answer = cluster.first.receive(bus.PONG)
    assert answer.current_epoch == NEWEST_EPOCH
    assert bus.extensions_of(answer)[bus.HOST_NAME].rstrip(b"\0").decode() == OWN_HOST


def test_gossip_says_what_its_sender_was_told(cluster: PlayedNodes) -> None:
    cluster.meet()
    packet = cluster.second.receive(bus.PING, answer=cluster.of_second(bus.PONG))
    ports = dict(zip((FIRST, SECOND), cluster.ports, strict=True))
    entries: list[About] = packet.gossip()

    def waits_for_the_first() -> bool:
        # A packet contains entries for random nodes, which may include its receiver.
        cluster.second.send(cluster.of_second(bus.PING))
        entries.extend(cluster.second.receive(bus.PONG).gossip())
        return any(about.name == FIRST and about.ping_sent for about in entries)

    # The server sends a PING every second, which the first node does not answer.
    await_that(waits_for_the_first, [cluster.server.guest], "gossip about a node that has not answered")
    for about in entries:
        port = ports[about.name]
        assert about._replace(flags=0, ping_sent=0, pong_received=0) == About(
            about.name, port, port + BUS_DISTANCE, flags=0
        )
        assert about.flags & bus.PRIMARY
        for moment in (about.ping_sent, about.pong_received):
            assert moment == 0 or abs(moment - time.time()) < CLOCK_SECONDS, f"a packet contains the time {moment}"


def test_a_server_believes_what_packets_say(cluster: PlayedNodes) -> None:
    cluster.meet()
    cluster.first.receive(bus.PONG)
    first, second = cluster.ports
    cluster.await_line(
        FIRST, (1, f"127.0.0.1:{first}@{first + BUS_DISTANCE},{FIRST_HOST}"), (6, str(SECOND_EPOCH)), (8, "1"), (9, "9")
    )
    cluster.second.receive(bus.PING, answer=cluster.of_second(bus.PONG, configuration_epoch=3))
    cluster.second.send(cluster.of_second(bus.PING, configuration_epoch=3))
    line = cluster.await_line(SECOND, (6, "3"), (8, "2"), (9, "700"))
    assert line[1].split(",")[0] == f"127.0.0.1:{second}@{second + BUS_DISTANCE}"
    state = cluster.server.state()
    assert (int(state["cluster_current_epoch"]), int(state["cluster_my_epoch"])) == (NEWEST_EPOCH, OWN_EPOCH)
    shards = repr(cluster.server.ask("CLUSTER", "SHARDS"))
    assert str(OFFSET) in shards, f"CLUSTER SHARDS has no offset {OFFSET}: {shards}"


def test_a_newer_owner_of_slots_is_told_of_and_believed(cluster: PlayedNodes) -> None:
    cluster.meet()
    stale = frozenset({*SECOND_SLOTS, 0})
    cluster.second.receive(bus.PING, answer=cluster.of_second(bus.PONG, configuration_epoch=3))
    cluster.second.send(cluster.of_second(bus.PING, configuration_epoch=3, slots=stale))
    update = cluster.second.receive(bus.UPDATE)
    epoch, name, slots = bus.UPDATED.unpack(update.body)
    assert (epoch, name.decode()) == (OWN_EPOCH, cluster.server.identifier)
    assert bus.slots_of(slots) == OWN_SLOTS
    # The server keeps the slots that it already had.
    newer = bus.UPDATED.pack(SECOND_EPOCH + 1, SECOND.encode(), bus.bitmap({2, 701, 4000}))
    update = cluster.of_first(bus.UPDATE, entries=0, extensions=0, message_flags=0, body=newer)
    cluster.first.send(update)
    cluster.await_line(SECOND, (6, str(SECOND_EPOCH + 1)), (8, "2"), (9, "700-701"), (10, "4000"))


def test_published_messages_pass_the_bus(cluster: PlayedNodes) -> None:
    cluster.meet()
    cluster.first.receive(bus.PONG)
    channel, text = b"c" * 3, b"t" * 300
    cluster.server.ask("PUBLISH", channel, text)
    sent = cluster.first.receive(bus.PUBLISH)
    assert sent.body == bus.TEXTS.pack(len(channel), len(text)) + channel + text
    with cluster.server.guest.client() as subscriber:
        subscriber.command("SUBSCRIBE", channel)
        body = bus.TEXTS.pack(len(channel), len(text)) + channel + text
        cluster.first.send(cluster.of_first(bus.PUBLISH, entries=0, extensions=0, message_flags=0, body=body))
        assert subscriber.receive() == [b"message", channel, text]
