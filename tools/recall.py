"""docs/RECALL.md: which mutants the suites find, from the documents of samples in measurements/recall.

The documents are those of `plumb mutate --generate --sample N`. measurements/recall/survivors.toml says of every
survivor why it survives, or which test finds it now. measurements/recall/suspects.toml has where `plumb suspects`
ranked changed functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.core.errors import UsageError
from harness.core.model import Record
from harness.core.strict_toml import ROOT, read_toml
from harness.report.markdown_table import table
from harness.workflows.mutation_testing.generator.operators import read_operators
from harness.workflows.mutation_testing.recall import tables
from harness.workflows.mutation_testing.recall.document import (
    JUDGED,
    RecallDocument,
    Share,
    joined,
    read_document,
    share_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

STORED = ROOT / "measurements" / "recall"
NOT_RUN = "not run"
"""The `unexplained` of a bug for which `plumb explain` did not run."""


class Survivor(Record, frozen=True):
    """A recorded explanation of a mutant that survived: a reason, or a test that finds it."""

    server: str
    mutant: str
    reason: str = ""
    """Why no test finds it."""
    test: str = ""
    """The test that finds it now, `FILE::NAME`."""
    same: bool = False
    """Whether the reason shows that the mutant behaves like the release, on each target of its operator: it would be
    equivalent if a program had proved this.
    """


class HeldBack(Record, frozen=True):
    """A seed whose list of mutants nobody had read when the commit of its sample was made."""

    seed: int
    read_before: list[str] = msgspec.field(default_factory=list)
    """Its mutants that a list had, too, which had been read by then: operators with few mutants give the same ones to
    several seeds.
    """
    wanted: int = 0
    """The number of its mutants that should have been judged, if the time ran out earlier; otherwise 0."""


class SurvivorList(Record, frozen=True):
    """measurements/recall/survivors.toml."""

    survivors: list[Survivor]
    held_back: list[HeldBack] = msgspec.field(default_factory=list)

    def is_held_back(self, sample: RecallDocument) -> bool:
        """Whether all seeds of a sample are held back."""
        return set(sample.seeds) <= {one.seed for one in self.held_back}

    def wanted(self, sample: RecallDocument) -> int:
        """How many of the sample's mutants were to be judged; 0 if all of them are."""
        return sum(one.wanted for one in self.held_back if one.seed in sample.seeds)

    def read_before(self, sample: RecallDocument) -> set[str]:
        """The sample's mutants that had been read."""
        return {name for one in self.held_back if one.seed in sample.seeds for name in one.read_before}


class MeasuredRanking(Record, frozen=True):
    """Where a ranking of suspects has the function that a bug changes."""

    bug: str
    """A mutant made by rule, or a planted bug."""
    function: str
    """The function that it changes."""
    target: str
    suite: str
    """The suite of the finding."""
    rank: int
    """Its place in the list; 0 if it is not among the ten."""
    failing: int
    passing: int
    points_to: str = ""
    """The function that the finding points to without a ranking (`implicated`); empty for none."""
    explained: int | None = None
    """Its place after `plumb explain`; absent if the command showed no difference."""
    unexplained: str = "no value differs"
    """Why it showed none."""
    parts_in: str = ""
    """The function at the place where values part; empty if none differed."""
    training: bool = False
    """Whether someone had read this bug's ranking when the method was chosen."""
    commit: str = ""
    """Plumbline's commit, if it is not that of the file."""

    @property
    def after(self) -> int:
        """Its place once `plumb explain` has run."""
        return self.rank if self.explained is None else self.explained


_PLACES: dict[str, Callable[[MeasuredRanking], bool]] = {
    "first": lambda one: one.rank == 1,
    "among the first five": lambda one: 0 < one.rank <= 5,
    "among the ten that are listed": lambda one: one.rank > 0,
    "what the finding points to": lambda one: one.points_to == one.function,
}
"""Where the changed function may be, in words -> whether it is there."""
_EXPLAINED: dict[str, Callable[[MeasuredRanking], bool]] = {
    "first after `plumb explain`": lambda one: one.after == 1,
    "among the first five after `plumb explain`": lambda one: 0 < one.after <= 5,
    "where values part": lambda one: one.parts_in == one.function,
}
"""The same, of the bugs for which `plumb explain` ran."""


class MeasuredRankings(Record, frozen=True):
    """measurements/recall/suspects.toml."""

    commit: str
    """Plumbline's, of all rankings that name no other."""
    rankings: list[MeasuredRanking]

    def samples(self) -> dict[str, list[MeasuredRanking]]:
        """Kind of sample, with its commit -> its rankings: first those that are held back, the oldest first."""
        found: dict[str, list[MeasuredRanking]] = {}
        for one in sorted(self.rankings, key=lambda one: (one.training, one.commit != "")):
            found.setdefault(self.sample_of(one), []).append(one)
        return found

    def sample_of(self, one: MeasuredRanking) -> str:
        """The kind of sample and its commit."""
        return f"{'training' if one.training else 'held back'}, {one.commit or self.commit}"


def suspect_rows(folder: Path = STORED) -> list[str]:
    """A row for each bug whose ranking was measured, and the totals."""
    measured = read_toml(folder / "suspects.toml", MeasuredRankings)
    rows = [
        (
            f"`{one.bug}`",
            f"`{one.function}`",
            one.target,
            one.suite,
            f"`{one.points_to}`" if one.points_to else "",
            one.rank or "beyond 10",
            one.unexplained if one.explained is None else one.explained or "beyond 10",
            f"`{one.parts_in}`" if one.parts_in else "",
            one.failing,
            one.passing,
            measured.sample_of(one),
        )
        for one in measured.rankings
    ]
    heads = ["bug", "changed function", "target", "suite", "points to", "rank", "rank after `plumb explain`"]
    heads += ["values part in", "failing runs", "passing runs", "sample, commit"]
    samples = measured.samples()
    explained = [[one for one in sample if one.unexplained != NOT_RUN] for sample in samples.values()]
    shares = [
        (words, *(str(Share(found=sum(map(holds, sample)), judged=len(sample))) for sample in among))
        for places, among in ((_PLACES, samples.values()), (_EXPLAINED, explained))
        for words, holds in places.items()
    ]
    summary = table(["the changed function is", *samples], shares)
    return [*table(heads, rows), "", *summary]


def documents(folder: Path = STORED) -> list[RecallDocument]:
    """The stored samples. Those with the same header are joined. Raises UsageError for any other file."""
    groups: dict[str, list[RecallDocument]] = {}
    for path in sorted(folder.glob("*.json")):
        document = read_document(path)
        groups.setdefault(repr(document.header), []).append(document)
    return [joined(each) for each in groups.values()]


def survivors(folder: Path = STORED) -> SurvivorList:
    """The recorded explanations of survivors. Raises UsageError for an entry with neither a reason nor a test, or with
    both.
    """
    path = folder / "survivors.toml"
    found = read_toml(path, SurvivorList)
    for each in found.survivors:
        if bool(each.reason) == bool(each.test):
            raise UsageError(
                f"{each.mutant} has neither a reason nor a test, or both",
                where=str(path),
                remedy="give it the one that holds",
            )
        if each.same and not each.reason:
            raise UsageError(
                f"{each.mutant} is said to be the same, and a test finds it",
                where=str(path),
                remedy="leave out `same`, or give the reason instead of the test",
            )
    return found


def unexplained(samples: Iterable[RecallDocument], said: SurvivorList) -> list[str]:
    """The survivors of which nothing is said, as `SERVER: MUTANT`."""
    known = {(each.server, each.mutant) for each in said.survivors}
    return [
        f"{sample.header.server}: {outcome.mutant.name}"
        for sample in samples
        for outcome in sample.of("survived")
        if (sample.header.server, outcome.mutant.name) not in known
    ]


def operator_rows() -> list[str]:
    """The operators."""
    rows = [(f"`{one.name}`", one.fault, one.title, ", ".join(one.targets)) for one in read_operators().operators]
    return table(["operator", "fault", "the bug", "must show on"], rows)


def sample_rows() -> list[str]:
    """A row for each group of samples."""
    rows = []
    said = survivors()
    with_test = {(each.server, each.mutant) for each in said.survivors if each.test}
    same = {(each.server, each.mutant) for each in said.survivors if each.same}
    for each in documents():
        header = each.header
        use = "held back" if said.is_held_back(each) else "training"
        states = [len(each.of(state)) for state in ("survived", "equivalent", "invalid", "unjudged")]
        seeds = ", ".join(map(str, each.seeds))
        share = str(share_of(each.outcomes))
        survived = [(header.server, outcome.mutant.name) for outcome in each.of("survived")]
        found_since = sum(name in with_test for name in survived)
        others = [one for one in each.outcomes if (header.server, one.mutant.name) not in same]
        rows.append(
            (
                use,
                header.server,
                header.tier,
                ", ".join(header.targets),
                seeds,
                header.commit,
                share,
                *states,
                found_since,
                sum(name in same for name in survived),
                str(share_of(others)),
            )
        )
    heads = ["sample", "release", "tier", "targets", "seeds", "commit", "found", "survived"]
    heads += ["equivalent", "invalid", "unjudged", "another test", "same", "found of the others"]
    return [*table(heads, rows), *_remarks(said)]


def _remarks(said: SurvivorList) -> list[str]:
    """A sentence for each held-back sample that is cut short, and one where a list that was read had mutants of it."""
    lines = []
    for each in documents():
        if said.is_held_back(each) and said.wanted(each):
            seeds = ", ".join(map(str, each.seeds))
            judged = len(each.of(*JUDGED))
            wanted = f"The sample of seed {seeds} has {said.wanted(each)} mutants to judge."
            lines += ["", f"{wanted} Time ran out after the first {judged}."]
        names = said.read_before(each)
        read = [one for one in each.of(*JUDGED) if one.mutant.name in names]
        if said.is_held_back(each) and read:
            others = share_of(one for one in each.outcomes if one.mutant.name not in names)
            seeds = ", ".join(map(str, each.seeds))
            known = "1 was" if len(read) == 1 else f"{len(read)} were"
            sentence = f"Of the judged mutants of seed {seeds}, {known} also in the list of an earlier sample"
            lines += ["", f"{sentence}, which somebody had read. Without them the share is {others}."]
    return lines


def result_rows() -> list[str]:
    """The tables of each group of samples."""
    lines: list[str] = []
    said = {(each.server, each.mutant): each.reason or f"`{each.test}`" for each in survivors().survivors}
    for each in documents():
        server = each.header.server
        words = {mutant: text for (release, mutant), text in said.items() if release == server}
        lines += [f"### {server}, {each.header.tier}, commit {each.header.commit}", ""]
        for rows in (
            tables.by_operator(each),
            tables.by_file(each),
            tables.by_suite(each),
            tables.weakest(each),
            tables.by_evidence(each),
            tables.found_rows(each),
            tables.survivor_rows(each, words),
        ):
            lines += [*rows, ""]
    return lines[:-1]
