"""Compares the runs of a file on a target with its native run, test by test.

Names are matched exactly first. Some tests have random numbers in their names; these are matched without their digits.
A test counts as skipped only if a reason for that is known that has nothing to do with the server. Pure.
"""

from __future__ import annotations

import itertools
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core.byte_diff import by_chance, without_places
from harness.core.model import Record
from harness.record.cell_events import WHOLE_FILE
from harness.run.servers.endings import describe_exit
from harness.run.upstream.journal import FAILED, PASSED_OVER, UpstreamTest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from harness.run.upstream.file_run import FileRun

WHOLE = WHOLE_FILE
"""The item for the file itself: it ran to its end, and nothing failed outside of tests."""

TRIES = 3
NEEDED = 2
"""A test fails if it fails in two of three runs. One that as often leaves no result has none, and so has a file. If
either happens only once, on a target alone, nobody knows which runs to believe.
"""


class NativeRun(Record, frozen=True):
    """How a file runs natively."""

    tests: list[UpstreamTest]
    seconds: float
    done: bool
    """Whether it ran to its end."""
    started: int
    """How many programs of the release it started."""
    failures: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Label of a test -> its message in each run in which it failed here."""
    outside: list[str] = msgspec.field(default_factory=list)
    """The failures outside of tests; none if a run had none and came to its end."""
    code: int = 0
    """The exit status of upstream's program in the last run."""

    def number_of(self, item: Item) -> int:
        """How many tests have an item's name, if digits do not count."""
        return sum(item.native is not None and _shape(test.name) == _shape(item.native.name) for test in self.tests)


class Item(Record, frozen=True):
    """One of a file's tests, as it ran natively."""

    label: str
    """Its name, with a number if the file has several of that name; or WHOLE."""
    native: UpstreamTest | None
    """None for the item of the file."""
    failures: tuple[str, ...] = ()
    """Its messages in the runs in which it failed here."""

    def leaves_undecided(self, message: str) -> bool:
        """Whether a failure on a target with this message says nothing, because the native runs give no other answer.

        Such a test fails here in the same words, or leaves no result. Folders, and what differs between two runs here,
        do not count. A test that upstream passes over here has no answer that could excuse the target.
        """
        if self.native is None or self.native.reported in {"ok", *PASSED_OVER}:
            return False
        if not self.failures:
            return True
        there = without_places(message)
        return by_chance(there, map(without_places, self.failures))

    def is_among(self, globs: Iterable[str]) -> bool:
        """Whether it is a test whose name fits one of the globs."""
        return self.native is not None and any(fnmatchcase(self.native.name, glob) for glob in globs)


Outcome = Literal["passed", "failed", "skipped", "undecided", "unsteady", "missing"]


class UpstreamVerdict(Record, frozen=True):
    """The result of a test on a target."""

    outcome: Outcome
    """undecided: it failed as it does natively, which says nothing about the target. unsteady: it failed in one run on
    the target, and in no other. missing: it left no result.
    """
    message: str = ""
    tries: tuple[UpstreamTest | None, ...] = ()
    """The test in each run of the file; None if it left no trace."""
    failures: int = 0
    fails_natively: bool = False
    """Whether it is undecided because it fails natively in the same words."""

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
    items: dict[str, Item] = {}
    for test in native:
        # The name of another test may itself end with a number.
        labels = (f"{test.name} ({number})" for number in itertools.count(2))
        label = next(label for label in itertools.chain([test.name], labels) if label not in items)
        items[label] = Item(label=label, native=test, failures=tuple(failures.get(label, ())))
    return [*items.values(), Item(label=WHOLE, native=None)]


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


def _unexplained(_began: bool) -> str:
    return ""


def verdict_of(
    item: Item,
    runs: Sequence[FileRun],
    found: Sequence[dict[str, UpstreamTest]],
    why_left_out: Callable[[bool], str] = _unexplained,
) -> UpstreamVerdict:
    """The result of a test in the runs of its file. `found`: the return values of `matched` for each run.

    `why_left_out` says why the target may leave out a test that runs natively, or returns an empty text. It is told
    whether the test began there.
    """
    tries = tuple(each.get(item.label) for each in found)
    failures = [one for one in tries if one is not None and one.reported in FAILED]
    passed_over = [one for one in tries if one is not None and one.reported in PASSED_OVER]
    endless = [
        f"no result: {one.message}" if one.message else _why_missing(run)
        for run, one in zip(runs, tries, strict=True)
        if one is not None and not one.reported
    ]
    deviating = [one for one in failures if not item.leaves_undecided(one.message)]
    needed = min(NEEDED, len(tries))
    if len(deviating) >= needed:
        outcome: Outcome = "failed"
        message = deviating[0].message
    elif len(failures) >= needed:
        outcome, message = "undecided", _why_undecided(item, failures[0])
    elif endless and len(failures) + len(endless) >= needed:
        outcome, message = "missing", endless[0]
    elif any(one is not None and one.reported == "ok" for one in tries):
        words = failures[0].message if failures else endless[0] if endless else ""
        outcome, message = _steadiness(words, len(tries), natively=bool(item.failures))
    elif passed_over:
        outcome, message = _left_out(
            item, f"upstream passes over it: {passed_over[0].message}", why_left_out, began=True
        )
    elif all(one is None for one in tries) and any(_ran_smoothly(run) for run in runs):
        # Some tests stand in conditions, such as one for machines of 64 bits. A failed test hinders those inside it,
        # and in tests of clusters all that follow.
        told = "its file ran to the end there without beginning this test"
        outcome, message = _left_out(item, told, why_left_out, began=False)
    else:
        outcome, message = "missing", _why_missing(runs[-1])
    return UpstreamVerdict(
        outcome=outcome,
        message=message,
        tries=tries,
        failures=len(failures),
        fails_natively=outcome == "undecided" and bool(item.failures),
    )


def _steadiness(words: str, runs: int, *, natively: bool) -> tuple[Outcome, str]:
    """The outcome of a test or a file that passed, although it failed once if there are `words`, and the reason.

    `natively`: whether it fails now and then without the target, too.
    """
    if not words:
        return "passed", ""
    once = f"it failed in 1 of {runs} runs"
    return ("passed", f"{once}, as it does natively: {words}") if natively else ("unsteady", f"{once} there: {words}")


def _left_out(item: Item, told: str, why: Callable[[bool], str], *, began: bool) -> tuple[Outcome, str]:
    """The outcome of a test that did not run on the target, and the reason."""
    if item.native is not None and item.native.reported in PASSED_OVER:
        return "skipped", told
    reason = why(began)
    return ("skipped", f"{told}; {reason}") if reason else ("missing", f"{told}, and natively it runs")


def begins_by_chance(item: Item, native: NativeRun, again: NativeRun) -> bool:
    """Whether a test does not begin in each native run: `again`, with other random numbers, began more or fewer of its
    name. Nothing follows from a run in which something failed, which may have hindered the test.
    """
    smooth = again.done and not again.outside and not has_failures(again.tests)
    return smooth and native.number_of(item) != again.number_of(item)


def _why_undecided(item: Item, failure: UpstreamTest) -> str:
    here = "it fails natively in the same words" if item.failures else "it leaves no result natively"
    words = failure.message.partition("\n")[0]
    return f"{here}, so that its failure says nothing about the target: {words}"


def has_failures(tests: Iterable[UpstreamTest]) -> bool:
    """Whether one of the tests failed or did not end."""
    return any(test.reported in {*FAILED, ""} for test in tests)


def _ran_smoothly(run: FileRun) -> bool:
    """Whether a file ran to its end, and nothing failed in its tests or outside of them."""
    return run.journal.done and not run.journal.outside and not has_failures(run.journal.tests)


def verdict_of_file(
    native: NativeRun, runs: Sequence[FileRun], strangers: Sequence[list[UpstreamTest]], *, started: int
) -> UpstreamVerdict:
    """The result of the file itself.

    `strangers`: the tests of each run that the native run did not have. `started`: how many programs the runs
    started on the target.
    """
    complaints = [_complaints(run, others, native.code) for run, others in zip(runs, strangers, strict=True)]
    failures = [each for each in complaints if each]
    if len(failures) >= min(NEEDED, len(runs)):
        return UpstreamVerdict(outcome="failed", message="\n".join(failures[0]), failures=len(failures))
    unfinished = [run for run in runs if not run.journal.done]
    if why := _why_no_result(native, runs, unfinished, started):
        return UpstreamVerdict(outcome="missing", message=why)
    if not native.tests:
        return UpstreamVerdict(outcome="skipped", message="it has no tests natively")
    told = failures[0] if failures else [_why_missing(run) for run in unfinished]
    outcome, message = _steadiness("\n".join(told), len(runs), natively=False)
    return UpstreamVerdict(outcome=outcome, message=message, failures=len(failures))


def _why_no_result(native: NativeRun, runs: Sequence[FileRun], unfinished: Sequence[FileRun], started: int) -> str:
    """Why the runs of a file say nothing about the target; empty if they do. `started`: as in `verdict_of_file`."""
    if not native.done:
        return "it does not run to its end natively"
    if native.outside:
        # It may have hindered tests, which are then unknown.
        return f"natively something fails outside of its tests: {native.outside[0]}"
    if not runs[-1].journal.done or len(unfinished) >= NEEDED:
        return _why_missing(unfinished[-1])
    return "none of its servers ran on the target" if native.started and not started else ""


def _complaints(run: FileRun, others: Iterable[UpstreamTest], code_here: int) -> list[str]:
    """What failed in a run of a file apart from the tests that it also has natively.

    `code_here`: the exit status of upstream's program natively. Its programs for clusters count failures that they
    report to nobody, such as a crash report in a log.
    """
    found = [f"outside of every test: {message}" for message in run.journal.outside]
    found += [f"{test.name}: {test.message}" for test in others if test.reported in FAILED]
    if run.code and not code_here and _ran_smoothly(run):
        found.append(f"upstream's program reported no failure, and ended with {describe_exit(run.code).detail}")
    return found


def _why_missing(run: FileRun) -> str:
    how = "the file was ended because it made no progress" if run.stalled else "the file ended before it"
    return f"no result: {how}; its last line: {run.last_line}"


def failing(items: Sequence[Item], run: FileRun, *, code_here: int = 0) -> set[str]:
    """The items that failed in one run otherwise than natively. `code_here`: as in a `NativeRun`."""
    found, others = matched(items, run.journal.tests)
    by_label = {item.label: item for item in items}
    failures = {label: test for label, test in found.items() if test.reported in FAILED}
    labels = {label for label, test in failures.items() if not by_label[label].leaves_undecided(test.message)}
    return labels | ({WHOLE} if _complaints(run, others, code_here) else set())
