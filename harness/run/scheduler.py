"""Runs cells in parallel: as many CPU-bound cells as there are jobs, and more cells that are I/O-bound."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Work = TypeVar("Work")
Done = TypeVar("Done")

IO_BOUND_PER_JOB = 2
"""I/O-bound cells per job: each of them takes a sixth of a processor, as measured with a cluster's nodes."""


def side_by_side(
    work: Iterable[Work], do: Callable[[Work], Done], *, io_bound: Callable[[Work], bool], jobs: int
) -> list[Done]:
    """Do every piece of work, starting in the given order, and return the results in that order.

    `jobs` CPU-bound pieces run at a time, and IO_BOUND_PER_JOB times as many I/O-bound ones beside them. Raises the
    exception of the first piece that failed; pieces that have not started by then are cancelled.
    """
    with ThreadPoolExecutor(jobs) as busy, ThreadPoolExecutor(IO_BOUND_PER_JOB * jobs) as waiting:
        futures = [(waiting if io_bound(piece) else busy).submit(do, piece) for piece in work]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
