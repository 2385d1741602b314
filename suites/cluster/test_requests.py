"""A single node answers requests about its cluster as the native build does."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.core.model import Record
from harness.core.strict_toml import read_toml
from harness.core.target_model import ORACLE
from harness.protocol.command_stream import from_text
from harness.run.server_process import StartError
from suites._shared import cluster_nodes as nodes
from suites._shared import one_by_one
from suites._shared.link import await_that
from suites._shared.needs import require

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.protocol.resp import Reply
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from suites._shared.cluster_nodes import Node

# Identifiers of nodes and shards have 160 random bits. A node that is reset chooses a new identifier.
_DRAWN = re.compile(r"\b(?!0{40})[0-9a-f]{40}\b")


ME = "a" * 40
OTHER_IDENTIFIERS = {"other": "b" * 40, "replica": "c" * 40, "failed": "e" * 40, "unknown": "f" * 40}
"""Nodes in a file, and `unknown`, which is in no file. No cluster node listens on their ports."""
OTHERS = """\
{other} 127.0.0.1:2@10002,other.example master - 0 0 2 disconnected 10923-16383
{replica} 127.0.0.1:3@10003 slave,fail? {other} 0 0 2 disconnected
{failed} 127.0.0.1:5@10005 master,fail - 0 0 1 disconnected 5461-5469
{spare} :0@0 slave,noaddr,nofailover {me} 0 0 3 disconnected
{newcomer} 127.0.0.1:6@10006 handshake - 0 0 0 disconnected
{nothing} 127.0.0.1:7@10007 noflags - 0 0 0 disconnected
vars currentEpoch 3 lastVoteEpoch 1
""".format(me=ME, spare="d" * 40, newcomer="1" * 40, nothing="2" * 40, **OTHER_IDENTIFIERS)
PRIMARY = f"{ME} 127.0.0.1:1@10001,own.example myself,master - 0 0 3 connected 0-5460 5470-10922"
PRIMARY += f" [93->-{OTHER_IDENTIFIERS['other']}] [10923-<-{OTHER_IDENTIFIERS['other']}]\n"
FOLLOWER = f"{ME} 127.0.0.1:1@10001 myself,slave {OTHER_IDENTIFIERS['other']} 0 0 3 connected\n"
FILE = "nodes.conf"


class NodeRequests(Record, frozen=True):
    """requests.toml."""

    fresh: str
    serving: str
    acquainted: str
    resharding: str
    following: str


def shown(reply: Reply, node: Node) -> str:
    """A reply as text, with words instead of identifiers, ports and other values that differ between two nodes."""
    text = f"error: {reply}" if isinstance(reply, Exception) else repr(reply)
    text = _DRAWN.sub("IDENTIFIER", text)
    for port, word in ((node.port, "PORT"), (node.port + 10000, "BUS")):
        text = re.sub(rf"\b{port}\b", word, text)
    # The time of the last ping to a missing node, and whether its socket still exists, depend on timing.
    text = re.sub(r"\b(\d{13}|0) (\d{13}|0) (\d+) (dis)?connected\b", r"SENT HEARD \3 LINK", text)
    # Redis 8 counts the bytes that it sends over the bus, and their number depends on timing.
    return re.sub(r"(cluster_stats_\w+|total_cluster_links_\w+):\d+", r"\1:N", text)


def compare(requests: str, pair: list[Node], target: str) -> None:
    """Send the same requests to both nodes. Raises DifferenceError for the first reply that differs."""
    for name, identifier in OTHER_IDENTIFIERS.items():
        requests = requests.replace(f"<{name}>", identifier)
    guest, native = (
        one_by_one.answers(
            node.guest,
            from_text(requests.replace("<me>", node.identifier)),
            functools.partial(shown, node=node),
        )
        for node in pair
    )
    one_by_one.compare(guest, native, target)


@pytest.fixture
def pair(start_node: Callable[..., Node], cell: CellSpec) -> list[Node]:
    """The same node on the cell's target and as a native build."""
    require(cell, "info cluster_enabled")
    return [start_node(), start_node(target=ORACLE)]


def test_a_fresh_node_answers_as_on_this_machine(pair: list[Node], cell: CellSpec) -> None:
    requests = read_toml(Path(__file__).with_name("requests.toml"), NodeRequests)
    compare(requests.fresh, pair, cell.runner.target.name)


def test_a_node_with_all_slots_answers_as_on_this_machine(pair: list[Node], cell: CellSpec) -> None:
    requests = read_toml(Path(__file__).with_name("requests.toml"), NodeRequests)
    for node in pair:
        for at in range(0, nodes.SLOTS, 4096):
            node.ask("CLUSTER", "ADDSLOTS", *range(at, at + 4096))
        await_that(lambda node=node: node.state()["cluster_state"] == "ok", [node.guest], "the cluster to work")  # type: ignore[misc]
    compare(requests.serving, pair, cell.runner.target.name)


@pytest.fixture
def pair_from(start_node: Callable[..., Node], cell: CellSpec) -> Callable[[str], list[Node]]:
    """The same node on both machines, with a file that contains other nodes."""
    require(cell, "option cluster-announce-hostname")

    def start(own: str) -> list[Node]:
        content = (own + OTHERS).encode()
        found = [start_node(files={FILE: content}), start_node(target=ORACLE, files={FILE: content})]
        for node in found:
            assert node.identifier == ME
        return found

    return start


def test_a_node_that_knows_others_by_its_file_answers_as_on_this_machine(
    pair_from: Callable[[str], list[Node]], cell: CellSpec
) -> None:
    requests = read_toml(Path(__file__).with_name("requests.toml"), NodeRequests)
    pair = pair_from(PRIMARY)
    compare(requests.acquainted, pair, cell.runner.target.name)
    for node in pair:
        node.ask("CONFIG", "SET", "cluster-require-full-coverage", "no")
        await_that(lambda node=node: node.state()["cluster_state"] == "ok", [node.guest], "it to serve its slots")  # type: ignore[misc]
    compare(requests.resharding, pair, cell.runner.target.name)


def test_a_replica_whose_primary_is_gone_answers_as_on_this_machine(
    pair_from: Callable[[str], list[Node]], cell: CellSpec
) -> None:
    requests = read_toml(Path(__file__).with_name("requests.toml"), NodeRequests)
    compare(requests.following, pair_from(FOLLOWER), cell.runner.target.name)


NO_FILES = {
    "too few words": f"{ME} 127.0.0.1:1@10001 myself,master - 0 0 3\n",
    "a name of 39 characters": PRIMARY[1:],
    "a name of other characters": PRIMARY.replace("a", "Z"),
    "no port": f"{ME} nowhere myself,master - 0 0 3 connected\n",
    "a primary that is no name": f"{ME} 127.0.0.1:1@10001 myself,slave nobody 0 0 3 connected\n",
    "a slot beyond the last": f"{ME} 127.0.0.1:1@10001 myself,master - 0 0 3 connected 0-16384\n",
    "a slot that moves, beyond the last": f"{ME} 127.0.0.1:1@10001 myself,master - 0 0 3 connected [16384->-{ME}]\n",
    "a slot that moves to no name": f"{ME} 127.0.0.1:1@10001 myself,master - 0 0 3 connected [1->-nobody]\n",
    "a slot that moves without an end": f"{ME} 127.0.0.1:1@10001 myself,master - 0 0 3 connected [1->-{ME}\n",
    "half a pair of variables": PRIMARY + "vars currentEpoch\n",
    "quotes that do not end": f'{ME} "127.0.0.1:1@10001 myself,master - 0 0 3 connected\n',
}


@pytest.mark.parametrize("content", NO_FILES.values(), ids=NO_FILES)
def test_a_nodes_file_that_is_none_is_refused_as_on_this_machine(
    content: str, start_guest: StartGuest, cell: CellSpec
) -> None:
    require(cell, "option cluster-announce-hostname")
    ends = []
    for target in (ORACLE, ""):
        with pytest.raises(StartError) as refused:
            start_guest(
                target=target, options=["--cluster-enabled", "yes"], files={FILE: content.encode()}, may_refuse=True
            )
        ends.append(str(refused.value))
    assert ends[0] == ends[1]
