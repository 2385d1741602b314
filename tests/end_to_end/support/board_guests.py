"""A server on a board, as a cell starts it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from harness.run.boards.board_guest import BoardGuest
from harness.run.boards.reached_machine import ReachedMachine
from harness.run.machines import guest_of
from harness.run.servers.server_spec import ServerSpec
from harness.workflows.target_setup import set_up_target
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def guest_on(board: Path, folder: Path, server: str = "redis-7.0.15") -> Iterator[BoardGuest]:
    """A server on an ARMv5 board. `folder`: for its evidence, and its socket."""
    bench = machines.quiet_workbench().on_board(board)
    setup = set_up_target(bench, bench.catalog.targets["armv5"])
    tree = bench.open_server(server)
    build = setup.build(tree, "O2")
    runner = setup.runner("signal")
    image = setup.board_image(build, runner.policy)
    assert image is not None
    host = ReachedMachine(image)
    spec = ServerSpec(build=build, version=tree.version)
    try:
        with guest_of(spec, runner, folder / "guest-1", host=host, sockets=folder) as guest:
            assert isinstance(guest, BoardGuest)
            yield guest
    finally:
        host.close()
