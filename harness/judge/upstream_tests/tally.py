"""Counts how many of a release's own tests pass on each target, and gives the reason for every other one."""

from __future__ import annotations

import shlex
from collections import Counter
from itertools import compress
from typing import TYPE_CHECKING

from harness.core.model import Record
from harness.record import cell_events, event_log

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.run_record import RunRecord

LOGGING = "integration/logging"
"""The file with the release's tests of crash reports and watchdog."""
UNKNOWN = "UNKNOWN"
"""The outcome of a test that left no result."""


class CountedTest(Record, frozen=True):
    """One of the release's own tests on one target."""

    name: str
    outcome: str
    reason: str
    """Why it did not pass: the kind of reason, a colon, and the details."""
    is_of_crash_reports: bool = False
    """Whether it crashes its server on purpose, or is a test of what a crash report and a log contain."""


class UpstreamTally(Record, frozen=True):
    """The release's own tests on one target."""

    target: str
    tests: list[CountedTest]
    left_out: int
    """How many files did not run, or have no tests there."""
    processor_seconds: float

    @property
    def others(self) -> list[CountedTest]:
        """The tests that did not pass."""
        return [test for test in self.tests if test.outcome != "passed"]

    @property
    def outcomes(self) -> Counter[str]:
        """Outcome -> number of tests."""
        return Counter(test.outcome for test in self.tests)

    @property
    def skips(self) -> Counter[str]:
        """Kind of reason -> number of tests that were skipped for it."""
        return Counter(test.reason.partition(":")[0] for test in self.tests if test.outcome == "skipped")

    @property
    def sentence(self) -> str:
        """`2,841 of 2,860 tests pass on armv5`."""
        files = f" ({self.left_out} {'file' if self.left_out == 1 else 'files'} left out)" if self.left_out else ""
        return f"{self.outcomes['passed']:,} of {len(self.tests):,} tests pass on {self.target}{files}"


def tallies(folder: Path, run: RunRecord) -> list[UpstreamTally]:
    """One for each target on which a suite ran tests of the release's own."""
    found = []
    for record in run.cells:
        log = event_log.read(folder / record.target / record.suite / event_log.NAME)
        items = [event for event in log.events if isinstance(event, cell_events.TestEvent) and event.upstream]
        files = [item.upstream.endswith(cell_events.WHOLE_FILE) for item in items]
        tests = [item for item, is_file in zip(items, files, strict=True) if not is_file]
        if items:
            tally = UpstreamTally(
                target=record.target,
                tests=[_counted(test) for test in tests],
                left_out=sum(item.outcome == "skipped" for item in compress(items, files)),
                processor_seconds=log.processor_seconds,
            )
            found.append(tally)
    return found


def _counted(test: cell_events.TestEvent) -> CountedTest:
    return CountedTest(
        name=test.upstream,
        outcome=_outcome(test),
        reason=_reason(test),
        is_of_crash_reports=bool(test.announced) or test.upstream.partition("::")[0] == LOGGING,
    )


def _outcome(test: cell_events.TestEvent) -> str:
    return UNKNOWN if test.doubt else test.outcome


def _reason(test: cell_events.TestEvent) -> str:
    text = test.message.removeprefix("Skipped: ")
    if test.blocked_by:
        return f"a server of an earlier test crashed ({test.blocked_by})"
    return text.splitlines()[0] if text else ""


def remarks(folder: Path, run: RunRecord) -> list[str]:
    """A sentence for each target, which says where the others are listed if there are any."""
    others = f"; the others: plumb report {shlex.quote(str(folder))} --format upstream-tests"
    return [f"{one.sentence}{others if one.others or one.left_out else ''}" for one in tallies(folder, run)]
