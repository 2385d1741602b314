"""A node alone answers what is asked of a cluster's node as the native build does."""

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
from suites._shared import cluster_nodes as nodes
from suites._shared import one_by_one
from suites._shared.link import await_that

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.protocol.resp import Reply
    from harness.run.cell_spec import CellSpec
    from suites._shared.cluster_nodes import Node

# Numbers of nodes and of shards: 160 bits, drawn at random. A node draws another one when it is reset.
_DRAWN = re.compile(r"\b(?!0{40})[0-9a-f]{40}\b")


class NodeRequests(Record, frozen=True):
    """requests.toml."""

    fresh: str
    serving: str


def shown(reply: Reply, node: Node) -> str:
    """A reply as text, with words for what differs between two nodes: identifiers and ports."""
    text = f"error: {reply}" if isinstance(reply, Exception) else repr(reply)
    text = _DRAWN.sub("IDENTIFIER", text)
    for port, word in ((node.port, "PORT"), (node.port + 10000, "BUS")):
        text = re.sub(rf"\b{port}\b", word, text)
    # Redis 8 tells the bytes that its bus has sent, with clocks in some of them.
    return re.sub(r"(cluster_stats_\w+|total_cluster_links_\w+):\d+", r"\1:N", text)


def compare(requests: str, pair: list[Node], target: str) -> None:
    """Ask both nodes the same. Raises DifferenceError for the first other reply."""
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
    """The same node on the cell's target and on this machine."""
    if cell.version < (3,):
        pytest.skip("clusters came with 3.0")
    return [start_node(), start_node(target=ORACLE)]


def test_a_fresh_node_answers_as_on_this_machine(pair: list[Node], cell: CellSpec) -> None:
    requests = read_toml(Path(__file__).with_name("requests.toml"), NodeRequests)
    compare(requests.fresh, pair, cell.runner.target.name)


def test_a_node_with_all_slots_answers_as_on_this_machine(pair: list[Node], cell: CellSpec) -> None:
    requests = read_toml(Path(__file__).with_name("requests.toml"), NodeRequests)
    for node in pair:
        for at in range(0, nodes.SLOTS, 4096):
            node.ask("CLUSTER", "ADDSLOTS", *range(at, at + 4096))
        await_that(lambda node=node: node.state()["cluster_state"] == "ok", [node.guest], "the cluster to be well")  # type: ignore[misc]
    compare(requests.serving, pair, cell.runner.target.name)
