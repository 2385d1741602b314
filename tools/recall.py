"""docs/RECALL.md: which mutants the suites find, from the documents of samples in measurements/recall.

The documents are those of `plumb mutate --generate --sample N`. measurements/recall/survivors.toml says of every
survivor why it survives, or which test finds it now. measurements/recall/suspects.toml has where `plumb suspects`
ranked changed functions. `python -m tools.recall` prints what the page leaves out: each mutant, and each ranking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
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
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from harness.workflows.mutation_testing.recall.document import MutantOutcome

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

    def of_held_back(self, samples: Iterable[RecallDocument]) -> list[RecallDocument]:
        """Those that are held back, the newest first: the list has the oldest seeds first."""
        order = [one.seed for one in self.held_back]
        held_back = [one for one in samples if self.is_held_back(one)]
        return sorted(held_back, key=lambda one: -max(map(order.index, one.seeds)))

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
        """Kind of sample -> its rankings."""
        return {
            kind: [one for one in self.rankings if one.training == training]
            for kind, training in (("held back", False), ("training", True))
        }


def suspect_rows(folder: Path = STORED) -> list[str]:
    """How often the changed function is near the head of a ranking."""
    samples = read_toml(folder / "suspects.toml", MeasuredRankings).samples()
    explained = [[one for one in sample if one.unexplained != NOT_RUN] for sample in samples.values()]
    shares = [
        (words, *(str(Share(found=sum(map(holds, sample)), judged=len(sample))) for sample in among))
        for places, among in ((_PLACES, samples.values()), (_EXPLAINED, explained))
        for words, holds in places.items()
    ]
    return table(["the changed function is", *samples], shares)


def ranking_rows(folder: Path = STORED) -> list[str]:
    """A row for each bug whose ranking was measured."""
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
            f"{'training' if one.training else 'held back'}, {one.commit or measured.commit}",
        )
        for one in measured.rankings
    ]
    heads = ["bug", "changed function", "target", "suite", "points to", "rank", "rank after `plumb explain`"]
    heads += ["values part in", "failing runs", "passing runs", "sample, commit"]
    return table(heads, rows)


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


_EXPLANATIONS = ("survived", "another test", "same", "no test")
"""The survivors; those that another test finds; those that behave like the release; the others."""


class _Explained:
    """What is said of survivors."""

    def __init__(self, said: SurvivorList) -> None:
        self._said = {(one.server, one.mutant): one for one in said.survivors}

    def is_same(self, sample: RecallDocument, outcome: MutantOutcome) -> bool:
        """Whether a reason shows that it behaves like the release."""
        said = self._said.get((sample.header.server, outcome.mutant.name))
        return outcome.state == "survived" and said is not None and said.same

    def counts(self, survived: Iterable[tuple[RecallDocument, MutantOutcome]]) -> tuple[int, ...]:
        """How many there are of each of `_EXPLANATIONS`."""
        said = [self._said.get((sample.header.server, one.mutant.name)) for sample, one in survived]
        found_now = sum(one is not None and bool(one.test) for one in said)
        same = sum(one is not None and one.same for one in said)
        return len(said), found_now, same, len(said) - found_now - same


def sample_rows() -> list[str]:
    """A row for each held-back sample, the newest of each release first, and how many others are stored."""
    said, stored = survivors(), documents()
    held_back = said.of_held_back(stored)
    explained = _Explained(said)
    rows = []
    for each in sorted(held_back, key=lambda one: one.header.server):
        judged = each.of(*JUDGED)
        wanted = said.wanted(each)
        read = said.read_before(each)
        rows.append(
            (
                each.header.server,
                each.header.tier,
                ", ".join(each.header.targets),
                ", ".join(map(str, each.seeds)),
                f"{len(judged)} of {wanted}" if wanted else str(len(judged)),
                str(share_of(judged)),
                str(share_of(one for one in judged if one.mutant.name not in read)),
                str(share_of(one for one in judged if not explained.is_same(each, one))),
                *explained.counts((each, one) for one in each.of("survived")),
                *(len(each.of(state)) for state in ("equivalent", "invalid", "unjudged")),
            )
        )
    heads = ["release", "tier", "targets", "seed", "judged", "found", "found of those that nobody had read"]
    heads += ["found without the same", *_EXPLANATIONS, "equivalent", "invalid", "unjudged"]
    training = len(stored) - len(held_back)
    return [*table(heads, rows), "", f"{training} training samples are stored, too. They say nothing about recall."]


def releases() -> list[RecallDocument]:
    """The held-back samples of each release as one. Of a mutant in several samples, the newest outcome counts."""
    groups: dict[str, list[RecallDocument]] = {}
    for each in survivors().of_held_back(documents()):
        groups.setdefault(each.header.server, []).append(each)
    return [
        RecallDocument(
            header=samples[0].header,
            seeds=sorted(seed for one in samples for seed in one.seeds),
            baseline=[],
            outcomes=list({one.mutant.name: one for sample in reversed(samples) for one in sample.outcomes}.values()),
        )
        for _, samples in sorted(groups.items())
    ]


def kind_rows() -> list[str]:
    """A row for each release and kind of fault."""
    explained = _Explained(survivors())
    rows = []
    for release in releases():
        judged = release.of(*JUDGED)
        for fault in sorted({one.mutant.fault for one in judged}):
            members = [one for one in judged if one.mutant.fault == fault]
            survived = [(release, one) for one in members if one.state == "survived"]
            rows.append((release.header.server, fault, str(share_of(members)), *explained.counts(survived)))
    return table(["release", "fault", "found", *_EXPLANATIONS], rows)


def operator_rows() -> list[str]:
    """A row for each operator, with its mutants of all releases."""
    explained = _Explained(survivors())
    judged = [(release, one) for release in releases() for one in release.of(*JUDGED)]
    rows = []
    for operator in read_operators().operators:
        members = [(release, one) for release, one in judged if one.mutant.operator == operator.name]
        survived = [(release, one) for release, one in members if one.state == "survived"]
        rows.append(
            (
                f"`{operator.name}`",
                operator.fault,
                operator.title,
                ", ".join(operator.targets),
                f"{len(members) - len(survived)} of {len(members)}",
                *explained.counts(survived),
            )
        )
    return table(["operator", "fault", "the bug", "must show on", "found", *_EXPLANATIONS], rows)


def reach_rows() -> list[str]:
    """A row for each release, file and operator with survivors, and for each release as a whole: whether no test
    executes what they change, or tests execute it and notice nothing. Older outcomes do not tell.
    """
    said = {(one.server, one.mutant): one for one in survivors().survivors}
    rows: list[tuple[str | int, ...]] = []
    for release in releases():
        groups: dict[tuple[str, str], list[MutantOutcome]] = {}
        for one in release.of(*JUDGED):
            if one.reached is not None:
                groups.setdefault((f"`{one.mutant.file}`", f"`{one.mutant.operator}`"), []).append(one)
        server = release.header.server
        every = [one for members in groups.values() for one in members]
        for (file, operator), members in [(("all", "all"), every), *sorted(groups.items())]:
            left = [one for one in members if one.state == "survived"]
            same = sum((found := said.get((server, one.mutant.name))) is not None and found.same for one in left)
            unreached = sum(not one.reached for one in left)
            if left:
                rows.append((server, file, operator, len(members), unreached, len(left) - unreached, same))
    return table(["release", "file", "operator", "judged", "not reached", "reached, not noticed", "same"], rows)


def suite_rows() -> list[str]:
    """Tables for each release: which suites found its mutants, and whether a finding names the changed function."""
    lines: list[str] = []
    for release in releases():
        lines += [f"### {release.header.server}", ""]
        lines += [*tables.by_suite(release), "", *tables.by_evidence(release), ""]
    return lines[:-1]


def result_rows(seeds: Collection[int] = ()) -> list[str]:
    """Every table of each group of samples with one of these seeds; of all if none is given."""
    lines: list[str] = []
    said = {(each.server, each.mutant): each.reason or f"`{each.test}`" for each in survivors().survivors}
    for each in documents():
        if seeds and not {*seeds} & {*each.seeds}:
            continue
        server = each.header.server
        words = {mutant: text for (release, mutant), text in said.items() if release == server}
        named = ", ".join(map(str, each.seeds))
        lines += [f"### {server}, {each.header.tier}, seed {named}, commit {each.header.commit}", ""]
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


@click.command()
@click.option("--seed", "seeds", type=int, multiple=True, help="Only samples of this seed; repeat for more.")
@click.option("--suspects", is_flag=True, help="The rankings of suspects instead.")
def main(seeds: tuple[int, ...], *, suspects: bool) -> None:
    """Print every mutant of the stored samples: what found it, or why nothing does."""
    click.echo("\n".join(ranking_rows() if suspects else result_rows(seeds)))


if __name__ == "__main__":
    main()
