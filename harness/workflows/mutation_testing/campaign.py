"""The suites' own test: a bug is planted in a clean release, and the quick tier must find and name it."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

from harness.build.sources.archives import Fetcher
from harness.core.errors import UsageError
from harness.core.model import Record
from harness.judge import known_findings
from harness.plan.catalog import select
from harness.plan.request import Request
from harness.report.formats import registry as formats
from harness.report.markdown_table import table
from harness.workflows import check
from harness.workflows.mutation_testing import mutations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.cache import Cache
    from harness.core.finding import Finding
    from harness.core.progress import Progress
    from harness.plan.catalog import Catalog
    from harness.workflows.mutation_testing.mutations import Mutation

SEED = 1
"""The same streams every time: a mutation that is found once is found again."""
JOBS = os.cpu_count() or 1


class MutationResult(Record, frozen=True):
    """How one target showed a mutation."""

    target: str
    suites: list[str]
    findings: list[str]
    """Identities; none where it was missed."""
    function: str
    record: str = ""
    """Of a difference: which part of the format."""


class MutationRow(Record, frozen=True):
    """One mutation, tried."""

    mutation: str
    title: str
    fault: str
    allocator: str
    seconds: float
    """Planting, building and running."""
    run: str
    seen: list[MutationResult]

    @property
    def caught(self) -> bool:
        """Every target that must show it does."""
        return all(one.findings for one in self.seen)


def chosen(names: Sequence[str]) -> list[Mutation]:
    """Mutations by names and globs, all without any. Raises UsageError for a name that is none."""
    every = mutations.mutations()
    return [every[name] for name in select("mutation", names or ["*"], every)]


def mutate(
    catalog: Catalog,
    store: Cache,
    progress: Progress,
    planted: Mutation,
    *,
    targets: Sequence[str] = (),
    offline: bool = False,
    install: bool = False,
) -> MutationRow:
    """Plant, check, compare. The mutant and its run stay in the cache until the next time.

    Raises UsageError when the mutation does not fit the release or is not expected on any of `targets`, and what
    `harness.workflows.check` raises.
    """
    started = time.monotonic()
    wanted = [name for name in planted.targets if not targets or name in targets]
    if not wanted:
        raise UsageError(
            f"{planted.name} shows on none of {', '.join(targets)}",
            where="--target",
            remedy="one of: " + ", ".join(planted.targets),
        )
    original = Fetcher(store, progress, offline=offline).server(catalog.servers[planted.server])
    place = store.path("mutants", planted.name)
    with store.lock(f"mutant-{planted.name}"):
        shutil.rmtree(place, ignore_errors=True)
        # The release's own name: by it the compiler's cache knows the files that have not changed.
        tree = place / planted.server
        mutations.plant(planted, original.path, tree)
        request = Request(
            targets=wanted,
            server=str(tree),
            suites=planted.suites,
            tier="quick",
            policy="signal",
            optimisation="O2",
            emulator="pinned",
            jobs=JOBS,
            seed=SEED,
            offline=offline,
            install=install,
            known=known_findings.DEFAULT,
            run=place / "run",
            allocator=planted.allocator,
            fail_fast=True,
            # What a bug does is looked for.
            warnings="off",
        )
        judgement, _ = check.Check(catalog, store, progress, request).run()
        formats.write(request.run, judgement)
    found = mutations.caught(planted, judgement.findings)
    return MutationRow(
        mutation=planted.name,
        title=planted.title,
        fault=planted.fault,
        allocator=planted.allocator,
        seconds=round(time.monotonic() - started, 1),
        run=str(request.run),
        seen=[_sighted(target, found[target]) for target in wanted],
    )


def _sighted(target: str, findings: list[Finding]) -> MutationResult:
    seen = [one for finding in findings for one in finding.witnesses if one.target == target]
    return MutationResult(
        target=target,
        suites=sorted({one.suite for one in seen}),
        findings=[one.id for one in findings],
        function=next((one.function for one in findings if one.function), ""),
        record=next((one.difference.record for one in seen if one.difference), ""),
    )


def text_of(rows: Sequence[MutationRow]) -> str:
    """A Markdown table, and the score below it."""
    cells = []
    for row in rows:
        for one in row.seen:
            named = one.findings[0] if one.findings else "**missed**"
            mutation = f"`{row.mutation}` ({row.seconds:.0f} s)"
            cells.append((mutation, one.target, ", ".join(one.suites), named, one.function or one.record))
    lines = table(["mutation", "target", "found by", "finding", "function or record"], cells)
    caught = sum(row.caught for row in rows)
    return "\n".join([*lines, "", f"{caught} of {len(rows)} found"])
