"""Tests the suites: plants a known bug in a clean release, and expects the quick tier to find and name it."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.errors import InconclusiveError, UsageError
from harness.core.model import DEFAULT_OPTIMISATION, Record
from harness.isa.memory_order import why_not
from harness.judge.known import known_list
from harness.plan.name_selection import select
from harness.plan.plan import make_plan
from harness.plan.request import Request
from harness.report.formats import github
from harness.report.formats import registry as formats
from harness.report.markdown_table import table
from harness.workflows import check
from harness.workflows.mutation_testing import mutations

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from harness.core.finding import Finding
    from harness.core.model import Allocator, MemoryOrder, Tier
    from harness.core.target_model import Target
    from harness.judge.findings import Judgement
    from harness.workflows.mutation_testing.mutations import Mutation
    from harness.workflows.workbench import Workbench

SEED = 1
"""The streams are the same every time: a mutation that was found once is found again."""
JOBS = os.cpu_count() or 1
SECONDS = 120.0
"""About how long one takes."""


class MutationResult(Record, frozen=True):
    """How a mutation showed on one target."""

    target: str
    suites: list[str]
    findings: list[str]
    """Identities; empty if the suites missed the bug."""
    function: str
    record: str = ""
    """The part of the format in which bytes differ; empty for other findings."""
    must_be_silent: bool = False
    """Whether a finding here is a false alarm."""


class MutationRow(Record, frozen=True):
    """The result of one mutation on all its targets."""

    mutation: str
    title: str
    fault: str
    allocator: str
    seconds: float
    """Duration of planting, building and running."""
    run: str
    seen: list[MutationResult]
    findings: int = 0
    """The number of new findings of the run."""
    causes: int = 0
    """The number of causes under which the report shows them; 1 is ideal."""
    annotations: int = 0
    """The number of findings that annotations show at a line of the tree."""
    at_fault: int = 0
    """The number of these whose line is in a file that the mutation edits."""

    @property
    def caught(self) -> bool:
        """Whether every target that must show it does, and no other."""
        return bool(self.seen) and all(bool(result.findings) != result.must_be_silent for result in self.seen)


def chosen(names: Sequence[str]) -> list[Mutation]:
    """Mutations by names and globs; all of them without any. Raises UsageError for an unknown name."""
    every = mutations.mutations()
    return [every[name] for name in select("mutation", names or ["*"], every)]


def mutate(bench: Workbench, planted: Mutation, *, targets: Sequence[str] = (), install: bool = False) -> MutationRow:
    """Plant, check, compare. The mutant and its run stay in the cache until the next campaign.

    Raises UsageError when the mutation does not fit the release or is not expected on any of `targets`, and what
    `harness.workflows.check` raises.
    """
    started = time.monotonic()
    wanted = _wanted(planted, targets)
    if not wanted:
        raise UsageError(
            f"{planted.name} shows on none of {', '.join(targets)}",
            where="--target",
            remedy="one of: " + ", ".join([*planted.targets, *planted.silent]),
        )
    original = bench.fetcher.server(bench.catalog.servers[planted.server])
    place = bench.cache.path("mutants", planted.name)
    with bench.cache.lock(f"mutant-{planted.name}"):
        shutil.rmtree(place, ignore_errors=True)
        # The mutant keeps the release's name, by which ccache recognises the files that have not changed.
        tree = place / planted.server
        mutations.plant(planted, original.path, tree)
        mutant = _Mutant(bench, planted, tree, install)
        loud = [target for target in wanted if target not in planted.silent]
        orders = by_order(planted.memory_order, map(bench.catalog.targets.__getitem__, loud))
        runs = {order: place / f"run-{order}" for order in orders}
        judgements = [mutant.checked(runs[order], some, order) for order, some in orders.items()]
        calm = [target for target in wanted if target in planted.silent]
        silent = mutant.unheard(place / "silent", calm) if calm else []
    findings = [finding for judgement in judgements for finding in judgement.findings]
    found = mutations.caught(planted, findings)
    annotated_files = [one.file for judgement in judgements for one in github.annotated_places(judgement).values()]
    return MutationRow(
        mutation=planted.name,
        title=planted.title,
        fault=planted.fault,
        allocator=planted.allocator,
        seconds=round(time.monotonic() - started, 1),
        run=str(next(iter(runs.values()), place / "silent")),
        seen=[*(_result(target, found[target]) for target in loud), *silent],
        findings=len(findings),
        causes=sum(len(judgement.findings_by_cause()) for judgement in judgements),
        annotations=len(annotated_files),
        at_fault=sum(file in {edit.file for edit in planted.edits} for file in annotated_files),
    )


def by_order(order: MemoryOrder, targets: Iterable[Target]) -> dict[MemoryOrder, list[str]]:
    """Memory order -> the targets that show a mutation in it. Those that have no other order than the host's, such as
    the thread sanitizer's, show it in that one.
    """
    found: dict[MemoryOrder, list[str]] = {}
    for target in targets:
        found.setdefault("usual" if why_not(target) else order, []).append(target.name)
    return found


@dataclass(frozen=True)
class _Mutant:
    """A tree in which a bug is planted, and how its checks are made."""

    bench: Workbench
    planted: Mutation
    path: Path
    install: bool

    def checked(self, run: Path, targets: Sequence[str], order: MemoryOrder) -> Judgement:
        """The judgement of a run that ends at the first failed tests if these find the bug on every target."""
        # The release may fail a test before the one that finds the bug: only whole cells show that none does.
        for fail_fast in (True, False):
            judgement = self._judged(run, targets, order, fail_fast=fail_fast)
            found = mutations.caught(self.planted, judgement.findings)
            if all(found[target] for target in targets):
                break
        return judgement

    def unheard(self, run: Path, targets: Sequence[str]) -> list[MutationResult]:
        """What shows on targets where nothing must show: all findings, or that a cell has no result."""
        judgement = self._judged(run, targets, self.planted.memory_order, fail_fast=False)
        results = []
        for target in targets:
            here = [one for one in judgement.findings if not one.known and target in one.targets]
            without_result = [one.suite for one in judgement.cells if one.target == target and one.verdict == "UNKNOWN"]
            shown = [*(one.id for one in here), *(f"unknown-{suite}" for suite in without_result)]
            results.append(msgspec.structs.replace(_result(target, here), findings=shown, must_be_silent=True))
        return results

    def _judged(self, run: Path, targets: Sequence[str], order: MemoryOrder, *, fail_fast: bool) -> Judgement:
        """The judgement of one run, whose reports replace those of an earlier one."""
        shutil.rmtree(run, ignore_errors=True)
        request = planted_request(
            self.bench,
            str(self.path),
            targets=targets,
            suites=self.planted.suites,
            tier=self.planted.tier,
            run=run,
            install=self.install,
            allocator=self.planted.allocator,
            memory_order=order,
            fail_fast=fail_fast,
        )
        judgement, _ = check.Check(self.bench, request).run()
        formats.write(run, judgement)
        return judgement


def planted_request(
    bench: Workbench,
    server: str,
    *,
    targets: Sequence[str],
    suites: Sequence[str],
    tier: Tier,
    run: Path,
    install: bool,
    fail_fast: bool,
    allocator: Allocator = "libc",
    memory_order: MemoryOrder = "usual",
) -> Request:
    """The request of a check on a release, or on the path of a tree in which a bug is planted."""
    return Request(
        plan=make_plan(bench.catalog, targets=targets, server=server, suites=suites, tier=tier),
        server=server,
        tier=tier,
        policy="signal",
        optimisation=DEFAULT_OPTIMISATION,
        emulator="pinned",
        jobs=JOBS,
        seed=SEED,
        install=install,
        known=known_list.DEFAULT,
        run=run,
        allocator=allocator,
        memory_order=memory_order,
        fail_fast=fail_fast,
        # A mutation must be found by its effect, and not by a compiler's warning.
        warnings="off",
        everywhere="off",
    )


def _wanted(planted: Mutation, targets: Sequence[str]) -> list[str]:
    """The targets that must show a mutation, and those that must not; only these of them, if any are named."""
    return [name for name in [*planted.targets, *planted.silent] if not targets or name in targets]


def row_in(document: str, planted: Mutation, targets: Sequence[str]) -> MutationRow:
    """The row of a document that `plumb mutate --json` printed about one mutation.

    Raises InconclusiveError for a document about anything else.
    """
    because = "it is about another mutation, or about other targets"
    try:
        rows = json_codec.decode(document.encode(), list[MutationRow])
    except msgspec.DecodeError as error:
        rows, because = [], str(error)
    if [(row.mutation, [one.target for one in row.seen]) for row in rows] != [
        (planted.name, _wanted(planted, targets))
    ]:
        raise InconclusiveError("a worker's document is not that of its job", where=planted.name, because=because)
    return rows[0]


def _result(target: str, findings: list[Finding]) -> MutationResult:
    witnesses = [witness for finding in findings for witness in finding.witnesses if witness.target == target]
    return MutationResult(
        target=target,
        suites=sorted({witness.suite for witness in witnesses}),
        findings=[finding.id for finding in findings],
        function=next((finding.function for finding in findings if finding.function), ""),
        record=next((witness.difference.record for witness in witnesses if witness.difference), ""),
    )


def text_of(rows: Sequence[MutationRow]) -> str:
    """A Markdown table, and the score below it."""
    cells = []
    for row in rows:
        for result in row.seen:
            missing = "silent, as due" if result.must_be_silent else "**missed**"
            named = result.findings[0] if result.findings else missing
            mutation = f"`{row.mutation}` ({row.seconds:.0f} s)"
            cells.append((mutation, result.target, ", ".join(result.suites), named, result.function or result.record))
    lines = table(["mutation", "target", "found by", "finding", "function or record"], cells)
    caught = sum(row.caught for row in rows)
    causes, findings = sum(row.causes for row in rows), sum(row.findings for row in rows)
    shown = f"{causes / len(rows):.2f} causes and {findings / len(rows):.2f} findings for each bug"
    annotations, at_fault = sum(row.annotations for row in rows), sum(row.at_fault for row in rows)
    placed = f"{at_fault} of {annotations} annotations stand in a file with the bug"
    return "\n".join([*lines, "", f"{caught} of {len(rows)} found; {shown}; {placed}"])
