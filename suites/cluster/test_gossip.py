"""Nodes of every byte order and width tell each other of nodes that they never met, and replace one that is silent."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from suites._shared.keyspace import dataset, kinds
from suites._shared.link import await_that
from suites.cluster import nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.run.cell_spec import CellSpec
    from suites.cluster.nodes import Node

FEWEST = 3
"""With two nodes no message has a gossip section, because a node is told of third ones only. Votes need three too."""
NODE_TIMEOUT_MILLISECONDS = 5000
MINUTE = 60_000


@pytest.fixture
def patience(cell: CellSpec) -> None:
    """For tests that wait for the nodes' own time-outs."""
    if cell.tier == "quick":
        pytest.skip("it waits some 15 s for time-outs: in the tiers full and thorough")


@pytest.fixture
def everybody(start_node: Callable[..., Node], cell: CellSpec) -> list[Node]:
    """A node on the cell's target and one of each kind of machine: strangers to each other."""
    found = [start_node(), *(start_node(target=name) for name in kinds.companions(cell))]
    while len(found) < FEWEST:
        found.append(start_node())
    return found


def meet_in_a_row(everybody: Sequence[Node]) -> None:
    """Introduce each node to the next one only, and wait until all of them agree. Each has a share of the slots."""
    nodes.divide(everybody)
    for node, following in itertools.pairwise(everybody):
        node.ask("CLUSTER", "MEET", "127.0.0.1", following.port)

    def known() -> bool:
        for viewer in everybody:
            view = viewer.view()
            for about in everybody:
                # A node that is only shaking hands has another name.
                if about.identifier in view and (port := nodes.port_in(view[about.identifier])) != about.port:
                    raise nodes.misread_gossip(about, viewer, port)
        return all(len(viewer.view()) == len(everybody) for viewer in everybody)

    await_that(known, [node.guest for node in everybody], "every node to hear of every other")
    nodes.await_agreement(everybody)


def told(viewer: Node, about: Node) -> dict[str, str]:
    """What a node tells of another one, or of itself: the fields of CLUSTER NODES that all nodes must agree on."""
    words = viewer.view()[about.identifier]
    flags = [flag for flag in words[2].split(",") if flag != "myself"]
    fields = {"address": words[1], "flags": ",".join(flags), "primary": words[3], "configuration epoch": words[6]}
    return fields | {"slots": " ".join(words[8:])}


def agree(everybody: Sequence[Node]) -> bool:
    """Whether each node tells of each other what that one tells of itself."""
    return all(told(viewer, about) == told(about, about) for about in everybody for viewer in everybody)


def test_what_a_node_says_of_itself_reaches_those_that_never_met_it(everybody: list[Node], cell: CellSpec) -> None:
    meet_in_a_row(everybody)
    if cell.version >= (7,):
        for number, node in enumerate(everybody):
            node.ask("CONFIG", "SET", "cluster-announce-hostname", f"node-{number}.{'x' * (7 * number)}.example")
    guests = [node.guest for node in everybody]
    await_that(lambda: agree(everybody), guests, "every node to tell of the others what they tell of themselves")
    for about in everybody:
        for viewer in everybody:
            words = viewer.view()[about.identifier]
            assert nodes.port_in(words) == about.port, words
            # The last pong, in milliseconds since 1970. A node has none of itself.
            if viewer is not about:
                assert abs(viewer.milliseconds() - int(words[5])) < MINUTE, f"a pong at {words[5]}"


@pytest.mark.usefixtures("patience")
def test_a_port_that_changes_is_known_to_all(everybody: list[Node], cell: CellSpec) -> None:
    if cell.version < (7,):
        pytest.skip("the announced port can be changed since 7.0")
    meet_in_a_row(everybody)
    changed = everybody[-1]
    # Both bytes of the number are needed, and none is 0.
    changed.ask("CONFIG", "SET", "cluster-announce-port", 0x1234)

    def known() -> bool:
        return all(nodes.port_in(node.view()[changed.identifier]) == 0x1234 for node in everybody)

    await_that(known, [node.guest for node in everybody], "all nodes to know the port")


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("own", ["silent", "elected"])
def test_a_silent_primary_is_replaced_by_the_votes_of_the_others(
    everybody: list[Node], own: str, start_node: Callable[..., Node], cell: CellSpec
) -> None:
    first, *others = everybody
    # The primary that ends and the replica that takes over are of different kinds where the run has two.
    silent = first if own == "silent" else others[-1]
    target = others[-1].guest.runner.target.name if own == "silent" else cell.runner.target.name
    replica = start_node(target=target)
    meet_in_a_row(everybody)
    replica.ask("CLUSTER", "MEET", "127.0.0.1", others[0].port)
    every = [*everybody, replica]
    guests = [node.guest for node in every]
    await_that(lambda: all(len(node.view()) == len(every) for node in every), guests, "the replica to be known")
    replica.ask("CLUSTER", "REPLICATE", silent.identifier)
    key = nodes.key_in(*silent.slots())
    silent.ask("SET", key, dataset.noise(300))
    await_that(lambda: nodes.link_state(replica) == "up", guests, "the replica's link")
    await_that(lambda: agree(every), guests, "every node to know the replica")
    await_that(lambda: replica.keys() == 1, guests, "the replica to have the key")
    for node in every:
        node.ask("CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT_MILLISECONDS)
    epoch = max(int(node.state()["cluster_current_epoch"]) for node in every)
    silent.end()
    living = [node for node in every if node is not silent]
    guests = [node.guest for node in living]

    def replaced() -> bool:
        views = [node.view() for node in living]
        return all("master" in view[replica.identifier][2] and "fail" in view[silent.identifier][2] for view in views)

    await_that(replaced, guests, "all to know the failure and the new primary")
    await_that(lambda: agree(living), guests, "the others to agree")
    assert replica.ask("GET", key) == dataset.noise(300)
    for node in living:
        assert int(node.view()[replica.identifier][6]) == epoch + 1, "the epoch of the only election"
        assert node.state()["cluster_state"] == "ok"
