"""Fixtures of the cluster suite."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from suites._shared import cluster_nodes as nodes
from suites._shared.keyspace import kinds

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from suites._shared.cluster_nodes import Node
    from suites._shared.ports import Ports

FEWEST = 3
"""With two nodes no message has a gossip section, which is about third nodes only. Votes also need three nodes."""


@pytest.fixture
def start_node(start_guest: StartGuest, ports: Ports) -> Callable[..., Node]:
    """Starts a node for one test: suites._shared.cluster_nodes.start."""
    return functools.partial(nodes.start, start_guest, ports)


@pytest.fixture
def patience(cell: CellSpec) -> None:
    """Skips tests that wait for the nodes' own time-outs, except in the larger tiers."""
    if cell.tier == "quick" and not cell.patient:
        pytest.skip("it waits about 15 s for time-outs: only in the tiers full and thorough")


@pytest.fixture
def everybody(start_node: Callable[..., Node], cell: CellSpec) -> list[Node]:
    """A node on the cell's target and one on each kind of machine. They do not know each other yet."""
    found = [start_node(), *(start_node(target=name) for name in kinds.companions(cell))]
    while len(found) < FEWEST:
        found.append(start_node())
    return found
