"""Fixtures of the moduleapi suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from suites._shared.keyspace import server
from suites.moduleapi.module_server import start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.protocol.resp import Client
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest


@pytest.fixture
def with_module(start_guest: StartGuest, cell: CellSpec) -> Guest:
    """A server with the module, on the cell's target."""
    return start(start_guest, cell, cell.runner.target.name)


@pytest.fixture
def client(with_module: Guest) -> Iterator[Client]:
    """A connection to it."""
    with server.client(with_module) as connected:
        yield connected
