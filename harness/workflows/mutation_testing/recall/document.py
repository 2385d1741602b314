"""The result of a run over a sample of mutants: the outcomes, with everything that decided them, as one document."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core import json_codec
from harness.core.errors import UsageError
from harness.core.model import Record, Tier
from harness.workflows.mutation_testing.generator.mutants import Mutant  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

State = Literal["found", "survived", "equivalent", "invalid", "unjudged"]
"""Found: a finding that the release does not have. Survived: none. Equivalent: the release's object code on each target
of the operator. Invalid: it does not compile. Unjudged: the run had no verdict."""
JUDGED: tuple[State, ...] = ("found", "survived")
CONFIDENCE = 0.95


class NewFinding(Record, frozen=True):
    """A finding that a mutant has and the release does not have."""

    finding: str
    """Its identity."""
    targets: list[str]
    suites: list[str]


class MutantOutcome(Record, frozen=True):
    """The outcome of one mutant."""

    mutant: Mutant
    state: State
    why: str
    """A description of what was seen."""
    targets: list[str] = msgspec.field(default_factory=list)
    """The targets of the operator on which its object code differs; the suites ran on these."""
    suites: list[str] = msgspec.field(default_factory=list)
    """The suites that ran, those for the changed file first."""
    found_by: list[NewFinding] = msgspec.field(default_factory=list)
    reached: bool | None = None
    """Whether a test may have executed what differs in the machine code. None: it was not recorded."""
    seconds: float = 0.0


class Header(Record, frozen=True):
    """Everything on which a sample's outcomes depend, apart from the seed: only runs with the same header can be
    joined.
    """

    server: str
    tier: Tier
    targets: list[str]
    """The targets of all operators."""
    operators: str
    """Digest of the operators and their transformers."""
    commit: str
    """Plumbline's, with `+` where files differed from it."""
    suite_seed: int


class RecallDocument(Record, frozen=True):
    """A run's result."""

    header: Header
    seeds: list[int]
    """The seeds of the samples."""
    baseline: list[str]
    """Identities of the release's own findings, which find no mutant."""
    outcomes: list[MutantOutcome]
    schema: int = 1

    def of(self, *states: State) -> list[MutantOutcome]:
        """The outcomes with one of these states."""
        return [outcome for outcome in self.outcomes if outcome.state in states]


def read_document(path: Path) -> RecallDocument:
    """A stored document. Raises UsageError for any other file."""
    try:
        return json_codec.decode(path.read_bytes(), RecallDocument)
    except (OSError, msgspec.DecodeError) as error:
        remedy = "plumb mutate --generate --sample N writes one: recall.json in its folder"
        raise UsageError("not the document of a sample", where=str(path), because=str(error), remedy=remedy) from error


def joined(documents: Sequence[RecallDocument]) -> RecallDocument:
    """Several samples as one; a mutant counts once. Raises UsageError if they do not have the same header."""
    first = documents[0]
    for other in documents[1:]:
        for field in Header.__struct_fields__:
            ours, theirs = getattr(first.header, field), getattr(other.header, field)
            if ours != theirs:
                raise UsageError(
                    f"two samples differ in `{field}`",
                    because=f"{ours} and {theirs}",
                    remedy="join samples of one release and tier, made by the same commit",
                )
    outcomes = {outcome.mutant.name: outcome for each in documents for outcome in each.outcomes}
    return RecallDocument(
        header=first.header,
        seeds=sorted({seed for each in documents for seed in each.seeds}),
        baseline=sorted({finding for each in documents for finding in each.baseline}),
        outcomes=list(outcomes.values()),
    )


class Share(Record, frozen=True):
    """How many of some mutants were found."""

    found: int
    judged: int

    @property
    def interval(self) -> tuple[float, float]:
        """The share's confidence interval, by Wilson's score (Wilson 1927, JASA 22:209-212), between 0 and 1."""
        if not self.judged:
            return 0.0, 1.0
        z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
        share, trials = self.found / self.judged, self.judged
        centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
        half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
        return max(0.0, centre - half), min(1.0, centre + half)

    def __str__(self) -> str:
        """`10 of 23 (43 %, 26 % to 63 %)`."""
        if not self.judged:
            return "none"
        low, high = self.interval
        return f"{self.found} of {self.judged} ({self.found / self.judged:.0%}, {low:.0%} to {high:.0%})".replace(
            "%", " %"
        )


def share_of(outcomes: Iterable[MutantOutcome]) -> Share:
    """The found ones among the judged ones of some outcomes."""
    judged = [outcome for outcome in outcomes if outcome.state in JUDGED]
    return Share(found=sum(outcome.state == "found" for outcome in judged), judged=len(judged))
