"""Turns the outcome of a cell into its verdict. Pure: reads no file.

Silence is never PASS, and a known finding excuses only itself. A cell passes, or fails as expected, only if it ran to
its planned end, its evidence is complete, and at least one of its tests passed.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from harness.core.finding import Verdict
from harness.core.model import CANARY_SUITE, Record

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from harness.core.finding import Finding

SHOWN = 3
"""How many failed canaries a reason names."""
EVERYWHERE = "on every machine: the native build does the same"
"""Why a finding does not fail a run that notes what the native build shows as well (`--everywhere note`)."""


class CellOutcome(Record, frozen=True):
    """The outcome of a cell, before its findings are compared with the known list."""

    target: str
    suite: str
    seconds: float
    passed: int
    failed: int
    skipped: int
    doubts: list[str]
    """Why the evidence may be incomplete, or say nothing about the server: cut, damaged, a guest killed."""
    unexplained: list[str]
    """Tests whose failure the evidence does not explain."""
    altered: bool = False
    """Whether the evidence is not what was recorded, so even a failed test in it may never have failed."""
    absent: str = ""
    """Why there was nothing to run; empty if there was."""
    silence: str = ""
    """Why nothing passed; empty if something did, or if a command failed whose failed programs are findings."""
    unsteady: list[str] = msgspec.field(default_factory=list)
    """Failed tests that at times fail in the same way on the native build. They say nothing about the target."""
    unsteady_in_audit: list[str] = msgspec.field(default_factory=list)
    """The others of its audit, which are not among its own failed tests."""
    unasked: str = ""
    """Why the native build gave no second opinion on the failed tests; empty if it did, or if none was needed."""
    told: str = ""
    """What the canaries say of a board in words; empty for other cells."""
    hindered: int = 0
    """How many of the failed tests could not run, because a server did not start or had ended before."""
    audited: int = 0
    """How many tests passed in the audit that followed, if it recorded misaligned accesses; 0 if none followed."""


class CellVerdict(Record, frozen=True):
    """A cell's row in the report."""

    target: str
    suite: str
    verdict: Verdict
    seconds: float
    reason: str
    passed: int
    failed: int
    skipped: int
    unsteady: int = 0
    """How many of the failed tests fail at times on the native build, too, and say nothing about the target."""
    audited: int = 0
    """How many tests passed in the audit that followed, in which misaligned accesses succeed."""


def is_noted_everywhere(finding: Finding) -> bool:
    """Whether a finding does not fail the run because the native build shows it as well."""
    return finding.known == EVERYWHERE


def cell_verdicts(
    outcomes: Sequence[CellOutcome],
    findings: Sequence[Finding],
    uncompared: Mapping[str, Container[str]] = MappingProxyType({}),
) -> list[CellVerdict]:
    """A verdict for every cell. `findings`: those that have been compared with the known list. `uncompared`: as
    harness.judge.baseline tells it. No change is blamed for these.

    Where a target's canaries failed, its other cells are UNKNOWN.
    """
    canaries = {one.target: one for one in outcomes if one.suite == CANARY_SUITE}
    verdicts = []
    for one in outcomes:
        verdict, reason = _canary(one) if one.suite == CANARY_SUITE else _judged(one, findings, uncompared)
        if one.suite != CANARY_SUITE and (unproved := _unproved(canaries.get(one.target))):
            verdict, reason = Verdict.UNKNOWN, _joined([unproved, reason])
        verdicts.append(
            CellVerdict(
                target=one.target,
                suite=one.suite,
                verdict=verdict,
                seconds=one.seconds,
                reason=reason,
                passed=one.passed,
                failed=one.failed,
                skipped=one.skipped,
                unsteady=len(one.unsteady),
                audited=one.audited,
            )
        )
    return verdicts


def of_cell(findings: Sequence[Finding], target: str, suite: str) -> list[Finding]:
    """The findings that a cell showed, on its own target or on a peer's."""
    name = f"{target}/{suite}"
    return [finding for finding in findings if any(name in witness.cells for witness in finding.witnesses)]


def overall(cells: Sequence[CellVerdict]) -> Verdict:
    """The most severe verdict; UNKNOWN if only canaries ran."""
    return Verdict.UNKNOWN if only_canaries_ran(cells) else Verdict.merge([cell.verdict for cell in cells])


def only_canaries_ran(cells: Sequence[CellVerdict]) -> bool:
    """Whether every suite except the canary was skipped. False for a run in which only canaries were requested."""
    return {cell.verdict for cell in cells if cell.suite != CANARY_SUITE} == {Verdict.SKIP}


def _unproved(canary: CellOutcome | None) -> str:
    """Why nothing proves that a target enforces alignment; empty if its canaries do."""
    if canary is None or not (canary.passed or canary.unexplained):
        return "its canaries did not run"
    if canary.unexplained:
        return "its canaries misbehaved"
    return "its canaries are in doubt" if canary.doubts else ""


def _canary(one: CellOutcome) -> tuple[Verdict, str]:
    reasons = list(one.doubts)
    if one.unexplained:
        reasons.append(f"{one.failed} canaries misbehaved: {'; '.join(one.unexplained[:SHOWN])}")
    if not one.passed and not reasons:
        reasons.append("no canary ran")
    told = [one.told] if one.told else []
    return (Verdict.UNKNOWN if reasons else Verdict.PASS), _joined([*reasons, *told])


def _judged(
    one: CellOutcome, findings: Sequence[Finding], uncompared: Mapping[str, Container[str]]
) -> tuple[Verdict, str]:
    cell = f"{one.target}/{one.suite}"
    here = of_cell(findings, one.target, one.suite)
    # What is not known here is on other targets as well, where nothing tells whether it is.
    known = f"known: {here[0].known or 'BASE shows it here'}" if here else ""
    unclear = [finding for finding in here if cell in uncompared.get(finding.id, ())]
    news = [finding for finding in here if not finding.known and finding.id not in uncompared]
    if news or unclear or one.unexplained:
        found = f"{len(here)} findings in {one.failed} failed tests" if here else f"{one.failed} tests failed"
        is_blamed = bool(news or one.unexplained)
        beside = "" if is_blamed else "BASE does not compile here"
        verdict = Verdict.FAIL if is_blamed and not one.altered else Verdict.UNKNOWN
        return verdict, _joined([found, beside, *one.doubts])
    if one.absent:
        return Verdict.SKIP, one.absent
    if one.doubts:
        return Verdict.UNKNOWN, _joined([*one.doubts, known])
    if not one.passed and one.silence and not one.audited:
        return Verdict.UNKNOWN, _joined([one.silence, known])
    if one.failed > len(one.unsteady) and not here:
        return Verdict.UNKNOWN, f"{one.failed} tests failed, and no finding shows why"
    return (Verdict.XFAIL if here else Verdict.PASS), _joined([known, _hindered(one), _unsteady(one.unsteady)])


def _hindered(one: CellOutcome) -> str:
    """How many tests a known finding kept from running, and how many passed in the audit if none did before; empty if
    there are none of either.
    """
    kept = f"{_tests(one.hindered)} could not run because of it" if one.hindered else ""
    return _joined([kept, "" if one.passed else f"{_tests(one.audited)} passed in the audit"])


def _tests(number: int) -> str:
    return f"{number} {'test' if number == 1 else 'tests'}"


def _unsteady(tests: Sequence[str]) -> str:
    """How many failed tests fail on the host as well, at times; empty if none does."""
    number = len(tests)
    many = "test also fails" if number == 1 else "tests also fail"
    return f"{number} failed {many} at times on the host" if tests else ""


def _joined(reasons: Sequence[str]) -> str:
    return "; ".join(reason for reason in reasons if reason)
