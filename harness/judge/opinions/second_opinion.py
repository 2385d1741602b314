"""Compares what a cell showed with the native build, which ran the cell's failed tests again (CellRecord.host).

The product's question is whether a server behaves on a machine as it does on the host. A test whose expectation is out
of date, or a bug that every machine has, is no answer to it. So each sighting belongs to one of four classes:

- `machine`: the host does not show it, or shows something else. Sightings are of this class unless proved otherwise.
- `everywhere`: each run on the host shows the same: the same test, place and kind, and the same values as far as the
  host's own runs agree about them.
- `unsteady`: the host shows the same in some of its runs and not in others.
- `stranger`: the native build itself ended by a signal that another process may have sent, and in no further run.

A failure may need what earlier tests leave behind. If the failed test alone passes on the host, or fails there with
other values, it has also run behind the tests that precede it, and these runs decide.

A misaligned access, a detector's report and a fault whose function is not on the stack in the host's crash report stay
`machine`. So does everything if a run on the host has no complete evidence.
"""

from __future__ import annotations

import itertools
import re
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.analysis import symbols
from harness.analysis.crash_reports.assertion_log import unnamed_addresses
from harness.core.byte_diff import by_chance, without_places
from harness.core.target_model import ORACLE
from harness.judge.causality import Evidence
from harness.judge.sightings.failures import guest_log
from harness.record import cell_events, event_log, evidence_seal, run_folder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.judge.sightings.sighting import Sighting
    from harness.record.cell_events import TestEvent
    from harness.record.run_record import CellRecord, RunRecord

Class = Literal["machine", "everywhere", "unsteady", "stranger"]
_ENDS = ("process", "signal")
"""Detectors of a server's end. Only an emulator records the fault behind one."""
_LIMIT = re.compile(r"\bwithin \d+(?:\.\d+)? s(?:econds)?\b")
_SIGNAL = re.compile(r"\bSIG[A-Z]+\b")


class _HostEnds:
    """How servers of the native build ended, by test."""

    def __init__(self, run: RunRecord, sightings: Iterable[Sighting], guests: Iterable[Path]) -> None:
        """`sightings`: of the native build's servers. `guests`: their folders."""
        self._symbols = symbols.Symbols(run.triples[ORACLE], run.binaries.get(ORACLE, ""))
        self._guests = list(guests)
        self._by_test: dict[str, list[Sighting]] = {}
        for one in sightings:
            if one.detector in _ENDS:
                self._by_test.setdefault(one.test, []).append(one)

    def like(self, one: Sighting) -> list[Sighting]:
        """The ends in the same test in the same way as the target's."""
        return [other for other in self._by_test.get(one.test, []) if self._is_same(one, other)]

    def _is_same(self, one: Sighting, other: Sighting) -> bool:
        if one.detector == "process":
            return (one.identity, _without_limits(one.detail)) == (other.identity, _without_limits(other.detail))
        # The emulator located the target's fault. Of the host's there is the signal, and the server's own report.
        signals = set(_SIGNAL.findall(f"{one.kind.upper()} {one.title}"))
        return bool(signals & set(_SIGNAL.findall(other.detail))) and not self._named_in_logs.isdisjoint(
            _innermost(one)
        )

    @cached_property
    def _named_in_logs(self) -> set[str]:
        """The words of the servers' logs, and the static functions whose addresses their crash reports contain."""
        logs = [guest_log(guest) for guest in self._guests]
        words = {word.decode("ascii", "replace") for log in logs for word in re.findall(rb"\w+", log)}
        addresses = {address for log in logs for address in unnamed_addresses(log)}
        return words.union(*map(self._symbols.functions_at, addresses))


def _innermost(one: Sighting) -> set[str]:
    """The function of a fault, and those that it is inlined into: the host's compiler may inline others."""
    own = list(itertools.takewhile(lambda frame: frame.inlined, one.frames))
    return {frame.function for frame in one.frames[: len(own) + 1]}


class Repetition:
    """The evidence of one more run of a cell's failed tests."""

    def __init__(self, folder: Path, run: RunRecord, record: CellRecord, seal: str) -> None:
        """`record`: of the cell, with the target on which the tests ran again."""
        self.folder = folder
        recorded = event_log.read(folder / event_log.NAME)
        evidence = Evidence(folder, run, record, recorded.events)
        self.sightings = evidence.sightings()
        self.damage = [*recorded.doubts, *evidence_seal.doubts(folder, seal)]
        self.doubts = [*self.damage, *evidence.doubts]
        tests = [event for event in recorded.events if isinstance(event, cell_events.TestEvent)]
        self.results = {test.name: test for test in tests if test.outcome != "skipped"}


class _HostRun(Repetition):
    """One on the native build."""

    def __init__(self, folder: Path, run: RunRecord, record: CellRecord, seal: str) -> None:
        super().__init__(folder, run, msgspec.structs.replace(record, target=ORACLE), seal)
        self._ends = _HostEnds(run, self.sightings, folder.glob("guest-*"))

    def test(self, name: str) -> TestEvent | None:
        """The result of a test that ran; None if it was skipped, could not run or is not there."""
        event = self.results.get(name)
        return None if event is None or event.blocked or event.blocked_by else event

    def shows(self, one: Sighting) -> bool:
        """Whether a server ended in the same test in the same way as the target's."""
        return bool(self._ends.like(one))


class SecondOpinion:
    """What the native build did in the tests that failed in a cell."""

    def __init__(self, cell: Path, run: RunRecord, record: CellRecord) -> None:
        self._target = record.target
        self._problem = next((one.problem for one in record.host if one.problem), "")
        self._runs: list[_HostRun] = []
        """Of the failed tests alone."""
        self._preceded: list[_HostRun] = []
        """Of the failed tests behind those that precede them."""
        for number, each in enumerate(record.host if not self._problem else [], start=1):
            runs = self._preceded if each.preceded else self._runs
            runs.append(_HostRun(run_folder.host_folder(cell, number), run, record, each.seal))
        doubts = [doubt for each in self._runs for doubt in each.doubts]
        doubts += [doubt for each in self._preceded for doubt in each.damage]
        if doubts:
            self._problem, self._runs, self._preceded = doubts[0], [], []
        if any(each.doubts for each in self._preceded):
            self._preceded = []

    @property
    def problem(self) -> str:
        """Why there is no second opinion although a test failed; empty if there is one, or none was asked for."""
        return self._problem

    def class_of(self, one: Sighting, test: TestEvent | None) -> Class:
        """The class of a sighting. `test`: the failed test that showed it."""
        which = self._class_in_all(one, test)
        if which != "machine" or one.everywhere or not one.may_be_sent:
            return which
        # Where only the native build is checked, a crash is what the check is about.
        return "stranger" if self._runs or self._target != ORACLE else which

    def _class_in_all(self, one: Sighting, test: TestEvent | None) -> Class:
        if not self._runs or test is None or one.detector not in {*_ENDS, "suite"}:
            return "machine"
        alone = self._class_in(self._runs, one, test)
        return self._class_in(self._preceded, one, test) if alone == "machine" and self._preceded else alone

    def _class_in(self, runs: list[_HostRun], one: Sighting, test: TestEvent) -> Class:
        """The class by some of the runs on the host."""
        results = [each.test(test.name) for each in runs]
        if any(result is None for result in results):
            return "machine"
        if one.detector == "suite":
            failures = [result for result in results if result is not None and is_same_failure(test, result)]
            # Where the host's own runs differ, the first difference is a matter of chance, as is the order of keys.
            varies = len({_difference_of(one) for one in failures}) > 1
            if not varies:
                failures = [one for one in failures if _difference_of(one) == _difference_of(test)]
            shown, values_agree = len(failures), varies or self._values_agree(test, failures)
        else:
            shown, values_agree = sum(each.shows(one) for each in runs), True
        if 0 < shown < len(runs):
            return "unsteady"
        return "everywhere" if shown and values_agree else "machine"

    def _values_agree(self, test: TestEvent, results: list[TestEvent]) -> bool:
        """Whether a failure's message differs from the host's only where those of the host's own runs differ."""
        message, *others = (plain(each.message, self._target) for each in (test, *results))
        return by_chance(message, others)


def with_ends_beside(cell: Path, run: RunRecord, sightings: list[Sighting]) -> list[Sighting]:
    """The sightings, those marked in which the native build, which answered beside the target, ended in the same way.

    This is the second opinion on an open-ended suite, which gives each server other requests. `cell`: its folder.
    """
    if run.everywhere == "off" or all(one.target != ORACLE for one in sightings):
        return sightings
    beside = (one for one in sightings if one.target == ORACLE)
    ends = _HostEnds(run, beside, cell.glob(f"{run_folder.PEERS}/{ORACLE}/guest-*"))
    alike = {
        id(one): ends.like(one) for one in sightings if one.target != ORACLE and one.detector in _ENDS and one.test
    }
    both = {number for number, others in alike.items() if others} | {
        id(other) for others in alike.values() for other in others
    }
    return [msgspec.structs.replace(one, everywhere=True) if id(one) in both else one for one in sightings]


def plain(message: str, target: str) -> str:
    """A message without the folders, the name and the time limits of the machine that it is about."""
    return re.sub(rf"\b({re.escape(target)}|{ORACLE})\b", "TARGET", _without_limits(without_places(message)))


def without_contradicted(sightings: list[Sighting], passed: set[str]) -> list[Sighting]:
    """The sightings, with the class `machine` for those whose test passed on another target of the run.

    The native build does as their target does, and differs from that other one. `passed`: the names of such tests.
    """
    return [
        # Upstream's tests ask the native build at the same time, and some of them fail by chance.
        msgspec.structs.replace(one, everywhere=False)
        if one.everywhere and one.test in passed and not one.upstream
        else one
        for one in sightings
    ]


def _without_limits(text: str) -> str:
    """A text without the time limits that expired: a slow machine has longer ones than the host."""
    return _LIMIT.sub("in time", text)


def has_time_limit(text: str) -> bool:
    """Whether a failure's message is of a time limit that expired."""
    return bool(_LIMIT.search(text)) or "TimeoutError" in text


def is_same_failure(test: TestEvent, other: TestEvent) -> bool:
    """Whether two failures of a test are of one assertion.

    The values in their words may differ: keys, ports, times and addresses do from run to run.
    """
    return other.outcome == "failed" and test.asserted == other.asserted


def _difference_of(test: TestEvent) -> tuple[str, str]:
    """The part of a file or reply that a failure is about."""
    return (test.difference.where, test.difference.record) if test.difference is not None else ("", "")
