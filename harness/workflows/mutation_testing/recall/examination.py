"""Examines one mutant: its object code is compared with the release's, and then the suites run on both.

The cheapest step comes first: a proof of equivalence takes one compilation per target. Then the suites for the changed
file run, on one target after the other. The rest of the tier runs only if they find nothing. The first test that fails
in the mutant but not in the release ends the examination.
"""

from __future__ import annotations

import functools
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from harness.core.errors import InconclusiveError
from harness.core.model import CANARY_SUITE, SourceTree, Tier
from harness.plan.plan import make_plan
from harness.record import run_folder
from harness.workflows.mutation_testing.mutations import BUILD, plant
from harness.workflows.mutation_testing.recall.document import MutantOutcome, NewFinding
from harness.workflows.mutation_testing.recall.object_code import ReleaseObjects
from harness.workflows.mutation_testing.recall.release_baseline import ReleaseBaseline
from harness.workflows.mutation_testing.recall.suite_runs import SuiteRuns, unknown_cells
from harness.workflows.suite_selection import choose, read_ignored_paths

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from harness.judge.findings import Judgement
    from harness.workflows.mutation_testing.generator.mutants import Mutant
    from harness.workflows.workbench import Workbench


ATTEMPTS = 3
"""How often the suites of a stage run, if each time another test fails by chance."""


@dataclass
class _Seen:
    """What the stages of a mutant have shown so far."""

    ran: list[str] = field(default_factory=list)
    """The suites of which a test ran."""
    reached: bool = False
    unknown: list[str] = field(default_factory=list)
    """Why a stage has no result."""
    once: list[str] = field(default_factory=list)
    """The findings that were not seen again."""

    def add(self, judgement: Judgement, *, reached: bool) -> None:
        """Add a run."""
        self.ran += [suite for suite in _suites_run(judgement) if suite not in self.ran]
        self.reached |= reached


class Examiner:
    """Examines the mutants of a release. A folder stores what is known about the release itself."""

    def __init__(
        self, bench: Workbench, server: str, tier: Tier, targets: list[str], folder: Path, *, install: bool
    ) -> None:
        """`targets`: those of all operators. Raises UsageError for an unknown server."""
        self.bench = bench
        self.targets = targets
        self.folder = folder
        self.tree = bench.open_server(server)
        self._runs = SuiteRuns(bench, tier, server, self.tree, install=install)
        self.baseline = ReleaseBaseline(self._runs, server, self.tree.name, folder)
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
        """The result of comparing object code: equivalent, invalid, or only the targets on which it differs."""
        idle = [name for name in mutant.targets if self._objects[name].is_unreferenced(mutant.file, mutant.function)]
        seen = {
            target: self._objects[target].compare(planted, mutant.file)
            for target in mutant.targets
            if target not in idle
        }
        different = [target for target, comparison in seen.items() if comparison == "different"]
        invalid = [target for target, comparison in seen.items() if comparison == "invalid"]
        outcome = MutantOutcome(mutant=mutant, state="survived", why="", targets=different)
        if invalid:
            return msgspec.structs.replace(
                outcome, state="invalid", why=f"it does not compile for {', '.join(invalid)}"
            )
        if not different:
            reasons = [
                f"the object code is the release's on {', '.join(seen)}" if seen else "",
                f"nothing refers to {mutant.function} on {', '.join(idle)}" if idle else "",
            ]
            why = ", and ".join(filter(None, reasons))
            return msgspec.structs.replace(outcome, state="equivalent", why=why)
        return outcome

    def _checked(self, mutant: Mutant, tree: Path, targets: list[str]) -> MutantOutcome:
        """The suites' findings on the targets on which the object code differs."""
        seen = _Seen()
        outcome = MutantOutcome(mutant=mutant, state="unjudged", why="", targets=targets)
        for number, stage in enumerate(self._stages(mutant, targets)):
            ended = self._staged(outcome, tree, stage, tree.parent / f"run-{number}", seen)
            if ended is not None:
                return ended
        outcome = msgspec.structs.replace(outcome, suites=seen.ran)
        if seen.unknown:
            return msgspec.structs.replace(outcome, why="; ".join(seen.unknown))
        why = "no suite found it" if seen.reached else "no test executes what it changes"
        if seen.once:
            why = f"seen once, and not again: {', '.join(seen.once)}"
        return msgspec.structs.replace(outcome, state="survived", why=why, reached=seen.reached)

    def _staged(
        self, outcome: MutantOutcome, tree: Path, stage: tuple[str, list[str]], run: Path, seen: _Seen
    ) -> MutantOutcome | None:
        """The outcome of a mutant if a stage decides it. A failure by chance ends the stage before all tests have been
        asked, so the others run without the test that failed.
        """
        target, suites = stage
        chance: set[str] = set()
        for attempt in range(ATTEMPTS):
            folder = run / str(attempt)
            try:
                judgement = self._check(str(tree), [target], suites, folder, name=outcome.mutant.name, chance=chance)
                seen.add(judgement, reached=_may_be_entered(folder, target))
                found = self._new_findings(judgement, target, suites)
                decided = msgspec.structs.replace(
                    outcome, state="found", suites=list(seen.ran), found_by=found, reached=True
                )
                if any(finding.kind == BUILD for finding in judgement.findings):
                    why = "the server is not built"
                    return msgspec.structs.replace(decided, state="invalid", why=why, found_by=[])
                again = self._seen_again(outcome.mutant, tree, decided, target, judgement) if found else []
            except InconclusiveError as error:
                seen.unknown.append(error.what)
                return None
            if again:
                why = ", ".join(each.finding for each in again)
                return msgspec.structs.replace(decided, why=why, found_by=again)
            if not found:
                seen.unknown += unknown_cells(judgement)
                return None
            seen.once += [evidence.finding for evidence in found]
            failed = failed_in(found, judgement) - chance
            if not failed:
                break
            chance |= failed
        seen.unknown.append(f"{target}: tests ended at a finding that was not seen again")
        return None

    def _seen_again(
        self, mutant: Mutant, tree: Path, outcome: MutantOutcome, target: str, judgement: Judgement
    ) -> list[NewFinding]:
        """The findings that a second run of the same tests also shows: on a busy machine, a test can fail by chance.

        If those tests alone show nothing, the whole suites run. If the mutant overwrites memory, the two runs may
        differ: then the findings of the second count.
        """
        suites = sorted({suite for found in outcome.found_by for suite in found.suites} - {CANARY_SUITE})
        if not suites:
            return outcome.found_by
        alone = self._tests_of(outcome.found_by, judgement)
        for tests in [alone, []] if alone else [[]]:
            run = tree.parent / "again"
            shutil.rmtree(run, ignore_errors=True)
            again = self._check(str(tree), [target], suites, run, name=f"{mutant.name}, again", tests=tests)
            if found := in_both(outcome.found_by, self._new_findings(again, target, suites)):
                return found
        return []

    def _tests_of(self, found: Sequence[NewFinding], judgement: Judgement) -> list[str]:
        """The tests that saw findings; none if one was seen outside of a test, or by a test of the release's own, which
        is selected by another name.
        """
        identities = {each.finding for each in found}
        witnesses = [witness for each in judgement.findings if each.id in identities for witness in each.witnesses]
        tests = {witness.test for witness in witnesses}
        whole = "" in tests or any(self.bench.catalog.suites[witness.suite].upstream for witness in witnesses)
        return [] if whole else sorted(tests)

    def _stages(self, mutant: Mutant, targets: list[str]) -> Iterator[tuple[str, list[str]]]:
        """The target and the suites that run together, one after the other: those for the changed file on each target,
        then the tier's others. In each stage, suites are ordered by the time that they took for the release.
        """
        first = choose([mutant.file], self.bench.catalog.suites, self._ignored).suites
        for wanted in (True, False):
            suites = [suite for suite in self.suites if (suite in first) == wanted and suite != CANARY_SUITE]
            for target in targets if suites else ():
                own = self.baseline.of(target, suites)
                yield target, sorted(suites, key=lambda suite: own[suite].seconds)

    def _check(
        self,
        server: str,
        targets: list[str],
        suites: list[str],
        run: Path,
        *,
        name: str,
        tests: Sequence[str] = (),
        chance: Collection[str] = (),
    ) -> Judgement:
        """Run suites on a mutant until a test fails that does not fail in the release, which must have a baseline.

        `tests`: those that run; empty for all. `chance`: those that failed by chance, and do not run.
        """
        own = [cell for target in targets for cell in self.baseline.of(target, suites).values()]
        return self._runs.run(
            server,
            targets,
            suites,
            run,
            name=name,
            without={test for cell in own for test in cell.tests} | {*chance},
            tests=tests,
            to_end=False,
        )

    def _new_findings(self, judgement: Judgement, target: str, suites: list[str]) -> list[NewFinding]:
        return evidence_in(
            judgement, [each for cell in self.baseline.of(target, suites).values() for each in cell.findings]
        )


def evidence_in(judgement: Judgement, own: Collection[str]) -> list[NewFinding]:
    """The findings that are neither known nor the release's own. `own`: identities of those."""
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
    """The findings that two runs share; if they share none, those of the second."""
    identities = {each.finding for each in again}
    return [each for each in first if each.finding in identities] or list(again)


def failed_in(found: Sequence[NewFinding], judgement: Judgement) -> set[str]:
    """The tests that saw findings."""
    identities = {each.finding for each in found}
    witnesses = [witness for each in judgement.findings if each.id in identities for witness in each.witnesses]
    return {test for witness in witnesses for test in witness.tests if test}


def _may_be_entered(run: Path, target: str) -> bool:
    """Whether a test of a run may have executed what differs in the machine code."""
    unentered = run_folder.read_run(run).unentered.get(target)
    return unentered is None or unentered.may_be_entered


def _suites_run(judgement: Judgement) -> list[str]:
    """The suites of which a test ran."""
    return [cell.suite for cell in judgement.cells if (cell.passed or cell.failed) and cell.suite != CANARY_SUITE]
