"""Servers with strings of half a GiB and more: enough time and memory, and one target at a time."""

from __future__ import annotations

import contextlib
import fcntl
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]
import pytest

from suites._shared.paired_servers import PairedServers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest

LARGEST = 512 * 2**20
"""Default limit of a string (proto-max-bulk-len)."""
PATIENCE = 30
COPIES = 3
"""While a string grows it can exist twice, and the other server has a copy too."""


def need_memory(length: int) -> None:
    """Skip the test if the machine has too little memory for strings of that many bytes."""
    available: int = psutil.virtual_memory().available
    if available < COPIES * length:
        pytest.skip(f"{COPIES * length >> 20} MiB of memory are needed, {available >> 20} are available")


@contextlib.contextmanager
def patient(guest: Guest, oracle: Guest, cell: CellSpec) -> Iterator[PairedServers]:
    """Guest and oracle with enough time for gigabytes, emptied again afterwards."""
    with (
        guest.client(deadline_seconds=PATIENCE * guest.deadline_seconds) as guest_client,
        oracle.client(deadline_seconds=PATIENCE * oracle.deadline_seconds) as oracle_client,
    ):
        pair = PairedServers(
            guest_client, oracle_client, target=cell.runner.target.name, seed=cell.seed, tier=cell.tier
        )
        pair.ask([["FLUSHALL"]])
        try:
            yield pair
        finally:
            # Otherwise the next test runs out of memory. A server that has ended has no keys.
            with contextlib.suppress(ConnectionError):
                pair.ask([["FLUSHALL"]])


@contextlib.contextmanager
def one_at_a_time(cell: CellSpec) -> Iterator[None]:
    """While in the context, no other cell of the run is. Skips the test in the tier quick."""
    if cell.tier == "quick":
        pytest.skip("512 MiB in each server: only in the tier full")
    cell.shared.mkdir(parents=True, exist_ok=True)
    with (cell.shared / "long-strings").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
