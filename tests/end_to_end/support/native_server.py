"""The default release's native server, for tests of clients."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.target_model import ORACLE
from harness.plan.catalog import DEFAULT_SERVER
from harness.run.server_process import Guest
from harness.run.servers.server_spec import ServerSpec
from tests.end_to_end.support.machines import quiet_workbench, set_up

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def native_server(folder: Path) -> Iterator[Guest]:
    """A server that runs meanwhile, with its files below a folder."""
    tree = quiet_workbench().open_server(DEFAULT_SERVER)
    setup = set_up((ORACLE,))[ORACLE]
    with (
        tempfile.TemporaryDirectory(prefix="plumbline-") as sockets,
        Guest(
            ServerSpec(build=setup.build(tree, "O2"), version=tree.version),
            setup.runner("signal"),
            folder / "guest-1",
            sockets=Path(sockets),
        ) as guest,
    ):
        yield guest
