"""Runs cells in parallel: as many CPU-bound cells as there are jobs, and more cells that are I/O-bound. Counts them."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from harness.core.model import Cell

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


class CellCount:
    """How many cells of a run have ended, in how many tests failed, and which continue. Several threads use it."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._ended = 0
        self._failed = 0
        self._started: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def running(self, cell: Cell) -> Iterator[None]:
        """Count a cell as one that continues, and then as one that has ended."""
        name = f"{cell.target}/{cell.suite}"
        with self._lock:
            self._started[name] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._started[name]
                self._ended += 1

    def add_failed(self) -> None:
        """Tests of a cell failed."""
        with self._lock:
            self._failed += 1

    def state(self) -> str:
        """`3/12 ended, tests failed in 1, armv5/fuzz for 41 s`."""
        now = time.monotonic()
        with self._lock:
            going_on = [f"{name} for {now - started:.0f} s" for name, started in self._started.items()]
            failed = f"tests failed in {self._failed}" if self._failed else "no test failed so far"
            so_far = [failed] if self._ended else []
            return ", ".join([f"{self._ended}/{self._total} ended", *so_far, *going_on])
