"""Fixtures of the moduleapi suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.protocol.resp import ReplyError
from suites._shared.keyspace import server
from suites.moduleapi.module_server import is_lacking, lacking, start

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

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


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Skip a test one of whose requests needs a function that the tree does not offer to modules."""
    try:
        return (yield)
    except ReplyError as error:
        if is_lacking(error):
            pytest.skip(f"{pyfuncitem.name}: the tree's redismodule.h has no {lacking(error)}")
        raise
