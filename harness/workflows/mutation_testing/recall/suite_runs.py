"""Runs suites on a release or a mutant, as every check of a sample does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.core.finding import Verdict
from harness.workflows import check
from harness.workflows.mutation_testing.campaign import planted_request
from harness.workflows.preparation.reach.base_code import ReleaseCode
from harness.workflows.preparation.reach.edited_lines import EditedLines

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from harness.core.model import SourceTree, Tier
    from harness.judge.findings import Judgement
    from harness.workflows.workbench import Workbench


class SuiteRuns:
    """The runs of one tier on a release and its mutants.

    Those of the release record which functions each test enters. On a mutant, only the tests run that enter a function
    whose machine code differs.
    """

    def __init__(self, bench: Workbench, tier: Tier, server: str, release: SourceTree, *, install: bool) -> None:
        """`server`: the name or the path of the release."""
        self.bench = bench
        self.tier = tier
        self.server = server
        self.release = release
        self.install = install
        self._bases: dict[tuple[str, ...], ReleaseCode] = {}

    def run(
        self,
        server: str,
        targets: list[str],
        suites: list[str],
        run: Path,
        *,
        name: str,
        without: Collection[str] = (),
        tests: Sequence[str] = (),
        to_end: bool,
    ) -> Judgement:
        """Run suites on a server, whose stages are called by a name: to their ends, or until a test fails.

        `without`: tests that do not run; `tests`: those that do, empty for all. Raises as Check.run does.
        """
        request = planted_request(
            self.bench,
            server,
            targets=targets,
            suites=suites,
            tier=self.tier,
            run=run,
            install=self.install,
            fail_fast=not to_end,
        )
        request = msgspec.structs.replace(request, tests=list(tests))
        bench = self.bench.with_new_stages(f"{name}: ")
        is_release = server == self.server
        change = check.CheckedChange(
            files=(),
            known_in_base="",
            base_code=self._bases.setdefault(tuple(targets), ReleaseCode(self.bench, request, self.release)),
            edited=EditedLines(pieces={}, names={}, whole=False),
            every_test=is_release or bool(tests),
            idle=True,
            keeps=is_release,
        )
        judgement, _ = check.Check(bench, request, change=change, without=without, one_failure=not to_end).run()
        return judgement


def unknown_cells(judgement: Judgement) -> list[str]:
    """The cells without a verdict, each with the reason."""
    return [f"{cell.target}/{cell.suite}: {cell.reason}" for cell in judgement.cells if cell.verdict is Verdict.UNKNOWN]
