"""Which cells run beside each other: as many that calculate as there are jobs, and with them some that mostly wait."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Work = TypeVar("Work")
Done = TypeVar("Done")

WAITING = 2
"""How many that mostly wait there are for each job: they take a sixth of a processor each (suites/cluster)."""


def side_by_side(
    work: Iterable[Work], do: Callable[[Work], Done], *, waits: Callable[[Work], bool], jobs: int
) -> list[Done]:
    """Do all of it, and tell what came of it, in the order of `work`, in which it is begun as well.

    `jobs` pieces are done at a time, and beside them WAITING times as many of those that wait. Raises what the first
    piece that failed raised; those that have not begun by then never do.
    """
    with ThreadPoolExecutor(jobs) as busy, ThreadPoolExecutor(WAITING * jobs) as waiting:
        promised = [(waiting if waits(one) else busy).submit(do, one) for one in work]
        try:
            return [one.result() for one in promised]
        finally:
            for one in promised:
                one.cancel()
