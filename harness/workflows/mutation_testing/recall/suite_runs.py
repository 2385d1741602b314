"""Runs suites on a release or a mutant, as every check of a sample does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.core.finding import Verdict
from harness.workflows import check
from harness.workflows.mutation_testing.campaign import planted_request

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from harness.core.model import Tier
    from harness.judge.findings import Judgement
    from harness.workflows.workbench import Workbench


class SuiteRuns:
    """The runs of one tier."""

    def __init__(self, bench: Workbench, tier: Tier, *, install: bool) -> None:
        self.bench = bench
        self.tier = tier
        self.install = install

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
        judgement, _ = check.Check(bench, request, without=without, one_failure=not to_end).run()
        return judgement


def unknown_cells(judgement: Judgement) -> list[str]:
    """The cells without a verdict, each with the reason."""
    return [f"{cell.target}/{cell.suite}: {cell.reason}" for cell in judgement.cells if cell.verdict is Verdict.UNKNOWN]
