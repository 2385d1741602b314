"""Fixtures of the cluster suite."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from suites.cluster import nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.cell import CellSpec
    from harness.own_guests import StartGuest
    from suites.cluster.nodes import Node
    from suites.replication.ports import Ports


@pytest.fixture
def start_node(cell: CellSpec, start_guest: StartGuest, ports: Ports) -> Callable[..., Node]:
    """Starts a node for one test: suites.cluster.nodes.start."""
    if cell.version < (3,):
        pytest.skip("clusters came with 3.0")
    return functools.partial(nodes.start, start_guest, ports)
