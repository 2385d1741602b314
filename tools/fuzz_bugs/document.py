"""measurements/fuzz-bugs.json: the lists of bugs, what each race took, and the tables of docs/BENCH.md about them."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core import json_codec
from harness.core.cache import write_whole
from harness.core.model import Record
from harness.core.strict_toml import ROOT
from harness.report.markdown_table import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

STORED = ROOT / "measurements" / "fuzz-bugs.json"
SERVER = "redis-7.0.15"
SCREENING = 0
"""The seed of the race that shows whether a bug is raced: with other seeds only if a way finds it with this one."""
SEEDS = (1, 2, 3)
State = Literal["", "equivalent", "invalid"]
"""Not built yet, or different from the release; with the release's machine code; it does not compile."""


class Bug(Record, frozen=True):
    """A bug in a release."""

    name: str
    kind: Literal["planted", "rule"]
    target: str
    file: str
    """The file that it changes, the first of several."""
    state: State = ""


class BugList(Record, frozen=True):
    """Bugs that a rule and a seed chose."""

    name: str
    seed: int
    bugs: list[Bug]


class Found(Record, frozen=True):
    """What a race took until a stream failed, or until the limit."""

    seconds: float
    """Processor seconds."""
    streams: int
    commands: int
    shown: str
    """The failure; empty if no stream failed."""
    at_once: bool = False
    """Whether a committed stream failed: those are the same in every run."""


class Race(Record, frozen=True):
    """One run of the fuzzer on one bug."""

    commit: str
    """Plumbline's."""
    bug: str
    seed: int
    found: Found


class BugRaces(Record, frozen=True):
    """The file."""

    limit_seconds: float = 8.0
    """Processor seconds after which a race ends."""
    lists: list[BugList] = msgspec.field(default_factory=list)
    races: list[Race] = msgspec.field(default_factory=list)

    def list_of(self, name: str) -> BugList:
        """A list by name. Raises StopIteration for an unknown one."""
        return next(one for one in self.lists if one.name == name)

    def race(self, commit: str, bug: str, seed: int) -> Race | None:
        """A race, if it was run."""
        asked = (commit, bug, seed)
        return next((one for one in self.races if (one.commit, one.bug, one.seed) == asked), None)

    def with_race(self, race: Race) -> BugRaces:
        """With one more race, which replaces an earlier one."""
        key = (race.commit, race.bug, race.seed)
        others = [one for one in self.races if (one.commit, one.bug, one.seed) != key]
        return msgspec.structs.replace(self, races=[*others, race])

    def with_list(self, changed: BugList) -> BugRaces:
        """With a list, which replaces that of the same name."""
        names = [one.name for one in self.lists]
        lists = [changed if one.name == changed.name else one for one in self.lists]
        return msgspec.structs.replace(self, lists=lists if changed.name in names else [*lists, changed])

    def with_state(self, bug: Bug, state: State) -> BugRaces:
        """With what a build has shown of a bug."""
        changed = msgspec.structs.replace(bug, state=state)
        lists = [
            msgspec.structs.replace(one, bugs=[changed if each.name == bug.name else each for each in one.bugs])
            for one in self.lists
        ]
        return msgspec.structs.replace(self, lists=lists)


def read(path: Path = STORED) -> BugRaces:
    """The stored lists and races; an empty document if there are none."""
    return json_codec.decode(path.read_bytes(), BugRaces) if path.is_file() else BugRaces()


def store(document: BugRaces, path: Path = STORED) -> None:
    """Write the document."""
    write_whole(path, json_codec.pretty(document))


def is_raced(document: BugRaces, bug: Bug) -> bool:
    """Whether some way finds a bug with the screening seed, and not every way by a committed stream."""
    screened = [one.found for one in document.races if (one.bug, one.seed) == (bug.name, SCREENING)]
    return any(one.shown for one in screened) and not all(one.at_once for one in screened)


def seconds(document: BugRaces, commit: str, bug: str, seeds: Iterable[int] = SEEDS) -> float | None:
    """The median over the seeds of what a bug took; a race without a failure counts as its limit. None if a race is
    missing.
    """
    races = [document.race(commit, bug, seed) for seed in seeds]
    if not races or None in races:
        return None
    return statistics.median(
        one.found.seconds if one.found.shown else document.limit_seconds for one in races if one is not None
    )


class Compared(Record, frozen=True):
    """What a bug took by two commits: medians in processor seconds."""

    bug: Bug
    before: float
    now: float


def compared(document: BugRaces, name: str, before: str, now: str) -> list[Compared]:
    """The bugs of a list that both commits have raced with every seed."""
    both = [
        (bug, seconds(document, before, bug.name), seconds(document, now, bug.name))
        for bug in document.list_of(name).bugs
        if is_raced(document, bug)
    ]
    return [Compared(bug=bug, before=old, now=new) for bug, old, new in both if old is not None and new is not None]


def commits(document: BugRaces) -> list[str]:
    """The commits with races, in the order in which they were first measured."""
    return list(dict.fromkeys(one.commit for one in document.races))


def summary_rows(document: BugRaces | None = None, before: str = "", now: str = "") -> list[str]:
    """A row for each list. `before`, `now`: commits, the first and the last one by default."""
    document = read() if document is None else document
    order = commits(document)
    if not order:
        return ["Nothing was measured yet."]
    before, now = before or order[0], now or order[-1]
    rows = [_summary(document, [one], before, now) for one in document.lists]
    if len(rows) > 1:
        rows.append(_summary(document, document.lists, before, now))
    heads = ["list", "bugs", "shown by the first streams", "not reached", "raced", "found before", "found now"]
    return table([*heads, "median before", "median now", "median of the ratios"], rows, numbers_from=1)


def _summary(document: BugRaces, lists: Sequence[BugList], before: str, now: str) -> list[object]:
    """The row of some lists."""
    bugs = [bug for one in lists for bug in one.bugs]
    races = [[each.found for each in document.races if _is_screening(each, bug)] for bug in bugs]
    screened = [found for found in races if found]
    pairs = [pair for one in lists for pair in compared(document, one.name, before, now)]
    row: list[object] = [
        lists[0].name if len(lists) == 1 else "all",
        len(screened),
        sum(all(each.at_once for each in found) for found in screened),
        sum(not any(each.shown for each in found) for found in screened),
        len(pairs),
    ]
    if not pairs:
        return [*row, *[""] * 5]
    row += [sum(each < document.limit_seconds for each in side) for side in _sides(pairs)]
    row += [f"{statistics.median(side):.2f} s" for side in _sides(pairs)]
    return [*row, f"{statistics.median(each.now / each.before for each in pairs):.2f}"]


def _is_screening(race: Race, bug: Bug) -> bool:
    return (race.bug, race.seed) == (bug.name, SCREENING)


def _sides(pairs: Iterable[Compared]) -> tuple[list[float], list[float]]:
    pairs = list(pairs)
    return [one.before for one in pairs], [one.now for one in pairs]


def bug_rows(document: BugRaces, name: str, before: str, now: str) -> list[str]:
    """A row for each bug of a list that was raced."""
    pairs = sorted(compared(document, name, before, now), key=lambda one: -one.before)
    return table(
        ["bug", "target", "before", "now", "ratio"],
        [
            (one.bug.name, one.bug.target, f"{one.before:.2f} s", f"{one.now:.2f} s", f"{one.now / one.before:.2f}")
            for one in pairs
        ],
        numbers_from=2,
    )
