"""Runs a cell's failed tests again, in the host's memory order and while stores wait, until it is clear whether memory
order is to blame, and which two stores are enough for it.

Only chance decides whether a test fails, so the number of runs depends on how often it does. The runs are evidence:
harness.judge.opinions.in_order judges them.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from harness.core.model import StorePair
from harness.judge.opinions.in_order import is_rarer
from harness.judge.opinions.second_opinion import has_time_limit
from harness.record import event_log, run_folder, stored_run
from harness.record.cell_events import TestEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.finding import Frame
    from harness.record.fault_log import Overtake
    from harness.record.run_record import DelayedRun, HostRun

FEWEST = 3
"""How often the tests run in each order at least."""
MOST = 10
"""How often they run at most while stores wait."""
TIMES_IN_ORDER = 2
"""How many times as often they run in order at most: those runs are short, and each makes the others say more."""
MOST_TO_SEE = 4
"""How many failures are awaited until a log names stores that a thread saw early where the program failed."""
MOST_BLIND = 20
"""The same while no log names any. A small program that fails at once often leaves none."""
MOST_PAIRS = 8
"""How many pairs of stores are tried alone, each FEWEST times at most."""
MOST_SECONDS = 600.0
"""No run of a cell that compares begins later."""
PLACING_SECONDS = 150.0
"""No run that looks for the stores begins later: so long after it is clear that memory order is to blame."""

SHORTEST_SECONDS = 5.0
TIMES_LONGER = 4
"""In that search a load lasts so many times as long as it took on average until the test failed. Most runs fail sooner,
and few that could fail do not.
"""


class DelayedLoad(NamedTuple):
    """How tests run while stores wait."""

    seed: int | None
    """As in DelayedRun."""
    pair: StorePair | None
    """As in DelayedRun."""
    limit_seconds: float | None
    """As in CellSpec."""


class _Nearness(NamedTuple):
    """How many names of a place the logs of programs that failed have."""

    of_load: int
    of_stores: int


class Again(Protocol):
    """Runs failed tests once more. Each run has a folder for its evidence, and is sealed."""

    def frames(self, one: Overtake) -> tuple[Frame, Frame, Frame]:
        """As harness.judge.sightings.overtakes.frames_of."""

    def in_order(self, tests: Sequence[str], folder: Path) -> HostRun:
        """One run in the host's memory order."""

    def delayed(self, tests: Sequence[str], folder: Path, how: DelayedLoad) -> DelayedRun:
        """One run while stores wait."""


def names_of(frame: Frame) -> tuple[str, ...]:
    """What a log may call a place in a program."""
    file = Path(frame.file).name
    return frame.function, file, f"{file}:{frame.line}"


class OrderTrials:
    """The further runs of some of a cell's failed tests. `ordered` and `delayed` become part of its record."""

    def __init__(self, cell: Path, again: Again, *, after: OrderTrials | None = None) -> None:
        """`after`: trials of other tests of the cell, whose runs precede these."""
        self.ordered: list[HostRun] = list(after.ordered) if after is not None else []
        self.delayed: list[DelayedRun] = list(after.delayed) if after is not None else []
        self._cell = cell
        self._again = again
        self._first = len(self.ordered), len(self.delayed)
        self._end: float = (
            after._end if after is not None else time.monotonic() + MOST_SECONDS  # noqa: SLF001 - its own class
        )
        self._placed_by: float | None = None
        """When the search for the stores ends, once it has begun."""
        self._limit_seconds: float | None = None
        """How long a load lasts in that search."""

    def run(self, tests: Sequence[str], late: Sequence[str]) -> None:
        """Run tests until they are judged. `late`: those of them that failed because a time limit expired, which the
        delays explain.
        """
        in_order, delayed, alone = _Counts(tests), _Counts(tests), _Counts(tests)
        self._in_order(in_order, FEWEST)
        suspected = [name for name in tests if name not in late and not in_order.shown[name]]
        if not suspected:
            return
        in_order.tests = delayed.tests = alone.tests = suspected
        self._compare(in_order, delayed)
        blamed = [name for name in in_order.unseen if is_rarer(delayed.shown[name], delayed.runs, in_order.runs)]
        if blamed:
            self._placed_by = time.monotonic() + PLACING_SECONDS
            # One finding has one place, and each test more makes a run longer.
            quickest = delayed.quickest(blamed)
            in_order.tests = alone.tests = [quickest]
            self._limit_seconds = max(SHORTEST_SECONDS, TIMES_LONGER * delayed.seconds_to_fail(quickest))
            self._place(in_order, delayed, alone)

    def _place(self, in_order: _Counts, delayed: _Counts, alone: _Counts) -> None:
        """Find a pair of stores with which one test fails."""
        seeing, tried = _Counts(alone.tests), Counter[StorePair]()
        while self._may_run():
            found = self._pairs([*delayed.failed, *seeing.failed])
            is_seen = bool(found) and found[0][0].of_load > 0
            most_failed, most_runs = (MOST_TO_SEE, MOST) if found else (MOST_BLIND, MOST_BLIND)
            if not is_seen and len(seeing.failed) < most_failed and seeing.runs < most_runs:
                self._delayed(seeing, pauses=True)
                continue
            untried = [pair for _, pair in found[:MOST_PAIRS] if tried[pair] < FEWEST]
            if not untried:
                return
            # Each once, then each again: a pair that is enough shows it in most runs, and others in none.
            pair = min(untried, key=tried.__getitem__)
            tried[pair] += 1
            alone.reset()
            self._delayed(alone, pair=pair)
            if any(alone.shown.values()):
                self._compare(in_order, alone, pair)
                return

    def _compare(self, in_order: _Counts, delayed: _Counts, pair: StorePair | None = None) -> None:
        """Run both ways until it is clear which tests fail more often while stores wait."""
        while in_order.unseen and not all(
            is_rarer(delayed.shown[name], delayed.runs, in_order.runs) for name in in_order.unseen
        ):
            is_shown = any(delayed.shown[name] for name in in_order.unseen)
            if is_shown and delayed.runs >= FEWEST and in_order.runs < TIMES_IN_ORDER * delayed.runs:
                goes_on = self._in_order(in_order, 1)
            else:
                goes_on = delayed.runs < MOST and self._delayed(delayed, pair=pair)
            if not goes_on:
                return

    def _pairs(self, folders: Sequence[Path]) -> list[tuple[_Nearness, StorePair]]:
        """The pairs of stores that other threads saw in runs that failed, the likeliest first: those seen where a
        program's log says that it failed, those of such a place, those seen in most runs, and those seen last.
        """
        runs: Counter[StorePair] = Counter()
        nearness: dict[StorePair, _Nearness] = {}
        for folder in folders:
            words = _words_of_logs(folder)
            here: set[StorePair] = set()
            for one in reversed(stored_run.overtakes(folder)):
                pair = StorePair(early=one.early, late=one.late)
                load, *stores = (sum(name in words for name in names_of(frame)) for frame in self._again.frames(one))
                near = _Nearness(load, sum(stores))
                nearness[pair] = max(nearness.get(pair, near), near)
                if pair not in here:
                    here.add(pair)
                    runs[pair] += 1
        # The order of `runs` decides between pairs that are alike.
        likeliest = sorted(runs, key=lambda pair: (nearness[pair], runs[pair]), reverse=True)
        return [(nearness[pair], pair) for pair in likeliest]

    def _in_order(self, counts: _Counts, times: int) -> bool:
        """Run the tests in order. False if a run has no result, or there is no time left."""
        for _ in range(times):
            folder = run_folder.ordered_folder(self._cell, len(self.ordered) + 1)
            if not self._may_run():
                return False
            self.ordered.append(self._again.in_order(counts.tests, folder))
            counts.add(folder)
        return self._may_run()

    def _delayed(self, counts: _Counts, *, pauses: bool = False, pair: StorePair | None = None) -> bool:
        """Run the tests once while stores wait. False if that has no result, or there is no time left."""
        if not self._may_run():
            return False
        number = len(self.delayed) + 1
        folder = run_folder.delayed_folder(self._cell, number)
        # Each seed has threads that never pause for a while.
        seed = number if pauses or pair is not None else None
        how = DelayedLoad(seed, pair, self._limit_seconds)
        self.delayed.append(self._again.delayed(counts.tests, folder, how))
        counts.add(folder)
        return self._may_run()

    def _may_run(self) -> bool:
        ordered, delayed = self._first
        is_broken = any(one.problem for one in [*self.ordered[ordered:], *self.delayed[delayed:]])
        return not is_broken and time.monotonic() < (self._end if self._placed_by is None else self._placed_by)


class _Counts:
    """How often tests failed in some runs."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.tests = tests
        self.reset()

    def reset(self) -> None:
        self.runs = 0
        self.shown: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        """How long each took, in all runs."""
        self.failed: list[Path] = []
        """The folders of runs in which a test failed."""

    @property
    def unseen(self) -> list[str]:
        """The tests that failed in no run."""
        return [name for name in self.tests if not self.shown[name]]

    def quickest(self, names: Sequence[str]) -> str:
        """The test of these whose failures come soonest, one after the other."""
        return min(names, key=self.seconds_to_fail)

    def seconds_to_fail(self, name: str) -> float:
        """How long a test takes until it fails, runs that did not fail included."""
        return self.seconds[name] / max(1, self.shown[name])

    def add(self, folder: Path) -> None:
        events = event_log.read(folder / event_log.NAME).events
        failed = {
            one.name
            for one in events
            if isinstance(one, TestEvent) and one.outcome == "failed" and not has_time_limit(one.message)
        }
        for one in events:
            if isinstance(one, TestEvent):
                self.seconds[one.name] += math.ceil(one.seconds)
        self.runs += 1
        self.shown.update(failed.intersection(self.tests))
        self.failed += [folder] if failed else []


def _words_of_logs(folder: Path) -> set[str]:
    """The words that the programs of a run printed, the names of files among them, alone and with a line."""
    logs = (log.read_bytes() for log in [*folder.glob("guest-*/log"), *folder.glob("log")] if log.is_file())
    return {
        word.decode("ascii", "replace")
        for log in logs
        for found in re.finditer(rb"([\w.]+)(:\d+)?", log)
        for word in {found[0], found[1]}
    }
