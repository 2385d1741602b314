"""A clock that is set while a cell runs: a failed test then says nothing about the target."""

from __future__ import annotations

import itertools
import time
import types
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.plan.catalog import Catalog
from harness.record import cell_events, event_log
from harness.run.session.cell_session import CellSession
from harness.run.session.clock_watch import ClockWatch
from tests.support import cells, fakes

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("readings", "doubt"),
    [
        ([(1000.0, 5.0), (1003.0, 8.0), (1013.01, 18.0)], ""),
        ([(1000.0, 5.0), (4603.0, 8.0)], "set forward by 3600.0 s"),
        ([(1000.0, 5.0), (-2597.0, 8.0)], "set back by 3600.0 s"),
        # Each step counts although the clock is right again.
        ([(1000.0, 5.0), (4603.0, 8.0), (1004.0, 9.0)], "by 3600.0 s"),
        # A service slows the clock down for a day.
        ([(1000.0, 5.0), (87_357.0, 86_405.0)], ""),
    ],
)
def test_a_clock_that_is_set_is_noticed(readings: list[tuple[float, float]], doubt: str) -> None:
    ahead = iter(readings)
    watch = ClockWatch(lambda: next(ahead))
    for _ in readings[1:]:
        watch.look()
    assert doubt in watch.doubt
    assert bool(watch.doubt) == bool(doubt)


@pytest.mark.parametrize("undisturbed", [1, 4, 9])
def test_a_process_that_loses_its_processor_between_both_clocks_sees_no_step(
    undisturbed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`undisturbed`: the only reading of ten during which it keeps the processor."""
    now = [1000.0]
    lost_at = {reading for reading in range(1, 11) if reading != undisturbed}
    readings = itertools.count(1)

    def day() -> float:
        if next(readings) in lost_at:
            now[0] += 5.0
        return 1_700_000_000.0 + now[0]

    clocks = types.SimpleNamespace(monotonic=lambda: now[0], time=lambda: 1_700_000_000.0 + now[0])
    monkeypatch.setattr("harness.run.session.clock_watch.time", clocks)
    watch = ClockWatch()
    clocks.time = day
    watch.look()
    assert watch.doubt == ""


@pytest.mark.parametrize(("seconds", "outcome"), [(3600.0, "failed"), (-3600.0, "failed"), (3600.0, "passed")])
def test_a_test_that_fails_after_the_clock_was_set_is_no_finding(
    seconds: float, outcome: cell_events.Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: keys that expired because the clock was set were wrong results of the target."""
    session = CellSession(cells.spec_of("bitops", tmp_path, fakes.unemulated(Catalog().targets["armv5"])))
    session.collected(1)
    session.begin("bitops/test_it")
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + seconds)
    session.end(outcome, "", 1.0)
    session.close()
    events = event_log.read_events(tmp_path / event_log.NAME)
    (recorded,) = [one for one in events if isinstance(one, cell_events.TestEvent)]
    assert recorded.outcome == outcome
    assert ("clock was set" in recorded.doubt) == (outcome == "failed")


def test_a_steady_clock_leaves_a_failed_test_as_it_is(tmp_path: Path) -> None:
    session = CellSession(cells.spec_of("bitops", tmp_path, fakes.unemulated(Catalog().targets["armv5"])))
    session.collected(1)
    session.begin("bitops/test_it")
    session.end("failed", "a wrong value", 1.0)
    session.close()
    recorded = [
        one for one in event_log.read_events(tmp_path / event_log.NAME) if isinstance(one, cell_events.TestEvent)
    ]
    assert msgspec.structs.asdict(recorded[0])["doubt"] == ""
