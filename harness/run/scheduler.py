"""Runs cells in parallel: as many CPU-bound cells as there are jobs, and more cells that are I/O-bound. Counts them."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from harness.core.model import Cell

Work = TypeVar("Work")
Done = TypeVar("Done")

IO_BOUND_PER_JOB = 2
"""I/O-bound cells per job: each of them takes a sixth of a processor, as measured with a cluster's nodes."""


LONG_SECONDS = 30.0
"""Work that takes longer should not begin last, when nothing is left that could run beside it."""


def side_by_side(
    work: Iterable[Work],
    do: Callable[[Work], Done],
    *,
    io_bound: Callable[[Work], bool],
    jobs: int,
    seconds: Callable[[Work], float] = lambda _: 0.0,
    alone: Callable[[Work], bool] = lambda _: False,
) -> list[Done]:
    """Do every piece of work, and return the results in the given order.

    `jobs` CPU-bound pieces run at a time, and IO_BOUND_PER_JOB times as many I/O-bound ones beside them. They start in
    the given order, except that the longest CPU-bound ones start first, on all jobs but one. `seconds`: how long a
    piece takes, as far as that is known by now. CPU-bound pieces that must be `alone` run after all others, one at a
    time. Raises the exception of the first piece that failed; pieces that have not started by then are cancelled.
    """
    pieces = list(work)
    waiting = [number for number, piece in enumerate(pieces) if io_bound(piece)]
    busy = sorted({*range(len(pieces))}.difference(waiting))
    single = [number for number in busy if alone(pieces[number])]
    several = sorted({*busy}.difference(single))
    queue = _Queue({number: pieces[number] for number in several}, seconds, jobs)
    done: dict[int, Done] = {}

    def do_one(taken: AbstractContextManager[int]) -> None:
        with taken as number:
            done[number] = do(pieces[number])

    with (
        ThreadPoolExecutor(jobs) as calculating,
        ThreadPoolExecutor(1) as one_by_one,
        ThreadPoolExecutor(IO_BOUND_PER_JOB * jobs) as beside,
    ):
        calculated = [calculating.submit(do_one, queue.taken()) for _ in several]
        futures = [*calculated, *(beside.submit(do_one, contextlib.nullcontext(number)) for number in waiting)]
        try:
            ended, left = as_completed(futures), {*calculated}
            while left:
                future = next(ended)
                future.result()
                left.discard(future)
            futures += [one_by_one.submit(do_one, contextlib.nullcontext(number)) for number in single]
            for future in as_completed(futures):
                future.result()
        finally:
            for future in futures:
                future.cancel()
    return [done[number] for number in range(len(pieces))]


class _Queue(Generic[Work]):
    """The CPU-bound pieces that have not started."""

    def __init__(self, left: dict[int, Work], seconds: Callable[[Work], float], jobs: int) -> None:
        self._left = left
        self._seconds = seconds
        self._most_long = max(jobs - 1, 1)
        self._long = 0
        """How many long pieces run."""
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def taken(self) -> Iterator[int]:
        """The number of the piece to do next, while it is done."""
        with self._lock:
            seconds = {number: self._seconds(piece) for number, piece in self._left.items()}
            number = self._next(seconds)
            is_long = seconds[number] >= LONG_SECONDS
            del self._left[number]
            self._long += is_long
        try:
            yield number
        finally:
            with self._lock:
                self._long -= is_long

    def _next(self, seconds: Mapping[int, float]) -> int:
        longest = max(seconds, key=lambda number: seconds[number])
        if seconds[longest] >= LONG_SECONDS and self._long < self._most_long:
            return longest
        return next((number for number, each in seconds.items() if each < LONG_SECONDS), longest)


class CellCount:
    """How many cells of a run have ended, how many have new failures, and which continue. Several threads use it."""

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
        """A cell has failed tests that are not known to fail."""
        with self._lock:
            self._failed += 1

    def state(self) -> str:
        """`3/12 ended, new failures in 1, armv5/fuzz for 41 s`."""
        now = time.monotonic()
        with self._lock:
            going_on = [f"{name} for {now - started:.0f} s" for name, started in self._started.items()]
            failed = f"new failures in {self._failed}" if self._failed else "nothing new so far"
            so_far = [failed] if self._ended else []
            return ", ".join([f"{self._ended}/{self._total} ended", *so_far, *going_on])
