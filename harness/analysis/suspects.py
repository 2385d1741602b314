"""Ranks functions by how closely their execution correlates with a wrong result, and stores rankings in the run folder.

This is spectrum-based fault localization with the coefficient of Ochiai (Abreu, Zoeteweij, van Gemund: An Evaluation of
Similarity Coefficients for Software Fault Localization, PRDC 2006; On the Accuracy of Spectrum-based Fault
Localization, TAIC PART 2007). A line that depends on the machine counts in full, and any other only for a part: the
bugs of this field are in such lines. A score is a correlation, and not proof of a fault. Code that runs whenever the
result is wrong, and never when it is right, has the highest score, whether it is at fault or only serves the same
command.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from harness.analysis.c_source.machine_dependence import Dependence
from harness.core import json_codec
from harness.core.finding import Finding, Suspect, ValueComparison, Witness
from harness.core.model import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from harness.analysis.c_source.machine_dependence import DependentLine
    from harness.analysis.executed_code import CodeLine

FILE = "suspects.json"
_PARTED = "; given equal values, it made the first different one"
_UNRANKED = "not among the first by what runs"
_PARTS = {Dependence.BYTE_ORDER: 1.0, Dependence.BYTES: 0.9, Dependence.WIDTH: 0.7, Dependence.SIGN: 0.7, None: 0.5}
"""The part of a line's coefficient that counts, by its dependence on the machine. Many lines depend on a width that is
large enough everywhere. Lines without a known dependence still count, because the known ones are not all. These parts
were chosen with the rankings of seven bugs (docs/RECALL.md).
"""
_TELLING = 3
"""The minimum number of words with which tests say what they saw. Many tests say `expected` and `got`."""
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
    """Ochiai's coefficient, from 0 to 1."""
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


def alike(witness: Witness, findings: Iterable[Finding]) -> set[str]:
    """The tests of these findings that failed with the words of a witness, whatever values they saw.

    They are likely to have seen the same bug.
    """
    said = {words for occasion in witness.occasions if len(words := _words_of(occasion.title)) >= _TELLING}
    return {
        occasion.test
        for finding in findings
        if finding.kind == "wrong-result"
        for other in finding.witnesses
        for occasion in other.occasions
        if _words_of(occasion.title) in said
    }


def _words_of(title: str) -> tuple[str, ...]:
    """The words of a failed test's message, without the values that it saw."""
    # After the semicolon, a suite adds the place in a file.
    words = title.partition("; ")[0].split()
    return tuple(word for word in words if re.search("[a-z]", word) and not re.search(r"\d", word))


class _CountedLine(NamedTuple):
    """Executed code of a line, and what it counts for."""

    counted: float
    """The coefficient, or the part of it that counts."""
    score: Score
    place: CodeLine
    dependent: DependentLine | None

    @property
    def why(self) -> str:
        """The line's dependence on the machine in words, to follow on what was counted; empty if none is known."""
        return f"; its line {self.dependent.dependence.value}: {self.dependent.text}" if self.dependent else ""


def ranked(
    scores: Mapping[int, Score],
    lines: Mapping[int, Sequence[CodeLine]],
    runs: Spectrum,
    *,
    dependent: Mapping[str, Mapping[int, DependentLine]],
    implicated: str = "",
) -> list[Suspect]:
    """The functions with the highest scores: each has that of its line with the highest one.

    `lines`: address -> the places that it belongs to, innermost first. An inlined function's code is its caller's, too,
    and counts for both. `dependent`: file -> its lines that depend on the machine. Of functions alike, the one that the
    finding points to (`implicated`) stands first. Then the one of which the larger share never ran in a passing run:
    the others only contain such a branch. Then the one with more code of that score: a fault is as likely in each
    instruction.
    """
    code: dict[tuple[str, str], list[_CountedLine]] = {}
    for address, score in scores.items():
        for place in lines.get(address, ()):
            line = dependent.get(place.file, {}).get(place.line)
            counted = score.ochiai * _PARTS[line.dependence if line else None]
            code.setdefault((place.function, place.file), []).append(_CountedLine(counted, score, place, line))
    best: list[tuple[float, bool, float, int, str, _CountedLine]] = []
    for (function, _), all_lines in code.items():
        highest = max(one.counted for one in all_lines)
        at_highest = [one for one in all_lines if one.counted == highest]
        apart = sum(one.score.passing == 0 for one in all_lines) / len(all_lines)
        first = min(at_highest, key=lambda one: one.place.line)
        best.append((-highest, function != implicated, -apart, -len(at_highest), function, first))
    return [
        Suspect(
            function=first.place.function,
            file=first.place.file,
            line=first.place.line,
            score=round(first.counted, 3),
            why=f"ran in {first.score.failing} of {len(runs.failing)} runs that show it, and in "
            f"{first.score.passing} of {len(runs.passing)} that do not{first.why}",
        )
        for *_, first in sorted(best, key=lambda one: one[:-1])[:MOST]
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
        """The list with a comparison of values: the function in which they diverge comes first, unless they usually
        do.
        """
        within = "" if comparison.usual else comparison.within
        plain = [
            msgspec.structs.replace(one, why=one.why.removesuffix(_PARTED))
            for one in self.suspects
            if one.why != f"{_UNRANKED}{_PARTED}"
        ]
        # An earlier comparison may have moved one of them.
        plain.sort(key=lambda one: -one.score)
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
