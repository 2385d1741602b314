"""Fixtures of the cluster suite."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from suites.cluster import nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.run.extra_servers import StartGuest
    from suites._shared.ports import Ports
    from suites.cluster.nodes import Node


@pytest.fixture
def start_node(start_guest: StartGuest, ports: Ports) -> Callable[..., Node]:
    """Starts a node for one test: suites.cluster.nodes.start."""
    return functools.partial(nodes.start, start_guest, ports)
