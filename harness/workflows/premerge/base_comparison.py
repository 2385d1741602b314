"""Which findings of a tree its base has, too: the base runs as little as tells it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import source_excerpt
from harness.core.finding import Verdict
from harness.judge import baseline, conclusion
from harness.record import stored_run
from harness.workflows.cells.cell_results import names_server, preceded_tests
from harness.workflows.premerge.base_check import findings_of

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
    from harness.workflows.workbench import Workbench

FURTHER_RUNS = 2
"""How often the base runs a test again before a change is blamed for its failure."""


class BaseComparison:
    """Asks the base of a checkout about findings."""

    def __init__(self, bench: Workbench, request: Request, base: BaseRevision) -> None:
        self._bench = bench
        self._request = request
        self._base = base
        self._early: Baseline | None = None
        """What it has shown while the tree ran."""

    def early(self, plan: Plan, findings: Sequence[Finding], sources: Sources) -> Baseline:
        """What the base shows in tests with these findings, in the cells of a plan: those that stand for others. It is
        asked once: a second time, where cells run again with all of their tests, the first answer stands.
        """
        if self._early is not None:
            return self._early
        self._bench.progress.say(f"asking BASE, before other targets run: {_names(findings)}")
        of_tests = msgspec.structs.replace(self._request, plan=plan, tests=baseline.sample_tests(findings, sources))
        self._early = findings_of(self._bench, of_tests, self._base, name="base-early")
        return self._early

    def judged_again(self, request: Request, judgement: Judgement) -> tuple[Judgement, ExitCode]:
        """Judge the tree's run again, now that it is known which of its findings the base also has."""
        self._request = request
        sources = source_excerpt.read(request.run).sources
        new = [one for one in judgement.findings if not one.known]
        baseline.keep(request.run, self._found(judgement, new, sources))
        stored = stored_run.read(request.run)
        return conclusion.conclude(
            stored, request.known, self._bench.progress, tree=Path(request.server), made_here=True
        )

    def _found(self, judgement: Judgement, new: Sequence[Finding], sources: Sources) -> Baseline:
        """What the base shows of new findings, without asking again what it has shown."""
        early = self._early
        left = [one for one in new if early is None or not baseline.reason(early, one, sources)]
        if early is not None and not left:
            return early
        asked = self._asked(judgement, left)
        self._bench.progress.say(
            f"findings in {', '.join(asked.plan.suites[1:]) or 'compiling'}: checking whether BASE shows them, too: "
            f"{self._base}"
        )
        old = self._decided(self._compared(asked, left, sources), asked, left, sources)
        return baseline.together(early, old, asked.plan.suites) if early is not None else old

    def _asked(self, judgement: Judgement, left: Sequence[Finding]) -> Request:
        """The request to the base about some findings: the suites that failed because of them, on the targets that ran
        these. The canary suite alone is enough where only compilers warned.
        """
        failed = {cell.suite for cell in judgement.cells if cell.verdict == Verdict.FAIL}
        suites = failed.intersection(cell.partition("/")[2] for one in left for cell in _cells_of(one))
        # Where the tree ran none of them, there is nothing to compare. The others read each other's files.
        targets = {cell.target for cell in judgement.cells if cell.suite in suites and cell.verdict != Verdict.SKIP}
        targets |= {name for one in left for name in one.targets}
        if not left:
            suites, targets = failed, {*self._request.plan.targets}
        return msgspec.structs.replace(self._request, plan=self._request.plan.only(suites).on(targets))

    def _compared(self, request: Request, left: Sequence[Finding], sources: Sources) -> Baseline:
        """What the base shows in tests that failed, of those that failed in the same way in one. What these do not
        show, others may, or it follows from earlier tests: they run before a change is blamed.
        """
        tests = baseline.sample_tests(left, sources)
        if not tests:
            return findings_of(self._bench, request, self._base)
        old = findings_of(self._bench, msgspec.structs.replace(request, tests=tests), self._base)
        # No run tells more of a target for which the base does not compile.
        unbuilt = baseline.uncompared(old, left, sources)
        other = [one for one in left if one.id not in unbuilt and not baseline.reason(old, one, sources)]
        earlier = earlier_tests(request.run, other, self._bench.catalog.suites, tests)
        if not earlier:
            return old
        self._bench.progress.say(f"BASE does not show {_names(other)} without other tests")
        behind = msgspec.structs.replace(
            request,
            plan=request.plan.only(earlier),
            tests=sorted({one for tests in earlier.values() for one in tests}),
        )
        return baseline.together(old, findings_of(self._bench, behind, self._base, name="base-behind"), earlier)

    def _decided(self, old: Baseline, request: Request, left: Sequence[Finding], sources: Sources) -> Baseline:
        """The same after further runs of the base, if only these decide about some findings."""
        undecided = baseline.undecided(old, left, sources)
        if not undecided:
            return old
        self._bench.progress.say(
            f"asking BASE {FURTHER_RUNS} more times, since these may vary by chance: {_names(undecided)}"
        )
        suites = {cell.partition("/")[2] for one in undecided for cell in _cells_of(one)}
        of_tests = msgspec.structs.replace(request, plan=request.plan.only(suites), tests=_tests_of(undecided))
        further = [
            findings_of(self._bench, of_tests, self._base, name=f"base-again-{number}")
            for number in range(1, FURTHER_RUNS + 1)
        ]
        return msgspec.structs.replace(old, again=baseline.merged([one.appearances for one in further]))


def _names(findings: Sequence[Finding]) -> str:
    return ", ".join(dict.fromkeys(one.id for one in findings))


def _cells_of(finding: Finding) -> set[str]:
    """The cells that saw a finding, `TARGET/SUITE`."""
    return {cell for one in finding.witnesses for cell in one.cells or [f"{one.target}/{one.suite}"]}


def _tests_of(findings: Sequence[Finding]) -> list[str]:
    """The tests that showed findings, as words of `--test`; none, which means all, if one of them has no test."""
    occasions = [one for finding in findings for witness in finding.witnesses for one in witness.occasions]
    return sorted({one.test for one in occasions}) if all(one.test for one in occasions) else []


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
