"""Nodes fail, return, leave, and change their primary. All others learn this, whatever their byte order and width."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

import pytest

from suites._shared import cluster_nodes as nodes
from suites._shared.cluster_nodes import Node
from suites._shared.keyspace import dataset, server
from suites._shared.link import await_that
from suites._shared.needs import require

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.run.cell_spec import CellSpec

NODE_TIMEOUT_MILLISECONDS = 5000
MINUTE, HOUR = 60_000, 3_600_000
"""Milliseconds."""
ASLEEP_SECONDS = 5
STAY = 100
"""Number of replicas that a primary keeps. No primary here has so many, so no replica moves until a test lowers it."""


class FailedOver(NamedTuple):
    """A cluster in which a replica was elected to replace a silent primary."""

    silent: Node
    """The primary that has ended."""
    its_file: bytes
    """Its nodes.conf from just before it ended."""
    elected: Node
    living: list[Node]
    """Every node but the silent one."""
    key: bytes
    """A key of the silent primary."""
    epoch: int
    """The cluster's epoch before the election."""


def follow(replica: Node, primary: Node, everybody: Sequence[Node]) -> None:
    """Make a known node a replica of a primary, and wait until all nodes know it."""
    guests = [node.guest for node in everybody]
    replica.ask("CLUSTER", "REPLICATE", primary.identifier)
    await_that(lambda: nodes.link_state(replica) == "up", guests, "the replica's link")
    await_that(lambda: nodes.agree(everybody), guests, "every node to know the replica")


def introduce(newcomer: Node, everybody: Sequence[Node]) -> list[Node]:
    """Add a node to a cluster, and wait until all nodes know it. Returns all nodes."""
    newcomer.ask("CLUSTER", "MEET", "127.0.0.1", everybody[0].port)
    every = [*everybody, newcomer]
    guests = [node.guest for node in every]
    await_that(lambda: all(len(node.view()) == len(every) for node in every), guests, "the newcomer to be known")
    return every


def give_up_after(milliseconds: int, everybody: Sequence[Node]) -> None:
    """Set the number of milliseconds of silence after which the others consider a node failed."""
    for node in everybody:
        node.ask("CONFIG", "SET", "cluster-node-timeout", milliseconds)


def fail_over(everybody: list[Node], silent: Node, replica: Node) -> FailedOver:
    """End a primary, and wait until the other primaries have elected its replica."""
    nodes.meet_in_a_row(everybody)
    every = introduce(replica, everybody)
    key = nodes.key_in(*silent.slots())
    silent.ask("SET", key, dataset.noise(300))
    follow(replica, silent, every)
    await_that(lambda: replica.keys() == 1, [replica.guest], "the replica to have the key")
    give_up_after(NODE_TIMEOUT_MILLISECONDS, every)
    epoch = max(int(node.state()["cluster_current_epoch"]) for node in every)
    its_file = silent.guest.read("nodes.conf")
    silent.end()
    living = [node for node in every if node is not silent]

    def replaced() -> bool:
        views = [node.view() for node in living]
        return all("master" in view[replica.identifier][2] and "fail" in view[silent.identifier][2] for view in views)

    guests = [node.guest for node in living]
    await_that(replaced, guests, "all nodes to know the failure and the new primary")
    await_that(lambda: nodes.agree(living), guests, "the other nodes to agree")
    for node in living:
        # The times of the ping without an answer, and of the last pong, in milliseconds since 1970.
        for moment in node.view()[silent.identifier][4:6]:
            assert abs(node.milliseconds() - int(moment)) < HOUR, f"the silent node's times: {moment}"
    return FailedOver(silent, its_file, replica, living, key, epoch)


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("own", ["silent", "elected"])
def test_a_silent_primary_is_replaced_by_the_votes_of_the_others(
    everybody: list[Node], own: str, start_node: Callable[..., Node], cell: CellSpec
) -> None:
    first, *others = everybody
    # The silent primary and the elected replica are on different kinds of machines if the run has two.
    silent = first if own == "silent" else others[-1]
    target = others[-1].guest.runner.target.name if own == "silent" else cell.runner.target.name
    cluster = fail_over(everybody, silent, start_node(target=target))
    elected = cluster.elected
    assert elected.ask("GET", cluster.key) == dataset.noise(300)
    for node in cluster.living:
        assert int(node.view()[elected.identifier][6]) == cluster.epoch + 1, "the epoch of the only election"
        assert node.state()["cluster_state"] == "ok"


@pytest.mark.usefixtures("patience")
def test_a_primary_that_returns_learns_who_has_replaced_it(
    everybody: list[Node], start_node: Callable[..., Node], cell: CellSpec
) -> None:
    """The others answer its outdated claim with an UPDATE: the new owner, its epoch and its slots."""

    def order(node: Node) -> str:
        return node.guest.runner.target.endianness

    foreign = [node for node in everybody if order(node) != order(everybody[0])]
    silent = (foreign or everybody)[-1]
    cluster = fail_over(everybody, silent, start_node(target=cell.runner.target.name))
    give_up_after(MINUTE, cluster.living)
    # The UPDATE must not come from the successor or, if the run has two byte orders, from a node with that of `silent`.
    paused = [node for node in cluster.living if node is cluster.elected or (foreign and order(node) == order(silent))]
    updater = next(node for node in cluster.living if node not in paused)
    with contextlib.ExitStack() as stack:
        blocked = [stack.enter_context(server.client(node.guest)) for node in paused]
        for client in blocked:
            client.send(client.pack([("DEBUG", "SLEEP", ASLEEP_SECONDS)]))
        # It returns at another address, which it announces.
        returned = start_node(target=silent.guest.runner.target.name, files={"nodes.conf": cluster.its_file})
        assert [client.receive() for client in blocked] == [b"OK"] * len(blocked)
    assert returned.identifier == silent.identifier
    every = [*cluster.living, returned]
    guests = [node.guest for node in every]
    await_that(lambda: nodes.link_state(returned) == "up", guests, "the former primary to follow the new one")
    known = int(returned.view()[cluster.elected.identifier][6])
    if known != cluster.epoch + 1:
        raise nodes.misread_update(cluster.epoch + 1, known, updater, returned)
    await_that(lambda: nodes.agree(every), guests, "all nodes to agree on both primaries")
    for node in every:
        words = node.view()[returned.identifier]
        assert words[3] == cluster.elected.identifier, "the former primary follows another node"
        assert nodes.port_in(words) == returned.port
    await_that(lambda: returned.keys() == 1, guests, "the former primary to have the key")


@pytest.mark.usefixtures("patience")
def test_a_spare_replica_goes_to_a_primary_that_has_none(
    everybody: list[Node], companion: str, start_node: Callable[..., Node]
) -> None:
    """Replicas learn from the bus how many replicas other primaries have."""
    nodes.meet_in_a_row(everybody)
    rich, poor, *_ = everybody
    every = list(everybody)
    replicas = []
    for target, primary in (("", rich), (companion, rich), (companion, poor)):
        newcomer = start_node(target=target)
        newcomer.ask("CONFIG", "SET", "cluster-migration-barrier", STAY)
        every = introduce(newcomer, every)
        follow(newcomer, primary, every)
        replicas.append(newcomer)
    *spare, only = replicas
    give_up_after(NODE_TIMEOUT_MILLISECONDS, every)
    only.end()
    living = [node for node in every if node is not only]
    guests = [node.guest for node in living]
    for node in spare:
        node.ask("CONFIG", "SET", "cluster-migration-barrier", 1)

    def followed() -> list[str]:
        return [node.view()[node.identifier][3] for node in spare]

    await_that(lambda: followed() != [rich.identifier] * 2, guests, "a replica to move to the primary without one")
    await_that(lambda: nodes.agree(living), guests, "all nodes to know the replica's new primary")
    assert followed().count(rich.identifier) == 1, "one of the two replicas must stay"
    assert set(followed()) <= {node.identifier for node in everybody}


def test_a_node_that_is_reset_leaves_and_comes_back_as_another(
    everybody: list[Node], start_node: Callable[..., Node]
) -> None:
    nodes.meet_in_a_row(everybody)
    leaving = start_node()
    every = introduce(leaving, everybody)
    leaving.ask("CLUSTER", "RESET", "HARD")
    for node in everybody:
        node.ask("CLUSTER", "FORGET", leaving.identifier)
    guests = [node.guest for node in every]
    await_that(
        lambda: all(len(node.view()) == len(everybody) for node in everybody), guests, "the former node to be forgotten"
    )
    assert leaving.state()["cluster_known_nodes"] == "1"
    assert leaving.state()["cluster_current_epoch"] == "0"
    newcomer = Node(leaving.guest, leaving.port)
    assert newcomer.identifier != leaving.identifier
    every = introduce(newcomer, everybody)
    await_that(lambda: nodes.agree(every), guests, "all nodes to know its new name")


def test_shards_and_links_are_what_the_nodes_know_of_each_other(everybody: list[Node], cell: CellSpec) -> None:
    require(cell, "command cluster|shards", "command cluster|links")
    nodes.meet_in_a_row(everybody)
    guests = [node.guest for node in everybody]
    await_that(lambda: nodes.agree(everybody), guests, "every node to agree")
    ports = {node.identifier: node.port for node in everybody}
    for viewer in everybody:
        view = viewer.view()
        shards = [nodes.fields(shard) for shard in viewer.ask("CLUSTER", "SHARDS")]
        assert len(shards) == len(everybody)
        for shard in shards:
            (member,) = (nodes.fields(one) for one in shard["nodes"])
            identifier = bytes(member["id"]).decode()
            first, _, last = view[identifier][8].partition("-")
            assert shard["slots"] == [int(first), int(last)]
            assert (member["port"], member["role"]) == (ports[identifier], b"master")
            assert (member["replication-offset"], member["health"]) == (0, b"online"), member
        links = [nodes.fields(link) for link in viewer.ask("CLUSTER", "LINKS")]
        assert {bytes(link["node"]).decode() for link in links} == ports.keys() - {viewer.identifier}
        for link in links:
            assert abs(viewer.milliseconds() - link["create-time"]) < MINUTE, link
            assert link["direction"] in {b"to", b"from"}
            assert 0 <= link["send-buffer-used"] <= link["send-buffer-allocated"] < 1 << 20, link
