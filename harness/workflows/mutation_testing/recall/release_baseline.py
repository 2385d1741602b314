"""What the suites find in the release itself, which no mutant is blamed for."""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING

from harness.core import json_codec
from harness.core.cache import write_whole
from harness.core.errors import InconclusiveError
from harness.core.model import Record
from harness.judge.verdict import of_cell
from harness.workflows.mutation_testing.recall.suite_runs import unknown_cells

if TYPE_CHECKING:
    from pathlib import Path

    from harness.judge.findings import Judgement
    from harness.workflows.mutation_testing.recall.suite_runs import SuiteRuns


class ReleaseCell(Record, frozen=True):
    """A suite's findings in the release itself on a target."""

    findings: list[str]
    """Identities of the findings."""
    tests: list[str]
    """The tests that saw them. They do not run on mutants: a cell would end there, before the test that finds one."""
    seconds: float
    """How long the suite ran."""


class ReleaseBaseline:
    """The release's own findings. A folder keeps them for a sample."""

    def __init__(self, runs: SuiteRuns, server: str, name: str, folder: Path) -> None:
        """`name`: the release's, in messages."""
        self._runs = runs
        self.server = server
        self.name = name
        self.folder = folder

    def of(self, target: str, suites: list[str]) -> dict[str, ReleaseCell]:
        """Suite -> its cell on a target. Each runs once for a sample.

        Raises InconclusiveError if a cell has no verdict, or no test of it passes: it could find no mutant.
        """
        if missing := [suite for suite in suites if not self._baseline_file(target, suite).is_file()]:
            self._run_release(target, missing)
        files = {suite: self._baseline_file(target, suite) for suite in suites}
        return {suite: json_codec.decode(file.read_bytes(), ReleaseCell) for suite, file in files.items()}

    def _baseline_file(self, target: str, suite: str) -> Path:
        return self.folder / "baseline" / f"{target}-{suite}.json"

    def _run_release(self, target: str, suites: list[str]) -> None:
        place = self._runs.bench.cache.private("release")
        try:
            judgement = self._runs.run(self.server, [target], suites, place, name="release", to_end=True)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        if unknown := unknown_cells(judgement):
            raise InconclusiveError(
                f"the suites have no verdict for {self.name} itself",
                because="\n".join(unknown),
                remedy=f"the same command with --run {shlex.quote(str(self.folder))}, which resumes",
            )
        if useless := useless_cells(judgement):
            raise InconclusiveError(
                f"{self.name} itself fails every test of a suite, which therefore finds no mutant of it",
                because="\n".join(useless),
                remedy="--server FOLDER of a tree in which that fault is repaired: docs/FOUND.md has patches",
            )
        seconds = {cell.suite: cell.seconds for cell in judgement.cells if cell.target == target}
        for suite in suites:
            file = self._baseline_file(target, suite)
            file.parent.mkdir(exist_ok=True)
            write_whole(file, json_codec.pretty(release_cell(judgement, suite, seconds[suite])))

    def own_findings(self) -> list[str]:
        """The identities of what the suites have found in the release itself so far."""
        files = (self.folder / "baseline").glob("*.json")
        cells = [json_codec.decode(file.read_bytes(), ReleaseCell) for file in files]
        return sorted({identity for cell in cells for identity in cell.findings})


def release_cell(judgement: Judgement, suite: str, seconds: float) -> ReleaseCell:
    """What a suite found in the release, according to a judgement of one target."""
    seen = [(finding.id, each) for finding in judgement.findings for each in finding.witnesses if each.suite == suite]
    tests = {test for _, each in seen for test in each.tests if test}
    return ReleaseCell(
        findings=sorted({identity for identity, _ in seen}), tests=sorted(tests), seconds=round(seconds, 1)
    )


def useless_cells(judgement: Judgement) -> list[str]:
    """The cells in which tests failed and none passed, each with the release's findings there.

    A server that cannot start fails every test. So do its mutants, and each would seem to survive.
    """
    return [
        f"{cell.target}/{cell.suite}: {cell.failed} tests failed and none passed: "
        + (", ".join(each.id for each in of_cell(judgement.findings, cell.target, cell.suite)) or cell.reason)
        for cell in judgement.cells
        if cell.failed and not cell.passed
    ]
