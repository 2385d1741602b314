"""Nodes of every byte order and width report to each other the nodes that they know."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from suites._shared import cluster_nodes as nodes
from suites._shared.link import await_that
from suites._shared.needs import require

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from suites._shared.cluster_nodes import Node

MINUTE = 60_000


def test_what_a_node_says_of_itself_reaches_those_that_never_met_it(everybody: list[Node], cell: CellSpec) -> None:
    nodes.meet_in_a_row(everybody)
    if not cell.lacks("option cluster-announce-hostname"):
        for number, node in enumerate(everybody):
            node.ask("CONFIG", "SET", "cluster-announce-hostname", f"node-{number}.{'x' * (7 * number)}.example")
    guests = [node.guest for node in everybody]
    await_that(lambda: nodes.agree(everybody), guests, "every node to report the same about each node")
    for about in everybody:
        for viewer in everybody:
            words = viewer.view()[about.identifier]
            assert nodes.port_in(words) == about.port, words
            # The time of the last pong, in milliseconds since 1970. A node has no such time for itself.
            if viewer is not about:
                assert abs(viewer.milliseconds() - int(words[5])) < MINUTE, f"a pong at {words[5]}"


@pytest.mark.usefixtures("patience")
def test_a_port_that_changes_is_known_to_all(everybody: list[Node], cell: CellSpec) -> None:
    require(cell, "option cluster-announce-hostname")
    nodes.meet_in_a_row(everybody)
    changed = everybody[-1]
    # Neither byte of the port is 0. The bus port stays, so that the others still find the node.
    announced = {"port": 0x1234, "bus-port": changed.port + 10_000, "ip": "127.0.0.1"}
    for name, value in announced.items():
        changed.ask("CONFIG", "SET", f"cluster-announce-{name}", value)

    def known() -> bool:
        return all(nodes.port_in(node.view()[changed.identifier]) == 0x1234 for node in everybody)

    await_that(known, [node.guest for node in everybody], "all nodes to know the port")
    for node in everybody:
        assert node.view()[changed.identifier][1].startswith(f"127.0.0.1:{0x1234}@{changed.port + 10_000}")
