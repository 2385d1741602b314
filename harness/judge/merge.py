"""Joins the judgements of several runs, such as those of CI jobs with one target each.

A planned cell that no run contains is UNKNOWN. Evidence and reproducers stay in the folders of the runs.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core.errors import UsageError
from harness.core.finding import Verdict
from harness.core.model import CANARY_SUITE, TIERS
from harness.isa import rules
from harness.judge import warning_findings
from harness.judge.causes import causes_of, ordered
from harness.judge.known import matching
from harness.judge.verdict import EVERYWHERE, CellVerdict, of_cell, overall
from harness.record.run_record import CHANGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from harness.core.finding import Finding
    from harness.core.model import Cell, Tier
    from harness.judge.findings import Judgement
    from harness.record.cell_events import Counters


def join(
    judgements: Sequence[Judgement],
    *,
    planned: Sequence[Cell] = (),
    tier: Tier | Literal[""] = "",
    options: Mapping[str, str] | None = None,
    settings: Sequence[str] | None = None,
    revision: str = "",
    tests: Sequence[str] = (),
) -> Judgement:
    """Join judgements into one, as if from a single run. Planned cells that no run contains are UNKNOWN, and so are
    those of which no run had the tier and the `--test` patterns. `tier`: the plan's; empty if it does not say.
    `options`: its value for each of OPTIONS that it names. `settings`: its `--cflags` and `--make`; None if it does not
    say. `revision`: that of its tree; empty if it does not say. `tests`: its patterns; empty for all tests.

    Raises UsageError for an empty sequence, for runs that differ in one of IDENTITIES or in the revision that they were
    compared with, and for a plan of another release or commit, or with other options or settings.
    """
    if not judgements:
        raise UsageError("no runs to join", remedy="plumb join RUN RUN …, where each RUN is a judged run folder")
    judgements = _contradicted(judgements)
    first = judgements[0]
    for name, identity in IDENTITIES.items():
        _refuse_different(judgements, name, identity)
    # A run without findings was not compared.
    compared = [one for one in judgements if one.base]
    _refuse_different(compared, "revisions to compare with", lambda one: one.base.partition(" ")[0])
    _refuse_other_options(first, options or {}, settings)
    _refuse_other_server(first, planned, revision)
    cells = _cells(judgements, planned, tier, tests)
    findings = _findings([one.findings for one in judgements])
    unchecked = list(dict.fromkeys(left for one in judgements for left in one.unchecked))
    return msgspec.structs.replace(
        first,
        unchecked=unchecked,
        tier=first.tier if {one.tier for one in judgements} == {first.tier} else "",
        tests=sorted({pattern for one in judgements for pattern in one.tests}),
        verdict=Verdict.merge([_verdict(cells, findings, unchecked), *map(_unexplained, judgements)]),
        run=", ".join(one.run for one in judgements),
        record="",
        base=next((one.base for one in compared), ""),
        cells=cells,
        findings=findings,
        causes=causes_of(findings),
        warnings=_findings([one.warnings for one in judgements]),
        remarks=[*_seeds(judgements), *_remarks(judgements, findings)],
        stages=_longest([one.stages for one in judgements]),
        counters=_added(one.counters for one in judgements),
        kernel_counters=_added(one.kernel_counters for one in judgements),
        left_out=sum(one.left_out for one in judgements),
        timeout_multiplier=max(one.timeout_multiplier for one in judgements),
        emulators=_every_emulator([one.emulators for one in judgements]),
    )


def _contradicted(judgements: Sequence[Judgement]) -> list[Judgement]:
    """The judgements, in which a finding that another run shows on its machine alone is not on every machine."""
    machines = {one.id for each in judgements for one in each.findings if one.scope == "machine"}

    def corrected(finding: Finding) -> Finding:
        if finding.scope == "machine" or finding.id not in machines:
            return finding
        known = "" if finding.known == EVERYWHERE else finding.known
        return msgspec.structs.replace(finding, scope="machine", known=known)

    return [msgspec.structs.replace(one, findings=[corrected(each) for each in one.findings]) for one in judgements]


def _verdict(cells: Sequence[CellVerdict], findings: Sequence[Finding], unchecked: Sequence[str]) -> Verdict:
    """The verdict that follows from the parts of a judgement."""
    return Verdict.merge([overall(cells), *warning_findings.verdicts(findings), *[Verdict.UNKNOWN] * len(unchecked)])


def _unexplained(judgement: Judgement) -> Verdict:
    """A run's own verdict, if nothing in its file shows why it is so bad; SKIP, which changes nothing, if it does."""
    shown = _verdict(judgement.cells, judgement.findings, judgement.unchecked)
    return judgement.verdict if judgement.verdict.severity > shown.severity else Verdict.SKIP


def _seeds(judgements: Sequence[Judgement]) -> list[str]:
    """A remark with the seeds of the runs, if they differ."""
    seeds = list(dict.fromkeys(str(one.seed) for one in judgements))
    return [f"the runs had seeds {', '.join(seeds)}"] if len(seeds) > 1 else []


def _remarks(judgements: Sequence[Judgement], findings: Sequence[Finding]) -> list[str]:
    """The runs' remarks, each once, without those on a known finding that one run did not see and another did."""
    every = dict.fromkeys(remark for one in judgements for remark in one.remarks)
    seen = [finding.id for finding in findings if finding.known]

    def holds(remark: str) -> bool:
        unseen = matching.unseen_in(remark)
        return not unseen or not any(fnmatch.fnmatchcase(identity, unseen) for identity in seen)

    return [remark for remark in every if holds(remark)]


def _longest(durations: Sequence[dict[str, float]]) -> dict[str, float]:
    """Stage → its longest duration: the runs were concurrent."""
    names = dict.fromkeys(stage for stages in durations for stage in stages)
    return {stage: max(stages.get(stage, 0.0) for stages in durations) for stage in names}


def _every_emulator(used: Sequence[dict[str, list[str]]]) -> dict[str, list[str]]:
    """Target → the digest of each emulator that a run used there."""
    found: dict[str, dict[str, None]] = {}
    for emulators in used:
        for target, digests in emulators.items():
            found.setdefault(target, {}).update(dict.fromkeys(digests))
    return {target: list(digests) for target, digests in found.items()}


def _added(totals: Iterable[dict[str, Counters]]) -> dict[str, Counters]:
    """Target → the sum of the runs' counts there: each ran other suites."""
    added: dict[str, Counters] = {}
    for counted in totals:
        for target, counters in counted.items():
            before = added.get(target)
            names = counters.__struct_fields__
            added[target] = (
                counters
                if before is None
                else type(counters)(**{name: getattr(before, name) + getattr(counters, name) for name in names})
            )
    return added


OPTIONS: dict[str, Callable[[Judgement], str]] = {
    "toolchain": lambda one: one.toolchain,
    "policy": lambda one: one.policy,
    "optimisation": lambda one: one.optimisation,
    "allocator": lambda one: one.allocator,
    "environment": lambda one: one.environment,
    "memory-order": lambda one: one.memory_order,
    "io": lambda one: one.io,
}
"""The options of a check that a plan names, without `--`, and what a run had: another value shows other findings."""

IDENTITIES: dict[str, Callable[[Judgement], str]] = {
    # Jobs may use different checkout folders: only the tree's own name counts.
    "servers": lambda one: PurePath(one.server).name,
    "folders of the tree in its repository": lambda one: one.place,
    "revisions": lambda one: one.revision,
    "policies": OPTIONS["policy"],
    "optimisation levels": OPTIONS["optimisation"],
    "allocators": OPTIONS["allocator"],
    "toolchains": OPTIONS["toolchain"],
    "environments": OPTIONS["environment"],
    "memory orders": OPTIONS["memory-order"],
    "transports (--io)": OPTIONS["io"],
    "build settings (--cflags, --make)": lambda one: shlex.join(one.settings),
}
"""The data that must be equal in joined runs, because their findings would otherwise not be comparable."""


def _refuse_different(judgements: Sequence[Judgement], name: str, identity: Callable[[Judgement], str]) -> None:
    """Raise UsageError for runs with several of these, which says who has which, and what can be joined."""
    runs: dict[str, list[str]] = {}
    for one in judgements:
        runs.setdefault(identity(one), []).append(one.run)
    if len(runs) <= 1:
        return
    most = max(runs.values(), key=len)
    others = [run for same in runs.values() if same is not most for run in same]
    alike = f"; or join the runs that match: plumb join {shlex.join(most)}" if len(most) > 1 else ""
    raise UsageError(
        f"the runs have different {name}",
        where="; ".join(f"{value or '(none)'}: {', '.join(same)}" for value, same in runs.items()),
        because="a judgement covers one tree, built and run in one way",
        remedy=f"check again like the others, and join the new folder instead: {', '.join(others)}{alike}",
    )


def _refuse_other_options(judgement: Judgement, planned: Mapping[str, str], settings: Sequence[str] | None) -> None:
    """Raise UsageError for a plan of other builds, or of another way to run them."""
    others = [name for name, value in planned.items() if value != OPTIONS[name](judgement)]
    differing = settings is not None and list(settings) != judgement.settings
    if not others and not differing:
        return

    def words(options: Mapping[str, str], of_builds: Sequence[str]) -> str:
        made = [word for name in others for word in _words(name, options[name])]
        return shlex.join([*made, *(of_builds if differing else [])]) or "neither --cflags nor --make"

    asked = words(planned, settings or [])
    ran = words({name: OPTIONS[name](judgement) for name in others}, judgement.settings)
    raise UsageError(
        "the plan is for other options",
        where="--plan",
        because=f"it plans {asked}, and the runs have {ran}",
        remedy=f"plan again with {ran}, or check again with {asked}",
    )


def _words(option: str, value: str) -> list[str]:
    """The words of `plumb plan` for an option's value. An audit's policy has two options."""
    if option == "policy" and rules.is_audit(value):
        return ["--audit", "--policy", rules.base_name(value)]
    return [f"--{option}", value]


def _refuse_other_server(judgement: Judgement, planned: Sequence[Cell], revision: str) -> None:
    """Raise UsageError for planned cells of another server or commit. A tree may be in another folder on another
    machine, and each machine may have added files to it.
    """
    here = judgement.server
    wanted, ran = (commit.removesuffix(CHANGES) for commit in (revision, judgement.revision))
    if wanted and ran and wanted != ran:
        raise UsageError(
            "the plan is for another commit",
            where="--plan",
            because=f"it plans {wanted}, and the runs are of {ran}",
            remedy="plan and check the same commit of the tree",
        )
    if others := [cell.server for cell in planned if _is_another(cell.server, here)]:
        raise UsageError(
            "the plan is for another server",
            where="--plan",
            because=f"it plans {others[0]}, and the runs are of {here}",
            remedy=f"plumb plan --server {shlex.quote(here)} --json",
        )


def _is_another(planned: str, ran: str) -> bool:
    """Whether runs were certainly of another server than the planned one.

    A run names a tree by its whole path, and a plan by any path, so one tree cannot be told from another.
    """
    if PurePath(ran).is_absolute():
        return planned != PurePath(ran).name and bool(_RELEASE_OR_PACKAGE.fullmatch(planned))
    return planned != ran


_RELEASE_OR_PACKAGE = re.compile(r"(redis|valkey)-\d+(\.\d+)+|debian:.*")
"""The names of servers that are no paths."""


def _cells(
    judgements: Sequence[Judgement], planned: Sequence[Cell], tier: Tier | Literal[""], tests: Sequence[str]
) -> list[CellVerdict]:
    """The cells by target, in the order of the runs. Of a cell in several runs, like the canary, the worst counts."""
    found: dict[tuple[str, str], CellVerdict] = {}
    for cell in (_as_found(cell, one) for one in judgements for cell in one.cells):
        place = (cell.target, cell.suite)
        if place not in found or cell.verdict.severity > found[place].verdict.severity:
            found[place] = cell
    for wanted in planned:
        place = (wanted.target, wanted.suite)
        if place not in found:
            found[place] = _absent(wanted)
        elif found[place].verdict not in {Verdict.FAIL, Verdict.UNKNOWN, Verdict.SKIP}:
            runs = [one for one in judgements if any((cell.target, cell.suite) == place for cell in one.cells)]
            found[place] = _as_planned(found[place], runs, tier, tests)
    targets = list(dict.fromkeys(target for target, _ in found))
    return sorted(found.values(), key=lambda cell: targets.index(cell.target))


def _as_found(cell: CellVerdict, judgement: Judgement) -> CellVerdict:
    """The cell, with a verdict no better than its own numbers and its findings in the same file allow."""
    here = of_cell(judgement.findings, cell.target, cell.suite)
    least, why = Verdict.SKIP, ""
    if any(not finding.known for finding in here):
        least, why = Verdict.FAIL, "it has new findings"
    elif cell.verdict in {Verdict.PASS, Verdict.XFAIL} and not cell.passed and not (cell.audited and here):
        least, why = Verdict.UNKNOWN, "nothing passed in it"
    elif cell.verdict == Verdict.XFAIL and not here:
        least, why = Verdict.UNKNOWN, "no finding shows why"
    elif cell.verdict == Verdict.SKIP and (cell.passed or cell.failed or here):
        least, why = Verdict.UNKNOWN, "tests ran in it"
    elif cell.verdict == Verdict.PASS and (cell.failed > cell.unsteady or here):
        least, why = Verdict.FAIL, f"it has {cell.failed} failed tests and {len(here)} findings"
    if cell.suite == CANARY_SUITE:
        least = min(least, Verdict.UNKNOWN, key=lambda one: one.severity)
    # If canaries failed, findings are shown but do not count.
    if cell.verdict == Verdict.UNKNOWN or least.severity <= cell.verdict.severity:
        return cell
    reason = f"its file says {cell.verdict}, but {why}"
    return msgspec.structs.replace(cell, verdict=least, reason=reason)


def _as_planned(
    cell: CellVerdict, runs: Sequence[Judgement], tier: Tier | Literal[""], tests: Sequence[str]
) -> CellVerdict:
    """The cell, or UNKNOWN if each of these runs of it did less than the plan says."""
    reason = ""
    # `--test` chooses no canaries.
    with_all = [one for one in runs if not one.tests or set(one.tests) == set(tests) or cell.suite == CANARY_SUITE]
    if tier and with_all and max(TIERS.get(one.tier, -1) for one in with_all) < TIERS[tier]:
        tiers = ", ".join(sorted({one.tier or "unknown" for one in with_all}))
        reason = f"it was planned in the tier {tier}, and only ran in: {tiers}"
    elif not with_all:
        patterns = shlex.join(sorted({pattern for one in runs for pattern in one.tests}))
        wanted = f"the tests {shlex.join(tests)}" if tests else "all of its tests"
        reason = f"it was planned with {wanted}, but only tests that match --test {patterns} ran"
    return msgspec.structs.replace(cell, verdict=Verdict.UNKNOWN, reason=reason) if reason else cell


def _absent(cell: Cell) -> CellVerdict:
    return CellVerdict(
        target=cell.target,
        suite=cell.suite,
        verdict=Verdict.UNKNOWN,
        seconds=0.0,
        reason="it was planned, but no run contains it",
        passed=0,
        failed=0,
        skipped=0,
    )


def _findings(found: Sequence[list[Finding]]) -> list[Finding]:
    """One finding per identity, the most direct evidence first. It is known only if every run knows it."""
    groups: dict[str, list[Finding]] = {}
    for finding in (finding for one in found for finding in one):
        groups.setdefault(finding.id, []).append(finding)
    return ordered(_finding(group) for group in groups.values())


def _finding(group: list[Finding]) -> Finding:
    news = [one for one in group if not one.known]
    return msgspec.structs.replace(
        (news or group)[0],
        targets=list(dict.fromkeys(target for one in group for target in one.targets)),
        witnesses=[witness for one in group for witness in one.witnesses],
        occurrences=sum(one.occurrences for one in group),
    )
