"""Failed tests run again as often as their rate demands, in order and not, and then with single pairs of stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.core import json_codec
from harness.core.finding import Frame
from harness.core.model import StorePair
from harness.judge.opinions.in_order import is_rarer
from harness.record import cell_events, event_log, fault_log
from harness.record.run_record import DelayedRun, HostRun
from harness.workflows.trials import order_trials
from harness.workflows.trials.order_trials import FEWEST, MOST, MOST_BLIND, MOST_TO_SEE, TIMES_IN_ORDER, OrderTrials

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from harness.record.fault_log import Overtake
    from harness.workflows.trials.order_trials import DelayedLoad

TEST = "order/test_order.py::test_values"
RIGHT, OTHER = StorePair(early=8, late=4), StorePair(early=40, late=36)
NEAR = StorePair(early=48, late=44)
COUNTED = StorePair(early=64, late=4)
"""It was seen as RIGHT was, but its early store is a counter's."""
PUSH, IS_FULL = ("push", "queue.c", 66), ("is_full", "queue.c", 49)
READERS = {RIGHT.early: PUSH, NEAR.early: IS_FULL, COUNTED.early: PUSH}
STORES = {8: ("pop", "queue.c", 12), 4: ("pop", "queue.c", 11)}
ELSEWHERE = ("memcpy", "memcpy.S", 0)
LINE = {"event": "overtake", "pid": 1, "tid": 2, "pc": 16, "early_place": 0, "late_place": 8, "maps": []}


class Program:
    """A program that fails by rule: it leaves the evidence of each run."""

    def __init__(
        self,
        *,
        in_order: Callable[[int], bool] = lambda _: False,
        delayed: Callable[[int], bool] = lambda _: True,
        seen: Sequence[StorePair] = (OTHER, OTHER, RIGHT),
        seen_first: Sequence[StorePair] = (),
        needs_pauses: bool = False,
        needed: StorePair | None = RIGHT,
        problem: str = "",
        message: str = "",
        seconds: Mapping[str, float] | None = None,
    ) -> None:
        """`in_order`, `delayed`: whether the Nth run of a kind fails. `seen`: the pairs in its log when it fails.
        `needs_pauses`: only if threads pause, and `seen_first` otherwise. `needed`: the pair that is enough. `seconds`:
        how long each test takes.
        """
        self._fails = {False: in_order, True: delayed}
        self._runs = {False: 0, True: 0}
        self._seen = seen
        self._seen_first = seen_first
        self._seconds = seconds or {}
        self.tests: list[Sequence[str]] = []
        """What ran, in each run while stores waited."""
        self.limits: list[float | None] = []
        """How long loads lasted in each."""
        self._needs_pauses = needs_pauses
        self._needed = needed
        self._problem = problem
        self._message = message
        """Of each failure while stores wait."""

    def frames(self, one: Overtake) -> tuple[Frame, Frame, Frame]:
        places = READERS.get(one.early), STORES.get(one.early), STORES.get(one.late)
        load, early, late = (_frame(place or ELSEWHERE) for place in places)
        return load, early, late

    def in_order(self, tests: Sequence[str], folder: Path) -> HostRun:
        self._leave(tests, folder, failed=self._next(is_delayed=False), seen=[])
        return HostRun(problem=self._problem, seal="")

    def delayed(self, tests: Sequence[str], folder: Path, how: DelayedLoad) -> DelayedRun:
        seed, pair, limit_seconds = how
        self.limits.append(limit_seconds)
        failed = pair == self._needed if pair is not None else self._next(is_delayed=True)
        is_late = self._needs_pauses and seed is None
        seen = [] if pair is not None or not failed else self._seen_first if is_late else self._seen
        self.tests.append(tests)
        self._leave(tests, folder, failed=failed, seen=seen)
        return DelayedRun(problem="", seal="", seed=seed, pair=pair)

    def _next(self, *, is_delayed: bool) -> bool:
        self._runs[is_delayed] += 1
        return self._fails[is_delayed](self._runs[is_delayed])

    def _leave(self, tests: Sequence[str], folder: Path, *, failed: bool, seen: Sequence[StorePair]) -> None:
        guest = folder / "guest-1"
        guest.mkdir(parents=True)
        log = event_log.EventLog(folder / event_log.NAME)
        for name in tests:
            log.append(
                cell_events.TestEvent(
                    name=name,
                    outcome="failed" if failed else "passed",
                    seconds=self._seconds.get(name, 0.1),
                    message=self._message if failed else "",
                )
            )
        log.close(tests=len(tests), failed=len(tests) * failed)
        (guest / "log").write_text("ASSERTION FAILED ==> queue.c:66 'slot == NULL' is not true", "utf-8")
        lines = [json_codec.encode({**LINE, "early": one.early, "late": one.late}) + b"\n" for one in seen]
        (guest / fault_log.NAME).write_bytes(b"".join(lines))


def _frame(place: tuple[str, str, int]) -> Frame:
    function, file, line = place
    return Frame(function=function, file=f"src/{file}", line=line, origin="server", pc=0)


def trials(tmp_path: Path, program: Program, *, late: Sequence[str] = ()) -> OrderTrials:
    done = OrderTrials(tmp_path, program)
    done.run([TEST], late)
    return done


def test_a_test_that_always_fails_while_stores_wait_needs_few_runs(tmp_path: Path) -> None:
    done = trials(tmp_path, Program())
    assert len(done.ordered) == FEWEST
    assert [one.pair for one in done.delayed] == [None] * FEWEST + [RIGHT] * FEWEST


def test_a_test_that_seldom_fails_runs_more_often_and_in_order_above_all(tmp_path: Path) -> None:
    done = trials(tmp_path, Program(delayed=lambda number: number % 3 == 0, seen=()))
    (delayed, ordered) = (len([one for one in done.delayed if one.seed is None]), len(done.ordered))
    assert FEWEST < delayed < MOST
    assert delayed < ordered <= TIMES_IN_ORDER * delayed


def test_few_failures_count_beside_many_runs_in_order(tmp_path: Path) -> None:
    done = trials(tmp_path, Program(delayed=lambda number: number in {4, 7, 10}, seen=()))
    assert len(done.delayed) > MOST
    assert is_rarer(3, MOST, len(done.ordered))
    assert not is_rarer(3, MOST, MOST)


@pytest.mark.parametrize("fails_in", [1, 3])
def test_a_test_that_fails_in_order_is_not_asked_again(tmp_path: Path, fails_in: int) -> None:
    done = trials(tmp_path, Program(in_order=lambda number: number == fails_in))
    assert (len(done.ordered), done.delayed) == (FEWEST, [])


def test_a_test_that_never_fails_again_has_no_pair(tmp_path: Path) -> None:
    done = trials(tmp_path, Program(delayed=lambda _: False))
    assert (len(done.delayed), {one.pair for one in done.delayed}) == (MOST, {None})


def test_a_time_limit_that_expires_again_is_no_failure(tmp_path: Path) -> None:
    """harness.judge.opinions.in_order does not count it either."""
    done = trials(tmp_path, Program(message="TimeoutError: timed out"))
    assert (len(done.delayed), {one.pair for one in done.delayed}) == (MOST, {None})


def test_a_time_limit_that_expired_is_not_asked_while_stores_wait(tmp_path: Path) -> None:
    done = trials(tmp_path, Program(), late=[TEST])
    assert (len(done.ordered), done.delayed) == (FEWEST, [])


def test_the_pair_that_was_seen_where_the_program_failed_is_tried_first(tmp_path: Path) -> None:
    done = trials(tmp_path, Program())
    assert [one.pair for one in done.delayed if one.pair is not None] == [RIGHT] * FEWEST


def test_no_pair_is_tried_again_before_each_was_tried_once(tmp_path: Path) -> None:
    done = trials(tmp_path, Program(needed=OTHER))
    tried = [one.pair for one in done.delayed if one.pair is not None]
    assert tried == [RIGHT, *[OTHER] * FEWEST]


def test_pairs_that_are_not_enough_are_tried_a_few_times(tmp_path: Path) -> None:
    done = trials(tmp_path, Program(seen=[OTHER, RIGHT], needed=NEAR))
    assert [one.pair for one in done.delayed if one.pair is not None] == [RIGHT, OTHER] * FEWEST


def test_of_pairs_seen_by_one_load_those_of_its_file_come_first(tmp_path: Path) -> None:
    """Many stores of a thread pass the one that matters, such as those of its counters."""
    done = trials(tmp_path, Program(seen=[COUNTED, RIGHT, COUNTED]))
    assert done.delayed[FEWEST].pair == RIGHT


def test_the_pair_seen_by_the_line_that_the_log_names_comes_before_others_of_its_file(tmp_path: Path) -> None:
    done = trials(tmp_path, Program(seen=[RIGHT, NEAR, OTHER]))
    assert done.delayed[FEWEST].pair == RIGHT


def test_of_pairs_that_are_alike_the_one_seen_last_comes_first(tmp_path: Path) -> None:
    """A program fails soon after its thread has seen the stores."""
    later = StorePair(early=56, late=52)
    done = trials(tmp_path, Program(seen=[OTHER, later], needed=later))
    assert done.delayed[-1].pair == later
    assert OTHER not in [one.pair for one in done.delayed]


def test_loads_last_as_long_as_the_failure_needs_once_memory_order_is_to_blame(tmp_path: Path) -> None:
    program = Program(seconds={TEST: 3.0})
    trials(tmp_path, program)
    assert program.limits == [None] * FEWEST + [12.0] * FEWEST


def test_threads_pause_more_often_with_other_seeds_until_a_log_names_stores(tmp_path: Path) -> None:
    done = trials(tmp_path, Program(needs_pauses=True))
    (seeing,) = [one for one in done.delayed if one.seed is not None and one.pair is None]
    assert seeing.seed not in {None, *[one.seed for one in done.delayed if one.pair is not None]}
    assert done.delayed[-1].pair == RIGHT


def test_they_pause_too_if_the_first_logs_name_only_stores_that_others_read(tmp_path: Path) -> None:
    """Correct programs see stores early, too, where their order does not matter."""
    done = trials(tmp_path, Program(needs_pauses=True, seen_first=[OTHER]))
    assert [one.pair for one in done.delayed] == [None] * (FEWEST + 1) + [RIGHT] * FEWEST


def test_stores_that_no_load_where_the_program_failed_has_seen_are_tried_at_last(tmp_path: Path) -> None:
    done = trials(tmp_path, Program(seen=[OTHER], needed=OTHER))
    assert [one.pair for one in done.delayed] == [None] * (FEWEST + MOST_TO_SEE) + [OTHER] * FEWEST


def test_only_the_test_that_fails_soonest_runs_with_pairs(tmp_path: Path) -> None:
    """One fault often fails all tests of a suite, and has one place."""
    program = Program(seconds={"slow": 20.0, "quick": 2.0, "idle": 20.0})
    done = OrderTrials(tmp_path, program)
    done.run(["slow", "quick", "idle"], [])
    with_pairs = [tests for tests, one in zip(program.tests, done.delayed, strict=True) if one.pair is not None]
    assert with_pairs == [["quick"]] * FEWEST


def test_stores_that_no_log_names_are_not_sought_for_ever(tmp_path: Path) -> None:
    done = trials(tmp_path, Program(seen=()))
    assert len(done.delayed) == FEWEST + MOST_BLIND


def test_a_run_without_a_result_is_the_last(tmp_path: Path) -> None:
    done = trials(tmp_path, Program(problem="its process ran longer than 600 s"))
    assert (len(done.ordered), done.delayed) == (1, [])


def test_trials_of_another_program_follow_in_the_same_cell(tmp_path: Path) -> None:
    first = trials(tmp_path, Program(delayed=lambda _: False))
    second = OrderTrials(tmp_path, Program(), after=first)
    second.run([TEST], [])
    assert len(second.ordered) == 2 * FEWEST
    assert second.delayed[MOST:] != []
    assert (tmp_path / f"delayed-{len(second.delayed)}").is_dir()


def test_trials_of_several_programs_have_one_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as short:
        short.setattr(order_trials, "MOST_SECONDS", 0)
        first = trials(tmp_path, Program())
    second = OrderTrials(tmp_path, Program(), after=first)
    second.run([TEST], [])
    assert (second.ordered, second.delayed) == ([], [])


def test_the_search_for_the_stores_has_a_time_limit_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_trials, "PLACING_SECONDS", 0)
    done = trials(tmp_path, Program(seen=()))
    assert len(done.delayed) == FEWEST
