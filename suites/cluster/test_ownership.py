"""How nodes treat keys in slots that they do not own, and how a minority of the nodes behaves."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import hiredis
import pytest

from suites._shared import cluster_nodes as nodes
from suites._shared.keyspace import dataset, server
from suites._shared.link import await_that

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.run.extra_servers import StartGuest
    from suites._shared.cluster_nodes import Node

ME, OTHER = "a" * 40, "b" * 40
MINE, THEIRS, NOBODYS = 100, 9000, 16000
"""A slot of the node, one of another node, and one without an owner."""
FILE = f"""\
{ME} 127.0.0.1:1@10001 myself,master - 0 0 1 connected 0-5000
{OTHER} 127.0.0.1:2@10002 master - 0 0 2 disconnected 5001-15999
vars currentEpoch 2 lastVoteEpoch 0
"""
NODE_TIMEOUT_MILLISECONDS = 2000


def test_keys_of_slots_that_are_not_its_own_change_what_a_node_tells(
    companion: str, start_guest: StartGuest, start_node: Callable[..., Node], family: str
) -> None:
    """A node takes over slots without an owner. It imports those of others, or since Valkey 8.1 deletes their keys."""
    writer = start_guest(target=companion)
    keys = [nodes.key_in(slot, slot) for slot in (MINE, THEIRS, NOBODYS)]
    with server.client(writer) as client:
        client.pipeline([("SET", key, dataset.noise(100)) for key in keys])
    node = start_node(files={"nodes.conf": FILE.encode(), "dump.rdb": server.saved(writer)})
    words = node.view()[ME]
    counts = [node.ask("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in (MINE, THEIRS, NOBODYS)]
    importing = [f"[{THEIRS}-<-{OTHER}]"] if counts[1] else []
    assert words[8:] == ["0-5000", str(NOBODYS), *importing], words
    assert counts == [1, len(importing), 1]
    # Only a start with such a file shows what a server does with the keys.
    assert importing or (family == "valkey" and node.guest.version >= (8, 1)), "keys are gone"
    # The next start reads the file that this one has written.
    again = start_node(files={"nodes.conf": node.guest.read("nodes.conf"), "dump.rdb": server.saved(writer)})
    assert again.view()[ME][8:] == words[8:]


@pytest.mark.parametrize("upwards", [True, False], ids=["from the first", "from the second"])
def test_a_node_removes_its_keys_of_a_slot_that_another_has_taken(
    companion: str, upwards: bool, start_node: Callable[..., Node]
) -> None:
    both = [start_node(), start_node(target=companion)]
    nodes.join(both)
    loser, winner = both if upwards else reversed(both)
    slot, kept = loser.slots()
    key = nodes.key_in(slot, slot)
    names = [key, *(b"{%s}:%d" % (key, number) for number in range(20))]
    for name in names:
        loser.ask("SET", name, dataset.noise(40))
    other = nodes.key_in(kept, kept)
    loser.ask("SET", other, "stays")
    guests = [node.guest for node in both]
    # The end of an import is the only change that starts a new epoch without a vote.
    winner.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", loser.identifier)
    winner.ask("CLUSTER", "SETSLOT", slot, "NODE", winner.identifier)
    await_that(lambda: loser.keys() == 1, guests, "the keys of a lost slot to be removed")
    nodes.await_agreement(both)
    assert loser.ask("GET", other) == b"stays"
    with pytest.raises(hiredis.ReplyError, match=f"MOVED {slot} 127.0.0.1:{winner.port}"):
        loser.ask("GET", key)
    assert winner.ask("GET", key) is None
    epochs = [int(node.view()[winner.identifier][6]) for node in both]
    assert epochs[0] == epochs[1] > int(loser.view()[loser.identifier][6])


def reply_to(node: Node, *words: Any) -> str:
    """A reply, or the text of a refusal."""
    try:
        return str(node.ask(*words))
    except hiredis.ReplyError as refused:
        return str(refused)


@pytest.mark.usefixtures("patience")
def test_a_node_without_the_majority_refuses_until_it_is_back(everybody: list[Node]) -> None:
    nodes.meet_in_a_row(everybody)
    lonely, *others = everybody
    key = nodes.key_in(*lonely.slots())
    assert lonely.ask("SET", key, "before") == b"OK"
    for node in everybody:
        node.ask("CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT_MILLISECONDS)
        # The slots of failed nodes are enough to take the cluster down.
        node.ask("CONFIG", "SET", "cluster-require-full-coverage", "no")
    with contextlib.ExitStack() as silent:
        for node in others:
            silent.enter_context(node.guest.suspended())
        await_that(
            lambda: lonely.state()["cluster_state"] == "fail", [lonely.guest], "the node to notice that it is alone"
        )
        assert "CLUSTERDOWN" in reply_to(lonely, "GET", key)
        assert "CLUSTERDOWN" in reply_to(lonely, "SET", key, "during")
        # The majority is lost before the last failure is noticed.
        missed = str(nodes.SLOTS - nodes.SLOTS // len(everybody))
        await_that(
            lambda: lonely.state()["cluster_slots_pfail"] == missed, [lonely.guest], "all other nodes to be suspected"
        )
    guests = [node.guest for node in everybody]
    await_that(lambda: lonely.state()["cluster_state"] == "ok", guests, "the cluster to work again")
    nodes.await_agreement(everybody)
    assert lonely.ask("GET", key) == b"before"
