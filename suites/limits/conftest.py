"""Fixtures of the limits suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.core.target_model import ORACLE
from suites._shared.programs import Programs

if TYPE_CHECKING:
    from pathlib import Path

    from harness.run.cell_spec import CellSpec


@pytest.fixture
def checks(cell: CellSpec, family: str, tmp_path: Path) -> Programs:
    """The programs that check files: the server itself, which takes its role from the name under which it is
    started.
    """
    if cell.version < (5,):
        pytest.skip("before 5.0 the checks are programs of their own")
    if cell.machine is not None:
        pytest.skip("programs beside the server run under user-mode emulators alone")
    assert cell.build is not None
    if cell.build.root is not None:
        pytest.skip("a package's server is run in the root folder of its distribution alone")
    servers = {cell.runner.target.name: cell.build, ORACLE: cell.peers[ORACLE].build}
    places = {}
    for target, build in servers.items():
        places[target] = tmp_path / target
        places[target].mkdir(exist_ok=True)
        for name in ("check-rdb", "check-aof"):
            (places[target] / f"{family}-{name}").symlink_to(build.server_binary)
    return Programs(msgspec.structs.replace(cell, programs=places), family, tmp_path)
