"""Fixtures that several suites share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.resp import Client
from suites.both import Both
from suites.keyspace import kinds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.cell import CellSpec
    from harness.guest import Guest


@pytest.fixture
def both(guest: Guest, oracle: Guest, cell: CellSpec) -> Iterator[Both]:
    """Guest and oracle, both empty."""
    with (
        Client.at(*guest.endpoint, deadline_seconds=guest.deadline_seconds) as ours,
        Client.at(*oracle.endpoint, deadline_seconds=oracle.deadline_seconds) as theirs,
    ):
        pair = Both(ours, theirs, seed=cell.seed, tier=cell.tier)
        pair.ask([["FLUSHALL"]])
        yield pair


@pytest.fixture(scope="session")
def family(cell: CellSpec) -> str:
    """Redis or valkey."""
    assert cell.build is not None
    return cell.build.server_binary.name.partition("-")[0]


@pytest.fixture
def writer(peer: str, cell: CellSpec) -> str:
    """A peer whose files the cell reads."""
    if peer not in kinds.writers(cell):
        pytest.skip("the quick tier reads what the native build wrote")
    return peer


@pytest.fixture
def companion(peer: str, cell: CellSpec) -> str:
    """A peer that the cell's servers talk with."""
    if peer not in kinds.companions(cell):
        pytest.skip("one target of each width and byte order is enough")
    return peer
