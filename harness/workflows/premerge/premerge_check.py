"""Checks a change before a merge: the changed files select the suites, and only new findings count against it.

It runs harness.workflows.check on the checkout and, if that has findings, on the base revision.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.core.finding import Verdict
from harness.judge import warning_findings
from harness.judge.change import unchecked_changes
from harness.workflows import check
from harness.workflows.git.checkout import Checkout
from harness.workflows.premerge.altered_code import altered_besides, with_suites
from harness.workflows.premerge.base_comparison import BaseComparison
from harness.workflows.premerge.change_selection import known_in, unseen_changes
from harness.workflows.preparation.reach.base_code import RevisionCode
from harness.workflows.preparation.reach.edited_lines import edited_lines
from harness.workflows.suite_selection import sampled

if TYPE_CHECKING:
    from harness.core.errors import ExitCode
    from harness.judge.findings import Judgement
    from harness.plan.request import Request
    from harness.workflows.premerge.change_selection import Premerge
    from harness.workflows.workbench import Workbench


def run(
    bench: Workbench, request: Request, premerge: Premerge, *, all_tests: bool = False, seconds: float = math.inf
) -> tuple[Judgement, ExitCode]:
    """Check the tree and, if that has findings, the base, whose findings are not new. Raises as Check.run does.

    Unless `all_tests`, tests do not run if they ended as expected in an earlier run and no change since then can reach
    them. A change of more than sources also runs the suites that alone cover files whose code it alters. `seconds`: the
    time limit of the tree's cells. The base's run is not limited: without it, nothing can be said of what failed.
    """
    until = time.monotonic() + seconds
    # The base is another matter: that it does not build on the host says nothing about the change.
    of_change = msgspec.structs.replace(request, needs_native=True)
    base_code = RevisionCode(bench.with_new_stages("base: "), request, premerge.base)
    base = BaseComparison(bench, request, premerge.base)
    checkout = Checkout(Path(request.server))
    parts = [change.file for change in premerge.changes if change.suites or change.unchecked]
    change = check.CheckedChange(
        files=[change.file for change in premerge.changes],
        known_in_base=known_in(checkout, premerge.base),
        base_code=base_code,
        edited=edited_lines(checkout, premerge.base, parts),
        every_test=all_tests,
        sampled=premerge.sampled if not all_tests else [],
        base_findings=base.early,
    )
    checking = check.Check(bench, of_change, change=change, patient=True, until=until)
    altered = altered_besides(bench, request, premerge, base_code, checking.tree)
    if altered:
        checking.change = change._replace(sampled=sampled([*premerge.changes, *altered]).intersection(change.sampled))
        request, checking.request = (
            with_suites(each, bench.catalog, premerge.changes, altered) for each in (request, of_change)
        )
    with unchecked_changes.noted(request.run, [*premerge.changes, *altered, *unseen_changes(premerge)]):
        judgement, code = checking.run()
    if any(cell.verdict == Verdict.FAIL for cell in judgement.cells) or warning_findings.verdicts(judgement.findings):
        return base.judged_again(request, judgement)
    return judgement, code
