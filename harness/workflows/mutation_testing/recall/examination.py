"""Examines one mutant: its object code is compared with the release's, and then the suites run on both.

A mutant costs least first: a proof that it is equivalent takes one compilation a target; then the suites run that are
chosen for the changed file; and the rest of the tier runs only if those have found nothing.
"""

from __future__ import annotations

import functools
import shutil
import time
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.cache import write_whole
from harness.core.errors import InconclusiveError
from harness.core.finding import Verdict
from harness.core.model import CANARY_SUITE, SourceTree, Tier
from harness.plan.plan import make_plan
from harness.workflows import check
from harness.workflows.mutation_testing.campaign import planted_request
from harness.workflows.mutation_testing.mutations import plant
from harness.workflows.mutation_testing.recall.document import MutantOutcome, NewFinding
from harness.workflows.mutation_testing.recall.object_code import ReleaseObjects
from harness.workflows.suite_selection import choose, read_ignored_paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.judge.findings import Judgement
    from harness.workflows.mutation_testing.generator.mutants import Mutant
    from harness.workflows.workbench import Workbench

BUILD = "build"
"""The kind of the finding that a server does not compile."""


class Examiner:
    """Examines the mutants of a release. A folder keeps what is known of the release itself."""

    def __init__(
        self, bench: Workbench, server: str, tier: Tier, targets: list[str], folder: Path, *, install: bool
    ) -> None:
        """`targets`: those of all operators. Raises UsageError for a server that is none."""
        self.bench = bench
        self.server = server
        self.tier = tier
        self.targets = targets
        self.folder = folder
        self.install = install
        self.tree = bench.open_server(server)
        self.suites = make_plan(bench.catalog, targets=targets, server=server, suites=[], tier=tier).suites
        self._ignored = read_ignored_paths()

    def is_linked(self, mutant: Mutant) -> bool:
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

    def examine(self, mutant: Mutant) -> MutantOutcome:
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
                found = evidence_in(judgement, baseline)
                outcome = MutantOutcome(
                    mutant=mutant, state="found", why="", targets=targets, suites=ran, found_by=found
                )
                if any(finding.kind == BUILD for finding in judgement.findings):
                    return msgspec.structs.replace(outcome, state="invalid", why="the server is not made", found_by=[])
                again = self._seen_again(mutant, tree, outcome, baseline, fail_fast=fail_fast) if found else []
            except InconclusiveError as error:
                unknown.append(error.what)
                continue
            if again:
                why = ", ".join(each.finding for each in again)
                return msgspec.structs.replace(outcome, why=why, found_by=again)
            once += [evidence.finding for evidence in found]
            unknown += _unknown_cells(judgement)
        if unknown:
            return MutantOutcome(mutant=mutant, state="unjudged", why="; ".join(unknown), targets=targets, suites=ran)
        why = f"seen once, and not again: {', '.join(once)}" if once else "no suite found it"
        return MutantOutcome(mutant=mutant, state="survived", why=why, targets=targets, suites=ran)

    def _seen_again(
        self,
        mutant: Mutant,
        tree: Path,
        outcome: MutantOutcome,
        baseline: Mapping[str, Sequence[str]],
        *,
        fail_fast: bool,
    ) -> list[NewFinding]:
        """What a second run of the suites with findings shows, too: a busy machine can fail a test by chance.

        Where memory is overwritten, both runs may have other findings: then those of the second count.
        """
        suites = sorted({suite for found in outcome.found_by for suite in found.suites} - {CANARY_SUITE})
        targets = [target for target in outcome.targets if any(target in found.targets for found in outcome.found_by)]
        if not suites or not targets:
            return outcome.found_by
        run = tree.parent / "again"
        shutil.rmtree(run, ignore_errors=True)
        judgement = self._check(str(tree), targets, suites, run, name=f"{mutant.name}, again", fail_fast=fail_fast)
        return in_both(outcome.found_by, evidence_in(judgement, baseline))

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
            tier=self.tier,
            run=run,
            install=self.install,
            fail_fast=fail_fast,
        )
        judgement, _ = check.Check(self.bench.with_new_stages(f"{name}: "), request).run()
        return judgement

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
            judgement = self._check(self.server, targets, suites, place, name="release")
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

    def own_findings(self) -> list[str]:
        """The identities of what the suites have found in the release itself so far."""
        files = (self.folder / "baseline").glob("*.json")
        return sorted({each for file in files for each in json_codec.decode(file.read_bytes(), list[str])})


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


def in_both(first: Sequence[NewFinding], again: Sequence[NewFinding]) -> list[NewFinding]:
    """The findings of two runs that are the same; where none is, those of the second."""
    identities = {each.finding for each in again}
    return [each for each in first if each.finding in identities] or list(again)


def _unknown_cells(judgement: Judgement) -> list[str]:
    """The cells without a verdict, each with the reason."""
    return [f"{cell.target}/{cell.suite}: {cell.reason}" for cell in judgement.cells if cell.verdict is Verdict.UNKNOWN]
