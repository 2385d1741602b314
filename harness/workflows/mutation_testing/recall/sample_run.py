"""Runs the suites on a sample of mutants, one after the other, and stores each outcome at once, so that it can resume.

A folder contains a sample: the request, the outcomes, what is known about the release, and the document of everything.
"""

from __future__ import annotations

import importlib.metadata
import time
from typing import TYPE_CHECKING

from harness.core import json_codec
from harness.core.cache import write_whole
from harness.core.digests import key_of, sha256_of
from harness.core.errors import NothingSelectedError, UsageError
from harness.core.model import Record, Tier
from harness.core.strict_toml import ROOT
from harness.plan.name_selection import select
from harness.workflows.git.checkout import Checkout
from harness.workflows.mutation_testing.campaign import SEED
from harness.workflows.mutation_testing.generator.mutants import Mutant, generate, in_sample_order
from harness.workflows.mutation_testing.generator.operators import operators_digest, read_operators
from harness.workflows.mutation_testing.recall.document import Header, MutantOutcome, RecallDocument
from harness.workflows.mutation_testing.recall.examination import Examiner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from harness.workflows.workbench import Workbench

DECIDING = ("ci", "harness", "suites", "targets", "toolchains", "requirements.txt")
"""The parts of Plumbline's checkout on which the outcomes depend."""
COUNTED = ("found", "survived", "unjudged")
"""The states of a mutant that counts towards the sample's size: equivalent and invalid ones do not."""


class Sample(Record, frozen=True):
    """The request. A folder contains the outcomes of one sample."""

    server: str
    names: list[str]
    """Globs of the identifiers of mutants; empty for all."""
    tier: Tier
    seed: int
    size: int
    limit_seconds: float | None
    """After this time no further mutant begins."""


class _Asked(Record, frozen=True):
    """Identifies the outcomes of a folder: it resumes only with the same identity."""

    header: Header
    seed: int
    names: list[str]


def mutants_of(bench: Workbench, server: str, names: Sequence[str] = ()) -> list[Mutant]:
    """The mutants of a release, in the order of its operators and files. Raises UsageError for an unknown name."""
    every = {mutant.name: mutant for mutant in generate(bench.open_server(server).content, read_operators())}
    if not every:
        raise NothingSelectedError(f"no operator applies to {server}")
    return [every[name] for name in select("mutant", names or ["*"], every)]


class SampleRun:
    """A sample whose outcomes are stored in a folder."""

    def __init__(self, bench: Workbench, sample: Sample, folder: Path, *, install: bool = False) -> None:
        """Raises UsageError if the folder belongs to another sample."""
        self.bench = bench
        self.sample = sample
        self.folder = folder
        targets = [*dict.fromkeys(target for operator in read_operators().operators for target in operator.targets)]
        self.examiner = Examiner(bench, sample.server, sample.tier, targets, folder, install=install)
        tree = self.examiner.tree
        # A release's name stands for its content; a folder's name does not.
        named = tree.name if sample.server in bench.catalog.servers else f"{tree.name}@{tree.digest[:12]}"
        self._asked = _Asked(
            header=Header(
                server=named,
                tier=sample.tier,
                targets=targets,
                operators=operators_digest(),
                commit=commit_of(ROOT),
                suite_seed=SEED,
            ),
            seed=sample.seed,
            names=sample.names,
        )
        self._claim()

    def _claim(self) -> None:
        """Make the folder the sample's own, or recognise it."""
        (self.folder / "outcomes").mkdir(parents=True, exist_ok=True)
        file = self.folder / "sample.json"
        asked = json_codec.pretty(self._asked)
        if file.is_file() and file.read_bytes() != asked:
            raise UsageError(
                "the folder holds the outcomes of another sample",
                where=str(file),
                because="release, tier, seed, names, operators and Plumbline's commit must be the same",
                remedy="name a new folder, or none: --run FOLDER",
            )
        write_whole(file, asked)

    def run(self, show: Callable[[MutantOutcome], None]) -> RecallDocument:
        """Examine mutants until the sample has its size, or its time is over; `show` receives each new outcome.

        Raises BuildFailedError if the release itself does not compile, and what `harness.workflows.check` raises.
        """
        deadline = time.monotonic() + self.sample.limit_seconds if self.sample.limit_seconds else None
        chosen = mutants_of(self.bench, self.sample.server, self.sample.names)
        outcomes: list[MutantOutcome] = []
        for mutant in in_sample_order(filter(self.examiner.is_linked, chosen), self.sample.seed):
            if sum(outcome.state in COUNTED for outcome in outcomes) == self.sample.size:
                break
            stored = self.folder / "outcomes" / f"{mutant.name}.json"
            if stored.is_file():
                outcomes.append(json_codec.decode(stored.read_bytes(), MutantOutcome))
                continue
            if deadline is not None and time.monotonic() > deadline:
                break
            outcome = self.examiner.examine(mutant)
            write_whole(stored, json_codec.pretty(outcome))
            outcomes.append(outcome)
            show(outcome)
            # If a user ends the run now, the document covers the outcomes so far.
            self._write(outcomes)
        return self._write(outcomes)

    def _write(self, outcomes: list[MutantOutcome]) -> RecallDocument:
        document = RecallDocument(
            header=self._asked.header,
            seeds=[self.sample.seed],
            baseline=self.examiner.baseline.own_findings(),
            outcomes=outcomes,
        )
        write_whole(self.folder / "recall.json", json_codec.pretty(document))
        return document


def commit_of(root: Path) -> str:
    """Plumbline's commit; its version if it is not a checkout. If files that determine the outcomes differ from the
    commit, `+` and the beginning of their digest follow.
    """
    try:
        checkout = Checkout(root)
        base = checkout.base("HEAD")
    except UsageError:
        return importlib.metadata.version("plumbline")
    # The links of its environment lead out of it.
    changed = [root / name for name in sorted(checkout.named_by_git(base)) if name.partition("/")[0] in DECIDING]
    content = [f"{path.relative_to(root)} {sha256_of(path) if path.is_file() else 'gone'}" for path in changed]
    return base.commit[:12] + (f"+{key_of(content)[:8]}" if content else "")
