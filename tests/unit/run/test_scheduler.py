"""Parallel cells: a waiting cell does not occupy the slot of a computing one."""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING

import pytest

from harness.core.model import Cell
from harness.run.scheduler import IO_BOUND_PER_JOB, LONG_SECONDS, CellCount, side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 10.0
"""Time limit of a meeting, which ends at once if all expected cells can run at the same time."""


class Meeting:
    """A barrier: counts the cells that run at the same time, and holds them until the expected number has arrived."""

    def __init__(self, due: int) -> None:
        self.most = 0
        self._due = due
        self._there = 0
        self._changed = threading.Condition()

    def attend(self) -> bool:
        """Arrive and wait for the others. Returns whether they arrived."""
        with self._changed:
            self._there += 1
            self.most = max(self.most, self._there)
            self._changed.notify_all()
            came = self._changed.wait_for(lambda: self.most >= self._due, SECONDS)
            self._there -= 1
            return came


def is_waiting(name: str) -> bool:
    """Whether this work waits."""
    return name.startswith("waits")


def test_as_many_cells_compute_as_there_are_jobs_while_others_wait() -> None:
    jobs = 2
    calculating, waiting, everybody = (
        Meeting(jobs),
        Meeting(IO_BOUND_PER_JOB * jobs),
        Meeting(jobs + IO_BOUND_PER_JOB * jobs),
    )
    work = [f"{kind} {number}" for number in range(8) for kind in ("waits", "calculates")]

    def do(name: str) -> bool:
        everybody.attend()
        return (waiting if is_waiting(name) else calculating).attend()

    assert all(side_by_side(work, do, io_bound=is_waiting, jobs=jobs))
    assert (calculating.most, waiting.most) == (jobs, IO_BOUND_PER_JOB * jobs)


@pytest.mark.parametrize("waits", [is_waiting, lambda _: False], ids=["some", "none"])
def test_results_are_in_the_order_of_the_work(waits: Callable[[str], bool]) -> None:
    work = [f"{kind} {number}" for number in range(5) for kind in ("calculates", "waits")]
    assert side_by_side(work, str.upper, io_bound=waits, jobs=3) == [name.upper() for name in work]


def test_what_takes_long_starts_first_as_soon_as_that_is_known_and_leaves_one_job_to_the_rest() -> None:
    jobs = 3
    work = ["long 0", *(f"short {number}" for number in range(6)), "long 1", "long 2", "long 3"]
    known: dict[str, float] = {}
    begun: list[str] = []
    all_short, lock = threading.Event(), threading.Lock()

    def do(name: str) -> None:
        with lock:
            begun.append(name)
            last = sum(each.startswith("short") for each in begun) == 6
        if last:
            all_short.set()
        if name == "long 0":
            known["long"] = LONG_SECONDS
        elif name.startswith("long"):
            # So it is still running while the last short one starts.
            assert all_short.wait(SECONDS)

    side_by_side(work, do, io_bound=is_waiting, jobs=jobs, seconds=lambda name: known.get(name.partition(" ")[0], 0.0))
    longs = [name for name in begun if name.startswith("long")]
    assert longs == ["long 0", "long 1", "long 2", "long 3"]
    assert begun.index("long 2") < begun.index("short 5") < begun.index("long 3")


def test_what_must_be_alone_runs_last_and_one_at_a_time_beside_what_waits() -> None:
    work = ["spins 0", "waits 0", *(f"calculates {number}" for number in range(4)), "spins 1"]
    running: set[str] = set()
    beside: dict[str, set[str]] = {}
    both_spun, lock = threading.Event(), threading.Lock()

    def do(name: str) -> None:
        with lock:
            running.add(name)
            beside[name] = {*running}
            if {"spins 0", "spins 1"} <= {*beside}:
                both_spun.set()
        if name == "waits 0":
            assert both_spun.wait(SECONDS)
        else:
            time.sleep(0.01)
        with lock:
            running.discard(name)

    side_by_side(work, do, io_bound=is_waiting, jobs=3, alone=lambda name: name.startswith("spins"))
    assert (beside["spins 0"], beside["spins 1"]) == ({"spins 0", "waits 0"}, {"spins 1", "waits 0"})
    assert [name for name in beside if not name.startswith("waits")][-2:] == ["spins 0", "spins 1"]


def test_a_failure_of_what_waits_ends_the_work_before_the_rest_has_ended() -> None:
    begun = []
    failed = threading.Event()

    def do(name: str) -> None:
        begun.append(name)
        if is_waiting(name):
            failed.set()
            raise ValueError(name)
        assert failed.wait(SECONDS)
        time.sleep(0.01)

    work = [*(f"calculates {number}" for number in range(1000)), "waits", "spins"]
    with pytest.raises(ValueError, match="waits"):
        side_by_side(work, do, io_bound=is_waiting, jobs=1, alone=lambda name: name == "spins")
    assert "spins" not in begun
    assert len(begun) < len(work)


def test_after_a_failure_no_work_starts() -> None:
    begun = []
    failed = threading.Event()

    def do(number: int) -> None:
        begun.append(number)
        if number == 0:
            failed.set()
            raise ValueError(number)
        # So slow that all the work together would exceed any test's time limit.
        failed.wait(SECONDS)
        time.sleep(0.01)

    with pytest.raises(ValueError, match="0"):
        side_by_side(range(1000), do, io_bound=lambda _: False, jobs=1)
    assert len(begun) < len(range(1000))


def test_a_run_shows_how_many_cells_have_ended_and_which_are_running() -> None:
    def cell(suite: str) -> Cell:
        return Cell(target="armv5", server="redis-7.0.15", suite=suite)

    cells = CellCount(3)
    assert cells.state() == "0/3 ended"
    with cells.running(cell("bitops")):
        with cells.running(cell("fuzz")):
            going_on = re.sub(r"\d+ s", "0 s", cells.state())
            assert going_on == "0/3 ended, armv5/bitops for 0 s, armv5/fuzz for 0 s"
        assert cells.state().startswith("1/3 ended, nothing new so far, armv5/bitops for ")
        cells.add_failed()
        assert cells.state().startswith("1/3 ended, new failures in 1, armv5/bitops for ")
    assert cells.state() == "2/3 ended, new failures in 1"
