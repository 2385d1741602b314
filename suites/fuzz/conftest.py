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
    """The cell, once a test of this suite has begun."""
    return []


@pytest.fixture(autouse=True)
def _new_server(cell_run: CellSession, begun: list[CellSession]) -> None:
    """The first test begins with a new server.

    In `threads` the tests of `protocol` have used the present one, and the native build knows nothing of it: each would
    have its own offset of replication.
    """
    if not begun:
        cell_run.servers.retire()
        begun.append(cell_run)
