"""Runs the suites on a sample of mutants, one after the other, and stores each outcome at once, so that it can resume.

A mutant costs least first: a proof that it is equivalent takes one compilation a target; then the suites run that are
chosen for the changed file; and the rest of the tier runs only if those have found nothing.
"""

from __future__ import annotations

import functools
import importlib.metadata
import shutil
import time
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.cache import write_whole
from harness.core.errors import InconclusiveError, NothingSelectedError, UsageError
from harness.core.finding import Verdict
from harness.core.model import CANARY_SUITE, Record, SourceTree, Tier
from harness.core.strict_toml import ROOT
from harness.plan.catalog import select
from harness.plan.plan import make_plan
from harness.workflows import check
from harness.workflows.git_checkout import Checkout
from harness.workflows.mutation_testing.campaign import SEED, planted_request
from harness.workflows.mutation_testing.generator.mutants import Mutant, generate, in_sample_order
from harness.workflows.mutation_testing.generator.operators import operators_digest, read_operators
from harness.workflows.mutation_testing.mutations import plant
from harness.workflows.mutation_testing.recall.document import Header, MutantOutcome, NewFinding, RecallDocument
from harness.workflows.mutation_testing.recall.object_code import ReleaseObjects
from harness.workflows.suite_selection import choose, read_ignored_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.judge.findings import Judgement
    from harness.workflows.workbench import Workbench

COUNTED = ("found", "survived", "unjudged")
"""The states of a mutant that counts towards the sample's size: equivalent and invalid ones do not."""
BUILD = "build"
"""The kind of the finding that a server does not compile."""


class Sample(Record, frozen=True):
    """What is asked for. A folder holds the outcomes of one sample."""

    server: str
    names: list[str]
    """Globs of the identifiers of mutants; empty for all."""
    tier: Tier
    seed: int
    size: int
    limit_seconds: float | None
    """After this time no further mutant begins."""


class _Asked(Record, frozen=True):
    """What a folder's outcomes belong to: it resumes with the same alone."""

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
    """A sample whose outcomes are kept in a folder."""

    def __init__(self, bench: Workbench, sample: Sample, folder: Path, *, install: bool = False) -> None:
        """Raises UsageError where the folder belongs to another sample."""
        self.bench = bench
        self.sample = sample
        self.folder = folder
        self.install = install
        self.tree = bench.open_server(sample.server)
        table = read_operators()
        self.targets = [*dict.fromkeys(target for operator in table.operators for target in operator.targets)]
        self.suites = make_plan(
            bench.catalog, targets=self.targets, server=sample.server, suites=[], tier=sample.tier
        ).suites
        self._ignored = read_ignored_paths()
        self._asked = _Asked(
            header=Header(
                server=self.tree.name,
                tier=sample.tier,
                targets=self.targets,
                operators=operators_digest(),
                commit=_commit(),
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

        Raises BuildFailedError where the release itself does not compile, and what `harness.workflows.check` raises.
        """
        deadline = time.monotonic() + self.sample.limit_seconds if self.sample.limit_seconds else None
        chosen = mutants_of(self.bench, self.sample.server, self.sample.names)
        outcomes: list[MutantOutcome] = []
        for mutant in in_sample_order(filter(self._is_linked, chosen), self.sample.seed):
            if sum(outcome.state in COUNTED for outcome in outcomes) == self.sample.size:
                break
            stored = self.folder / "outcomes" / f"{mutant.name}.json"
            if stored.is_file():
                outcomes.append(json_codec.decode(stored.read_bytes(), MutantOutcome))
                continue
            if deadline is not None and time.monotonic() > deadline:
                break
            outcome = self._examine(mutant)
            write_whole(stored, json_codec.pretty(outcome))
            outcomes.append(outcome)
            show(outcome)
            # Whoever ends the run now finds the document of what is there.
            self._write(outcomes)
        return self._write(outcomes)

    def _is_linked(self, mutant: Mutant) -> bool:
        """Whether the server of one of its targets contains the file that a mutant changes."""
        return any(self._objects[target].containing(mutant.file) for target in mutant.targets)

    @functools.cached_property
    def _objects(self) -> dict[str, ReleaseObjects]:
        """Target -> the release's objects."""
        folder = self.folder / "objects"
        folder.mkdir(exist_ok=True)
        return {
            name: ReleaseObjects.record(
                self.bench, self.tree, self.bench.catalog.targets[name], folder / f"{name}.json"
            )
            for name in self.targets
        }

    def _write(self, outcomes: list[MutantOutcome]) -> RecallDocument:
        files = (self.folder / "baseline").glob("*.json")
        found = {each for file in files for each in json_codec.decode(file.read_bytes(), list[str])}
        document = RecallDocument(
            header=self._asked.header, seeds=[self.sample.seed], baseline=sorted(found), outcomes=outcomes
        )
        write_whole(self.folder / "recall.json", json_codec.pretty(document))
        return document

    def _baseline(self, targets: list[str], suites: list[str]) -> dict[str, list[str]]:
        """Suite -> identities of what it finds in the release itself, on these targets. Cells run once for a sample.

        Raises InconclusiveError where a cell has no verdict.
        """
        cells = {(target, suite): self._baseline_file(target, suite) for target in targets for suite in suites}
        missing = [cell for cell, file in cells.items() if not file.is_file()]
        if missing:
            self._run_release(
                [target for target in targets if target in {cell[0] for cell in missing}],
                [suite for suite in suites if suite in {cell[1] for cell in missing}],
            )
        found: dict[str, list[str]] = {suite: [] for suite in suites}
        for (_, suite), file in cells.items():
            found[suite] += json_codec.decode(file.read_bytes(), list[str])
        return found

    def _baseline_file(self, target: str, suite: str) -> Path:
        return self.folder / "baseline" / f"{target}-{suite}.json"

    def _run_release(self, targets: list[str], suites: list[str]) -> None:
        place = self.bench.cache.private("release")
        try:
            judgement = self._check(self.sample.server, targets, suites, place, name="release")
        finally:
            shutil.rmtree(place, ignore_errors=True)
        if unknown := _unknown_cells(judgement):
            raise InconclusiveError(
                f"the suites have no verdict for {self.tree.name} itself",
                because="\n".join(unknown),
                remedy=f"the same command with --run {self.folder}, which resumes",
            )
        found: dict[tuple[str, str], set[str]] = {}
        for finding in judgement.findings:
            for witness in finding.witnesses:
                found.setdefault((witness.target, witness.suite), set()).add(finding.id)
        for target in targets:
            for suite in suites:
                file = self._baseline_file(target, suite)
                file.parent.mkdir(exist_ok=True)
                write_whole(file, json_codec.pretty(sorted(found.get((target, suite), ()))))

    def _examine(self, mutant: Mutant) -> MutantOutcome:
        """Plant a mutant, compare its object code, and run the suites on it."""
        started = time.monotonic()
        place = self.bench.cache.private(mutant.name)
        try:
            # The mutant keeps the release's name, by which ccache recognises the files that have not changed.
            tree = place / self.tree.name
            plant(mutant, self.tree.path, tree)
            outcome = self._compared(mutant, self.bench.open_server(str(tree)))
            if not outcome.why:
                outcome = self._checked(mutant, tree, outcome.targets)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return msgspec.structs.replace(outcome, seconds=round(time.monotonic() - started, 1))

    def _compared(self, mutant: Mutant, planted: SourceTree) -> MutantOutcome:
        """What the object code tells: equivalent, invalid, or the targets on which it differs, with nothing else."""
        seen = {target: self._objects[target].compare(planted, mutant.file) for target in mutant.targets}
        different = [target for target, comparison in seen.items() if comparison == "different"]
        invalid = [target for target, comparison in seen.items() if comparison == "invalid"]
        outcome = MutantOutcome(mutant=mutant, state="survived", why="", targets=different)
        if invalid:
            return msgspec.structs.replace(
                outcome, state="invalid", why=f"it does not compile for {', '.join(invalid)}"
            )
        if not different:
            why = f"the object code is the release's on {', '.join(seen)}"
            return msgspec.structs.replace(outcome, state="equivalent", why=why)
        return outcome

    def _checked(self, mutant: Mutant, tree: Path, targets: list[str]) -> MutantOutcome:
        """What the suites find on the targets on which the object code differs."""
        ran: list[str] = []
        unknown: list[str] = []
        once: list[str] = []
        for number, suites in enumerate(self._stages(mutant, targets)):
            run = tree.parent / f"run-{number}"
            ran += suites
            baseline = self._baseline(targets, suites)
            # A cell would end at the release's own failure, before the one that finds the mutant.
            fail_fast = not any(baseline.values())
            try:
                judgement = self._check(str(tree), targets, suites, run, name=mutant.name, fail_fast=fail_fast)
            except InconclusiveError as error:
                unknown.append(error.what)
                continue
            found = evidence_in(judgement, baseline)
            outcome = MutantOutcome(mutant=mutant, state="found", why="", targets=targets, suites=ran, found_by=found)
            if any(finding.kind == BUILD for finding in judgement.findings):
                return msgspec.structs.replace(outcome, state="invalid", why="the server is not made", found_by=[])
            if found and self._shows_again(mutant, tree, outcome, baseline, fail_fast=fail_fast):
                return msgspec.structs.replace(outcome, why=", ".join(evidence.finding for evidence in found))
            once += [evidence.finding for evidence in found]
            unknown += _unknown_cells(judgement)
        if unknown:
            return MutantOutcome(mutant=mutant, state="unjudged", why="; ".join(unknown), targets=targets, suites=ran)
        why = f"seen once, and not again: {', '.join(once)}" if once else "no suite found it"
        return MutantOutcome(mutant=mutant, state="survived", why=why, targets=targets, suites=ran)

    def _shows_again(
        self,
        mutant: Mutant,
        tree: Path,
        outcome: MutantOutcome,
        baseline: Mapping[str, Sequence[str]],
        *,
        fail_fast: bool,
    ) -> bool:
        """Whether the suites with findings have some in a second run, too: a busy machine can fail a test by chance."""
        suites = sorted({suite for found in outcome.found_by for suite in found.suites} - {CANARY_SUITE})
        targets = [target for target in outcome.targets if any(target in found.targets for found in outcome.found_by)]
        if not suites or not targets:
            return True
        run = tree.parent / "again"
        shutil.rmtree(run, ignore_errors=True)
        again = self._check(str(tree), targets, suites, run, name=f"{mutant.name}, again", fail_fast=fail_fast)
        return bool(evidence_in(again, baseline))

    def _stages(self, mutant: Mutant, targets: list[str]) -> Iterator[list[str]]:
        """The suites that run together, one list after the other: those for the changed file, then the tier's others.

        Of each, those come first in which the release has no finding: they end at their first failure.
        """
        first = choose([mutant.file], self.bench.catalog.suites, self._ignored).suites
        for wanted in (True, False):
            suites = [suite for suite in self.suites if (suite in first) == wanted and suite != CANARY_SUITE]
            baseline = self._baseline(targets, suites)
            for clean in (True, False):
                if together := [suite for suite in suites if bool(baseline[suite]) != clean]:
                    yield together

    def _check(
        self, server: str, targets: list[str], suites: list[str], run: Path, *, name: str, fail_fast: bool = False
    ) -> Judgement:
        request = planted_request(
            self.bench,
            server,
            targets=targets,
            suites=suites,
            tier=self.sample.tier,
            run=run,
            install=self.install,
            fail_fast=fail_fast,
        )
        judgement, _ = check.Check(self.bench.with_new_stages(f"{name}: "), request).run()
        return judgement


def evidence_in(judgement: Judgement, baseline: Mapping[str, Sequence[str]]) -> list[NewFinding]:
    """The findings that are neither known nor the release's own. `baseline`: suite -> identities of those."""
    own = {identity for identities in baseline.values() for identity in identities}
    return [
        NewFinding(
            finding=finding.id,
            targets=finding.targets,
            suites=sorted({witness.suite for witness in finding.witnesses}),
        )
        for finding in judgement.findings
        if not finding.known and finding.id not in own
    ]


def _unknown_cells(judgement: Judgement) -> list[str]:
    """The cells without a verdict, each with the reason."""
    return [f"{cell.target}/{cell.suite}: {cell.reason}" for cell in judgement.cells if cell.verdict is Verdict.UNKNOWN]


def _commit() -> str:
    """Plumbline's commit, with `+` where files differ from it; its version, where it is no checkout."""
    try:
        checkout = Checkout(ROOT)
        base = checkout.base("HEAD")
        return base.commit[:12] + ("+" if checkout.changed(base) else "")
    except UsageError:
        return importlib.metadata.version("plumbline")
