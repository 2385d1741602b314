"""Decides whether memory order is to blame for a failure in a run with another memory order than the host's, and which
two stores are enough for it.

The failed tests ran again on the same machine, in the host's order (CellRecord.ordered) and while stores waited
(CellRecord.delayed). A failure is blamed on memory order only if no run in order shows it, and so many of the others do
that this is no matter of chance. One fault has many effects, and the next run may end by another crash: if no run in
order fails the test at all, each failure of it counts. A time limit that expires proves nothing: the emulator is slower
while stores wait.

Some of the runs allowed only one store to overtake one other. If the failure comes then as well, these two are the
place.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from harness.analysis import unwind
from harness.core.digests import sha256_of
from harness.judge.opinions.second_opinion import Repetition, has_time_limit, is_same_failure
from harness.judge.sightings.overtakes import sentence_of
from harness.judge.sightings.places import symbols_of
from harness.record import fault_log, run_folder, stored_run
from harness.record.cell_events import ANSWERS_NOBODY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.analysis.symbols import Symbols
    from harness.core.model import StorePair
    from harness.judge.sightings.sighting import Sighting
    from harness.record.cell_events import TestEvent
    from harness.record.fault_log import Overtake
    from harness.record.run_record import CellRecord, HostRun, RunRecord

_Run = TypeVar("_Run", bound="HostRun")
CHANCE = 0.05
"""How probable it may be at most that runs in order and others differ by chance."""

OrderClass = Literal["reordered", "usual", "late", "unsure", ""]
"""reordered: no run in order shows it, and others do. usual: one in order does. late: none does, but it is a time limit
that expired. unsure: none does, and too few of the others. Empty: there is no answer.
"""


def is_rarer(shown: int, runs: int, in_order: int) -> bool:
    """Whether a failure in some `runs` and in none of those in order is more than chance (Fisher's exact test)."""
    return bool(shown) and math.comb(runs, shown) <= CHANCE * math.comb(runs + in_order, shown)


class StorePlace(NamedTuple):
    """The two stores that are enough for a failure."""

    pair: StorePair
    sentence: str
    """Their functions and lines, and those of a load that saw them."""
    program: str
    """SHA-256 of the program that contains both; empty if one is in a library, or if the program is gone."""


class OrderOpinion(NamedTuple):
    """What the runs say of a failure."""

    which: OrderClass
    rates: str = ""
    """How many runs of each kind show it, in a sentence; empty if there were none while stores waited."""
    place: StorePlace | None = None
    replays: int = 1
    """How many runs show it at least once, with the probability 1 - CHANCE."""


class InOrder:
    """What the same machine did in the tests that failed in a cell, in order and not."""

    def __init__(self, cell: Path, run: RunRecord, record: CellRecord) -> None:
        self._run, self._record = run, record
        numbered = [(run_folder.ordered_folder(cell, number), one) for number, one in enumerate(record.ordered, 1)]
        self.problem = next((one.problem for one in [*record.ordered, *record.delayed] if one.problem), "")
        """Why there is no answer although a test failed; empty if there is one, or none was asked for."""
        self._ordered = self._read(numbered)
        self._delayed = self._read(
            [(run_folder.delayed_folder(cell, number), one) for number, one in enumerate(record.delayed, 1)]
        )

    def _read(self, runs: Sequence[tuple[Path, _Run]]) -> list[tuple[_Run, Repetition]]:
        read = []
        for folder, one in runs if not self.problem else []:
            again = Repetition(folder, self._run, self._record, one.seal)
            self.problem = self.problem or next(iter(again.doubts), "")
            read.append((one, again))
        return read

    def opinion_on(self, one: Sighting, test: TestEvent | None) -> OrderOpinion:
        """The opinion on a sighting. `test`: the failed test that showed it."""
        in_order = _shown(self._ordered, one, test) if test is not None and not self.problem else []
        if test is None or not in_order:
            return OrderOpinion("")
        if any(in_order):
            return OrderOpinion("usual")
        if has_time_limit(test.message) or (one.kind == "hang" and not _proves_hang(test.message)):
            return OrderOpinion("late")
        return self._compared(one, test, len(in_order))

    def _compared(self, one: Sighting, test: TestEvent, in_order: int) -> OrderOpinion:
        """The opinion on a sighting that no run in order shows."""
        counted = _shown if one.launched is not None or any(_failed(self._ordered, one, test)) else _failed
        usual = [(each, again) for each, again in self._delayed if each.seed is None]
        delayed = counted(usual, one, test)
        if not delayed:
            return OrderOpinion("reordered")
        shown, runs = sum(delayed), len(delayed)
        rates = f"{shown} of {runs} runs failed while stores waited, and none of {in_order} in order"
        if not is_rarer(shown, runs, in_order):
            return OrderOpinion("unsure", f"{rates}: this may be chance")
        for pair in dict.fromkeys(each.pair for each, _ in self._delayed if each.pair is not None):
            of_pair = [(each, again) for each, again in self._delayed if each.pair == pair]
            alone = counted(of_pair, one, test)
            place = self._place(pair)
            if place is not None and is_rarer(sum(alone), len(alone), in_order):
                rates += f"; {sum(alone)} of {len(alone)} failed if only these two stores were reordered"
                return OrderOpinion("reordered", rates, place, _replays(_shown(of_pair, one, test)))
        return OrderOpinion("reordered", rates, None, _replays(_shown(usual, one, test)))

    def _place(self, pair: StorePair) -> StorePlace | None:
        """The pair in words; None if no log has it."""
        for _, again in self._delayed:
            for log in sorted(again.folder.glob(f"guest-*/{fault_log.NAME}")):
                for one in stored_run.read_fault_log(log).overtakes:
                    if (one.early, one.late) == (pair.early, pair.late):
                        symbols = symbols_of(self._run, self._record, log.parent)
                        return StorePlace(pair, sentence_of(one, symbols), _program_of(one, symbols))
        return None


def _program_of(one: Overtake, symbols: Symbols) -> str:
    """The digest of the program that contains both stores of an overtake; empty if a library does."""
    program = symbols.program.path if symbols.program is not None else symbols.server_binary
    places = (unwind.locate(one.maps, pc) for pc in (one.early, one.late))
    names = {Path(place[0].path).name if place is not None else "" for place in places}
    return sha256_of(Path(program)) if names == {Path(program).name} and Path(program).is_file() else ""


def _replays(shown: list[bool]) -> int:
    """How many runs a failure needs to be shown once, if some runs showed it. The next one may not."""
    return math.ceil(math.log(CHANCE) / math.log(1 - max(1, sum(shown)) / (len(shown) + 1)))


def _shown(runs: Sequence[tuple[HostRun, Repetition]], one: Sighting, test: TestEvent) -> list[bool]:
    """Whether each run of the test, or of the program that the sighting is about, showed the same."""
    program = one.launched.name if one.launched is not None and one.detector != "suite" else ""
    return [
        _shows(again, one, test)
        for each, again in runs
        if test.name in again.results and (not program or not each.launch or each.launch == program)
    ]


def _failed(runs: Sequence[tuple[HostRun, Repetition]], one: Sighting, test: TestEvent) -> list[bool]:
    """Whether each run of the test failed in any way, except by a time limit, or by a hang that may be slowness."""
    del one  # as `_shown`
    return [_fails(again, test.name) for _, again in runs if test.name in again.results]


def _fails(again: Repetition, test: str) -> bool:
    result = again.results[test]
    if any(one.kind == "hang" for one in again.sightings if one.test == test) and not _proves_hang(result.message):
        return False
    return result.outcome == "failed" and not has_time_limit(result.message)


def _proves_hang(message: str) -> bool:
    """Whether a test has seen a hang that is no slowness."""
    return ANSWERS_NOBODY in message


def _shows(again: Repetition, one: Sighting, test: TestEvent) -> bool:
    if one.detector == "suite":
        return is_same_failure(test, again.results[test.name])
    return any((one.test, one.identity) == (other.test, other.identity) for other in again.sightings)
