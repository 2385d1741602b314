"""Fixtures of the fuzz suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from suites.fuzz.emptying import Emptying

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.run.session.cell_session import CellSession


@pytest.fixture(scope="session")
def emptying() -> Iterator[Emptying]:
    """Empties the cell's servers between streams."""
    emptying = Emptying()
    yield emptying
    emptying.close()


@pytest.fixture(scope="session")
def begun() -> list[CellSession]:
    """Contains the cell's session once a test of this suite has begun."""
    return []


@pytest.fixture(autouse=True)
def _new_server(cell_run: CellSession, begun: list[CellSession]) -> None:
    """Give the first test a new server. In `threads`, the current server has already run the tests of `protocol` but
    the native build has not, so their replication offsets would differ.
    """
    if not begun:
        cell_run.servers.retire()
        begun.append(cell_run)
