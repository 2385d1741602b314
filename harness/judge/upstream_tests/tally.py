"""Counts how many of a release's own tests pass on each target, and gives the reason for every other one."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from harness.core.model import Record
from harness.record import event_log, run_folder

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.run_folder import RunRecord


class UpstreamTally(Record, frozen=True):
    """The release's own tests on one target."""

    target: str
    passed: int
    total: int
    left_out: int
    """How many files did not run, or have no tests there."""
    others: list[tuple[str, str, str]]
    """Test, outcome and reason, of every test that did not pass."""

    @property
    def sentence(self) -> str:
        """`2,841 of 2,860 tests pass on armv5`."""
        files = f" ({self.left_out} files left out)" if self.left_out else ""
        return f"{self.passed:,} of {self.total:,} tests pass on {self.target}{files}"


def tallies(folder: Path, run: RunRecord) -> list[UpstreamTally]:
    """One for each target on which a suite ran tests of the release's own."""
    found = []
    for record in run.cells:
        events = event_log.read_events(folder / record.target / record.suite / event_log.NAME)
        items = [event for event in events if isinstance(event, run_folder.TestEvent) and event.upstream]
        tests = [item for item in items if not item.upstream.endswith(run_folder.WHOLE_FILE)]
        if items:
            left_out = sum(item.outcome == "skipped" for item in items if item.upstream.endswith(run_folder.WHOLE_FILE))
            others = [(test.upstream, str(test.outcome), _reason(test)) for test in tests if test.outcome != "passed"]
            found.append(
                UpstreamTally(
                    target=record.target,
                    passed=len(tests) - len(others),
                    total=len(tests),
                    others=others,
                    left_out=left_out,
                )
            )
    return found


def _reason(test: run_folder.TestEvent) -> str:
    text = test.message.removeprefix("Skipped: ")
    if test.blocked_by:
        return f"a server of an earlier test crashed ({test.blocked_by})"
    return text.splitlines()[0] if text else ""


def remarks(folder: Path, run: RunRecord) -> list[str]:
    """A sentence for each target, which says where the others are listed."""
    return [
        f"{one.sentence}; the others: plumb report {shlex.quote(str(folder))} --format upstream-tests"
        for one in tallies(folder, run)
    ]
