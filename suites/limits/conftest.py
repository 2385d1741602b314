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
    """The programs that check files. They are the server itself, whose name determines its role."""
    # An older server under such a name starts as a server, so it cannot be asked.
    if cell.version < (5,):
        pytest.skip("before 5.0 the checks are separate programs")
    if cell.machine is not None:
        pytest.skip("programs other than the server run only under user-mode emulators")
    assert cell.build is not None
    if cell.build.root is not None:
        pytest.skip("a package's server runs only in the root folder of its distribution")
    servers = {cell.runner.target.name: cell.build, ORACLE: cell.peers[ORACLE].build}
    places = {}
    for target, build in servers.items():
        places[target] = tmp_path / target
        places[target].mkdir(exist_ok=True)
        for name in ("check-rdb", "check-aof"):
            (places[target] / f"{family}-{name}").symlink_to(build.server_binary)
    return Programs(msgspec.structs.replace(cell, programs=places), family, tmp_path)
