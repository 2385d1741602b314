"""Checks a change before a merge: the changed files select the suites, and only new findings count against it.

It runs harness.workflows.check on the checkout and then, if that has findings, on the base revision.
"""

from __future__ import annotations

import functools
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import source_excerpt
from harness.core.finding import Verdict
from harness.judge import baseline, conclusion, warning_findings
from harness.judge.change import unchecked_changes
from harness.record import stored_run
from harness.workflows import check
from harness.workflows.cell_runs import names_server, preceded_tests
from harness.workflows.git.checkout import Checkout
from harness.workflows.premerge.altered_code import altered_besides, with_suites
from harness.workflows.premerge.base_check import findings_of
from harness.workflows.premerge.change_selection import known_in, unseen_changes
from harness.workflows.preparation.reach.base_code import RevisionCode
from harness.workflows.preparation.reach.edited_lines import edited_lines
from harness.workflows.suite_selection import sampled

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from harness.analysis.source_excerpt import Sources
    from harness.core.errors import ExitCode
    from harness.core.finding import Finding
    from harness.core.model import Suite
    from harness.judge.baseline import Baseline, BaseRevision
    from harness.judge.findings import Judgement
    from harness.plan.plan import Plan
    from harness.plan.request import Request
    from harness.workflows.premerge.change_selection import Premerge
    from harness.workflows.workbench import Workbench

FURTHER_RUNS = 2
"""How often the base runs a test again before a change is blamed for its failure."""


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
    checkout = Checkout(Path(request.server))
    parts = [change.file for change in premerge.changes if change.suites or change.unchecked]
    change = check.CheckedChange(
        files=[change.file for change in premerge.changes],
        known_in_base=known_in(checkout, premerge.base),
        base_code=base_code,
        edited=edited_lines(checkout, premerge.base, parts),
        every_test=all_tests,
        sampled=premerge.sampled if not all_tests else [],
        base_findings=functools.partial(_early_base, bench, request, premerge.base),
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
    suspected = {cell.suite for cell in judgement.cells if cell.verdict == Verdict.FAIL}
    if not suspected and not warning_findings.verdicts(judgement.findings):
        return judgement, code
    # The canary suite alone is enough where only compilers warned: no other suite of the base has to run.
    suites = [name for name in request.plan.suites if name in suspected] or [bench.catalog.canary]
    return _compared_with_base(bench, request, premerge.base, judgement, suites)


def _tests_of(findings: Sequence[Finding]) -> list[str]:
    """The tests that showed findings, as words of `--test`; none, which means all, if one of them has no test."""
    occasions = [one for finding in findings for witness in finding.witnesses for one in witness.occasions]
    return sorted({one.test for one in occasions}) if all(one.test for one in occasions) else []


def _sampled_tests(findings: Sequence[Finding], sources: Sources) -> list[str]:
    """One of these tests for each way in which findings appear, likewise."""
    return baseline.sample_tests(findings, sources) if _tests_of(findings) else []


def _early_base(
    bench: Workbench, request: Request, base: BaseRevision, plan: Plan, findings: Sequence[Finding], sources: Sources
) -> Baseline:
    """What the base shows in tests with these findings, on targets that stand for others."""
    names = ", ".join(dict.fromkeys(one.id for one in findings))
    bench.progress.say(f"asking BASE, before other targets run: {names}")
    of_tests = msgspec.structs.replace(request, plan=plan, tests=_sampled_tests(findings, sources))
    return findings_of(bench, of_tests, base, folder="base-early")


def _base_of(
    bench: Workbench, request: Request, base: BaseRevision, new: Sequence[Finding], sources: Sources
) -> Baseline:
    """What the base shows in tests that failed, of those that failed in the same way in one. What these do not show,
    others may, or it follows from earlier tests: they run before a change is blamed.
    """
    tests = _sampled_tests(new, sources)
    if not tests:
        return findings_of(bench, request, base)
    old = findings_of(bench, msgspec.structs.replace(request, tests=tests), base)
    # No run tells more of a target for which the base does not compile.
    unbuilt = baseline.uncompared(old, new, sources)
    left = [one for one in new if one.id not in unbuilt and not baseline.reason(old, one, sources)]
    earlier = earlier_tests(request.run, left, bench.catalog.suites, tests)
    if not earlier:
        return old
    bench.progress.say(f"BASE does not show {', '.join(one.id for one in left)} without other tests")
    behind = msgspec.structs.replace(
        request,
        plan=request.plan.only(earlier),
        tests=sorted({one for tests in earlier.values() for one in tests}),
    )
    return baseline.together(old, findings_of(bench, behind, base, name="base-behind"), earlier)


def earlier_tests(
    run: Path, findings: Sequence[Finding], suites: Mapping[str, Suite], asked: Collection[str]
) -> dict[str, list[str]]:
    """By suite, as words of `--test`, the tests that showed findings, and those from which the findings may follow: the
    tests that shared a server with these before. It is the whole suite if the log does not name their server, or if the
    suite reads what other targets wrote. Suites are left out in which nothing ran before, and in which each test that
    showed findings is among `asked`.
    """
    found: dict[str, list[str]] = {}
    for finding in findings:
        for witness in finding.witnesses:
            cell, names = run / witness.target / witness.suite, {one.test for one in witness.occasions}
            if suites[witness.suite].multi_target_tier or not names_server(cell, names):
                before = [f"{witness.suite}/*"]
            else:
                before = [*preceded_tests(cell, names), *(names if not names.issubset(asked) else ())]
            found.setdefault(witness.suite, []).extend(before)
    return {suite: list(dict.fromkeys(tests)) for suite, tests in found.items() if tests}


def _compared_with_base(
    bench: Workbench, request: Request, base: BaseRevision, judgement: Judgement, suites: Sequence[str]
) -> tuple[Judgement, ExitCode]:
    """Judge the run again, now that it is known which of its findings the base also has in these suites."""
    bench.progress.say(f"findings in {', '.join(suites)}: checking whether BASE shows them, too: {base}")
    # Where the tree ran none of them, there is nothing to compare. The others read each other's files.
    ran = {cell.target for cell in judgement.cells if cell.suite in suites and cell.verdict != Verdict.SKIP}
    ran |= {name for one in judgement.findings if not one.known for name in one.targets}
    of_base = msgspec.structs.replace(request, plan=request.plan.only(suites).on(ran))
    sources = source_excerpt.read(request.run).sources
    new = [one for one in judgement.findings if not one.known]
    old = _base_of(bench, of_base, base, new, sources)
    if undecided := baseline.undecided(old, new, sources):
        names = ", ".join(one.id for one in undecided)
        bench.progress.say(f"asking BASE {FURTHER_RUNS} more times, since these may vary by chance: {names}")
        of_tests = msgspec.structs.replace(of_base, tests=_tests_of(undecided))
        further = [
            findings_of(bench, of_tests, base, name=f"base-again-{number}") for number in range(1, FURTHER_RUNS + 1)
        ]
        old = msgspec.structs.replace(old, again=baseline.merged([one.appearances for one in further]))
    baseline.keep(request.run, old)
    stored = stored_run.read(request.run)
    return conclusion.conclude(stored, request.known, bench.progress, tree=Path(request.server), made_here=True)
