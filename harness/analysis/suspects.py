"""Ranks functions by how closely their execution correlates with a wrong result, and stores rankings in the run folder.

This is spectrum-based fault localization with the coefficient of Ochiai (Abreu, Zoeteweij, van Gemund: An Evaluation of
Similarity Coefficients for Software Fault Localization, PRDC 2006; On the Accuracy of Spectrum-based Fault
Localization, TAIC PART 2007). A score is a correlation, and not proof of a fault. Code that runs whenever the result is
wrong, and never when it is right, has score 1, whether it is at fault or only serves the same command.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from harness.core import json_codec
from harness.core.finding import Finding, Suspect, ValueComparison
from harness.core.model import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from harness.analysis.executed_code import CodeLine

FILE = "suspects.json"
_PARTED = "; given equal values, it made the first different one"
_UNRANKED = "not among the first by what runs"
MOST = 10
"""The maximum number of suspects of a finding: readers do not look at more."""


class Spectrum:
    """The executed code of runs, each as a set of addresses in the server's program."""

    def __init__(self) -> None:
        self.failing: list[AbstractSet[int]] = []
        """Runs that show the finding."""
        self.passing: list[AbstractSet[int]] = []
        """Runs that do not."""

    def add(self, executed: AbstractSet[int], *, fails: bool) -> None:
        """Add a run, unless nothing is known about its executed code."""
        if executed:
            (self.failing if fails else self.passing).append(executed)


class Score(NamedTuple):
    """How closely the execution of a piece of code goes with failure."""

    ochiai: float
    """From 0 to 1."""
    failing: int
    """The failing runs that executed it."""
    passing: int
    """The passing runs that executed it."""


def scores(runs: Spectrum) -> dict[int, Score]:
    """Address -> score, of the code that failing runs executed.

    The coefficient is f / sqrt(F * (f + p)) of f failing and p passing runs with the code, and F failing runs in all.
    """
    failed = Counter(address for run in runs.failing for address in run)
    passed = Counter(address for run in runs.passing for address in run if address in failed)
    return {
        address: Score(times / math.sqrt(len(runs.failing) * (times + passed[address])), times, passed[address])
        for address, times in failed.items()
    }


def ranked(
    scores: Mapping[int, Score], lines: Mapping[int, Sequence[CodeLine]], runs: Spectrum, *, implicated: str = ""
) -> list[Suspect]:
    """The functions with the highest scores: each has that of its code with the highest one.

    `lines`: address -> the places that it belongs to, innermost first. An inlined function's code is its caller's, too,
    and counts for both. Of functions alike, the one that the finding points to (`implicated`) stands first. Then comes
    that one of which the larger share never ran in a passing run: others have a branch of that kind. Then the one with
    more code of that score: a fault is as likely in each instruction.
    """
    code: dict[tuple[str, str], list[tuple[Score, CodeLine]]] = {}
    for address, score in scores.items():
        for place in lines.get(address, ()):
            code.setdefault((place.function, place.file), []).append((score, place))
    best: list[tuple[float, bool, float, int, CodeLine, Score]] = []
    for (function, _), pairs in code.items():
        highest = max(score for score, _ in pairs)
        at_highest = [place for score, place in pairs if score == highest]
        apart = sum(score.passing == 0 for score, _ in pairs) / len(pairs)
        first_line = min(at_highest, key=lambda place: place.line)
        best.append((-highest.ochiai, function != implicated, -apart, -len(at_highest), first_line, highest))
    return [
        Suspect(
            function=place.function,
            file=place.file,
            line=place.line,
            score=round(score.ochiai, 3),
            why=f"ran in {score.failing} of {len(runs.failing)} runs that show it, and in {score.passing} of "
            f"{len(runs.passing)} that do not",
        )
        for *_, place, score in sorted(best)[:MOST]
    ]


class SuspectList(Record, frozen=True):
    """The ranking of one finding."""

    suspects: list[Suspect]
    failing: int
    """The streams that showed the finding."""
    passing: int
    """The streams that did not."""
    comparison: ValueComparison | None = None
    """Where the values of the suspects diverge on the target and natively; None if they were not compared, or do not
    diverge.
    """

    def compared(self, comparison: ValueComparison) -> SuspectList:
        """The list with a comparison of values: the function in which they diverge comes first."""
        within = comparison.within
        plain = [
            msgspec.structs.replace(one, why=one.why.removesuffix(_PARTED))
            for one in self.suspects
            if one.why != f"{_UNRANKED}{_PARTED}"
        ]
        ahead = [one for one in plain if one.function == within]
        place = comparison.place
        if not ahead and place is not None and place.function == within:
            ahead = [Suspect(function=within, file=place.file, line=place.line, score=0.0, why=_UNRANKED)]
        others = [one for one in plain if one not in ahead]
        marked = [msgspec.structs.replace(one, why=f"{one.why}{_PARTED}") for one in ahead]
        return msgspec.structs.replace(self, suspects=[*marked, *others][:MOST], comparison=comparison)


class _Stored(Record, frozen=True):
    """RUN/suspects.json."""

    schema: int = 1
    lists: dict[str, SuspectList] = msgspec.field(default_factory=dict)
    """Finding -> its ranking."""


def store(folder: Path, finding: str, ranking: SuspectList) -> None:
    """Store a finding's ranking in its run folder, replacing an earlier one."""
    lists = {**_read(folder).lists, finding: ranking}
    (folder / FILE).write_bytes(json_codec.encode(_Stored(lists=lists)) + b"\n")


def collect(folder: Path, findings: Iterable[Finding]) -> list[Finding]:
    """The findings, with the suspects that the run folder has for them."""
    lists = _read(folder).lists
    return [
        msgspec.structs.replace(finding, suspects=found.suspects, comparison=found.comparison)
        if (found := lists.get(finding.id)) is not None
        else finding
        for finding in findings
    ]


def stored(folder: Path, finding: str) -> SuspectList | None:
    """A finding's ranking; None if there is none."""
    return _read(folder).lists.get(finding)


def _read(folder: Path) -> _Stored:
    """The stored rankings; none if they are missing or damaged, because they are not evidence."""
    try:
        return json_codec.decode((folder / FILE).read_bytes(), _Stored)
    except (OSError, msgspec.DecodeError):
        return _Stored()
