"""Fixtures that several suites share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.protocol.allowed_refusals import release_of
from harness.run.cell_spec import read_cell
from suites._shared.keyspace import kinds
from suites._shared.paired_servers import PairedServers
from suites._shared.ports import Ports
from suites._shared.programs import Programs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.protocol.allowed_refusals import Release
    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest
    from harness.run.session.cell_session import CellSession


@pytest.fixture
def both(guest: Guest, oracle: Guest, cell: CellSpec) -> Iterator[PairedServers]:
    """Guest and oracle, both empty."""
    with guest.client() as guest_client, oracle.client() as oracle_client:
        pair = PairedServers(
            guest_client, oracle_client, target=cell.runner.target.name, seed=cell.seed, tier=cell.tier
        )
        pair.ask([["FLUSHALL"]])
        yield pair


@pytest.fixture
def ports(cell: CellSpec) -> Iterator[Ports]:
    """Ports by which the test's servers find each other on the host."""
    if cell.runner.target.emulator.is_elsewhere:
        pytest.skip("servers on the host and on another machine cannot reach each other by port")
    with Ports() as held:
        yield held


@pytest.fixture
def programs(cell: CellSpec, family: str, tmp_path: Path, cell_run: CellSession) -> Programs:
    """The release's programs, which run in the folder of the current test."""
    return Programs(cell, family, tmp_path, plugin_for=cell_run.plugin_for)


@pytest.fixture(scope="session")
def family(cell: CellSpec) -> str:
    """The server's family: redis or valkey."""
    assert cell.build is not None
    return cell.build.server_binary.name.partition("-")[0]


@pytest.fixture(scope="session")
def release(cell: CellSpec) -> Release:
    """The server's family and version."""
    assert cell.build is not None
    return release_of(cell.build.server_binary, cell.version)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`writer`: the peers whose files the cell reads. `companion`: the peers with which its servers communicate."""
    for name, chosen in (("writer", kinds.writers), ("companion", kinds.companions)):
        if name in metafunc.fixturenames:
            path = metafunc.config.getoption("--plumb-cell")
            metafunc.parametrize(name, chosen(read_cell(Path(path))) if path else [])
