"""Compares the runs of a file on a target with its native run, test by test.

Names are matched exactly first. Some tests have random numbers in their names; these are matched without their digits.
Pure.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core.byte_diff import by_chance, without_places
from harness.core.model import Record
from harness.record.cell_events import WHOLE_FILE
from harness.run.upstream.journal import FAILED, UpstreamTest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.run.upstream.file_run import FileRun

WHOLE = WHOLE_FILE
"""The item for the file itself: it ran to its end, and nothing failed outside of tests."""

TRIES = 3
NEEDED = 2
"""A test fails if it fails in two of three runs. One that as often leaves no result has none, and so has a file."""


class NativeRun(Record, frozen=True):
    """How a file runs natively."""

    tests: list[UpstreamTest]
    seconds: float
    done: bool
    """Whether it ran to its end."""
    started: int
    """How many programs of the release it started."""
    failures: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Label of a test that passed in no run here -> its message in each run in which it failed."""


class Item(Record, frozen=True):
    """One of a file's tests, as it ran natively."""

    label: str
    """Its name, with a number if the file has several of that name; or WHOLE."""
    native: UpstreamTest | None
    """None for the item of the file."""
    failures: tuple[str, ...] = ()
    """Its messages in the runs in which it failed here, if it passed in none."""

    def leaves_undecided(self, message: str) -> bool:
        """Whether a failure on a target with this message says nothing, because the native runs give no other answer.

        Such a test fails here in the same words, or leaves no result. Folders, and what differs between two runs here,
        do not count. A test that upstream passes over here has no answer that could excuse the target.
        """
        if self.native is None or self.native.reported in {"ok", "skip", "ignore"}:
            return False
        if not self.failures:
            return True
        there = without_places(message)
        here = [without_places(failure) for failure in self.failures]
        return there in here or any(by_chance(there, *pair) for pair in itertools.permutations(here, 2))

    def is_among(self, globs: Iterable[str]) -> bool:
        """Whether it is a test whose name fits one of the globs."""
        return self.native is not None and any(fnmatchcase(self.native.name, glob) for glob in globs)


Outcome = Literal["passed", "failed", "skipped", "undecided", "missing"]


class UpstreamVerdict(Record, frozen=True):
    """The result of a test on a target."""

    outcome: Outcome
    """undecided: it failed as it does natively, which says nothing about the target. missing: it left no result."""
    message: str = ""
    tries: tuple[UpstreamTest | None, ...] = ()
    """The test in each run of the file; None if it left no trace."""
    failures: int = 0

    @property
    def shown(self) -> UpstreamTest | None:
        """The try that a report shows: the first failure, or else the last try that left a trace."""
        traces = [one for one in self.tries if one is not None]
        return next((one for one in traces if one.reported in FAILED), traces[-1] if traces else None)


LEFT_OUT = UpstreamVerdict(
    outcome="skipped", message="it takes long, so it does not run with other suites in this tier: --tier full"
)
"""The result of a test that was not selected."""


def items_of(native: Sequence[UpstreamTest], failures: Mapping[str, Sequence[str]] = {}) -> list[Item]:
    """The items of a file. `failures`: as in a `NativeRun`."""
    numbers: Counter[str] = Counter()
    items = []
    for test in native:
        numbers[test.name] += 1
        again = f" ({numbers[test.name]})" if numbers[test.name] > 1 else ""
        label = f"{test.name}{again}"
        items.append(Item(label=label, native=test, failures=tuple(failures.get(label, ()))))
    return [*items, Item(label=WHOLE, native=None)]


def matched(items: Sequence[Item], tests: Sequence[UpstreamTest]) -> tuple[dict[str, UpstreamTest], list[UpstreamTest]]:
    """Item -> the test of one run that belongs to it, and the tests that belong to none."""
    left = {item.label: item.native for item in items if item.native is not None}
    found: dict[str, UpstreamTest] = {}
    rest = list(tests)
    for key in (str, _shape):
        unmatched = []
        for test in rest:
            label = next((label for label, native in left.items() if key(native.name) == key(test.name)), None)
            if label is None:
                unmatched.append(test)
            else:
                found[label] = test
                del left[label]
        rest = unmatched
    return found, rest


def _shape(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def verdict_of(item: Item, runs: Sequence[FileRun], found: Sequence[dict[str, UpstreamTest]]) -> UpstreamVerdict:
    """The result of a test in the runs of its file. `found`: the return values of `matched` for each run."""
    tries = tuple(each.get(item.label) for each in found)
    failures = [one for one in tries if one is not None and one.reported in FAILED]
    passed_over = [one for one in tries if one is not None and one.reported in {"skip", "ignore"}]
    endless = [run for run, one in zip(runs, tries, strict=True) if one is not None and not one.reported]
    deviating = [one for one in failures if not item.leaves_undecided(one.message)]
    needed = min(NEEDED, len(tries))
    if len(deviating) >= needed:
        outcome: Outcome = "failed"
        message = deviating[0].message
    elif len(failures) >= needed:
        outcome, message = "undecided", _why_undecided(item, failures[0])
    elif endless and len(failures) + len(endless) >= needed:
        outcome, message = "missing", _why_missing(endless[0])
    elif any(one is not None and one.reported == "ok" for one in tries):
        outcome = "passed"
        words = failures[0].message if failures else _why_missing(endless[0]) if endless else ""
        message = f"it failed in 1 of {len(tries)} runs: {words}" if words else ""
    elif passed_over:
        outcome, message = "skipped", f"upstream passes over it: {passed_over[0].message}"
    elif all(one is None for one in tries) and all(_ran_smoothly(run) for run in runs):
        # Some tests stand in conditions, such as one for machines of 64 bits. A failed test hinders those inside it,
        # and in tests of clusters all that follow.
        outcome, message = "skipped", "its file ran to the end there without beginning this test"
    else:
        outcome, message = "missing", _why_missing(runs[-1])
    return UpstreamVerdict(outcome=outcome, message=message, tries=tries, failures=len(failures))


def _why_undecided(item: Item, failure: UpstreamTest) -> str:
    here = "it fails natively in the same words" if item.failures else "it leaves no result natively"
    words = failure.message.partition("\n")[0]
    return f"{here}, so that its failure says nothing about the target: {words}"


def has_failures(tests: Iterable[UpstreamTest]) -> bool:
    """Whether one of the tests failed or did not end."""
    return any(test.reported in {*FAILED, ""} for test in tests)


def _ran_smoothly(run: FileRun) -> bool:
    """Whether a file ran to its end, and all its tests ended without failing."""
    return run.journal.done and not has_failures(run.journal.tests)


def verdict_of_file(
    native: NativeRun, runs: Sequence[FileRun], strangers: Sequence[list[UpstreamTest]], *, started: int
) -> UpstreamVerdict:
    """The result of the file itself.

    `strangers`: the tests of each run that the native run did not have. `started`: how many programs the runs
    started on the target.
    """
    complaints = [_complaints(run, others) for run, others in zip(runs, strangers, strict=True)]
    failures = [each for each in complaints if each]
    if len(failures) >= min(NEEDED, len(runs)):
        return UpstreamVerdict(outcome="failed", message="\n".join(failures[0]), failures=len(failures))
    if not native.done:
        return UpstreamVerdict(outcome="missing", message="it does not run to its end natively")
    unfinished = [run for run in runs if not run.journal.done]
    if not runs[-1].journal.done or len(unfinished) >= NEEDED:
        return UpstreamVerdict(outcome="missing", message=_why_missing(unfinished[-1]))
    if native.started and not started:
        return UpstreamVerdict(outcome="missing", message="none of its servers ran on the target")
    if not native.tests:
        return UpstreamVerdict(outcome="skipped", message="it has no tests natively")
    told = failures[0] if failures else [_why_missing(run) for run in unfinished]
    return UpstreamVerdict(outcome="passed", message="\n".join(told), failures=len(failures))


def _complaints(run: FileRun, others: Iterable[UpstreamTest]) -> list[str]:
    found = [f"outside of every test: {message}" for message in run.journal.outside]
    return found + [f"{test.name}: {test.message}" for test in others if test.reported in FAILED]


def _why_missing(run: FileRun) -> str:
    how = "the file was ended because it made no progress" if run.stalled else "the file ended before it"
    return f"no result: {how}; its last line: {run.last_line}"


def failing(items: Sequence[Item], run: FileRun) -> set[str]:
    """The items that failed in one run otherwise than natively."""
    found, others = matched(items, run.journal.tests)
    by_label = {item.label: item for item in items}
    failures = {label: test for label, test in found.items() if test.reported in FAILED}
    labels = {label for label, test in failures.items() if not by_label[label].leaves_undecided(test.message)}
    return labels | ({WHOLE} if _complaints(run, others) else set())
