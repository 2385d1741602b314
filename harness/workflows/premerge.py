"""Before a merge: what a checkout changes is checked, by suites that its files choose, and only what is new is blamed.

The work is harness.workflows.check's, of the checkout first, then, if anything is found, of the base revision.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.build import toolchain
from harness.build.sources import source_tree, tree_files
from harness.core.cache import key_of
from harness.core.errors import UsageError
from harness.core.finding import Verdict
from harness.core.model import Record
from harness.core.strict_toml import ROOT
from harness.judge import baseline, conclusion, unchecked_changes, warning_findings
from harness.judge.baseline import BaseRevision  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.judge.unchecked_changes import Change  # noqa: TC001 - the same
from harness.plan.plan import make_plan
from harness.record import stored_run
from harness.report.formats import registry as formats
from harness.workflows import check
from harness.workflows.git_checkout import Checkout
from harness.workflows.suite_selection import choose, read_unseen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.cache import Cache
    from harness.core.errors import ExitCode
    from harness.core.model import Allocator
    from harness.core.progress import Progress
    from harness.judge.baseline import Baseline
    from harness.judge.findings import Judgement
    from harness.plan.catalog import Catalog
    from harness.plan.request import Request


class Premerge(Record, frozen=True):
    """What a checkout changes, and what is to be run for it: `plumb premerge --explain --json`."""

    server: str
    base: BaseRevision
    changes: list[Change]
    targets: list[str]
    suites: list[str]
    """Empty: there is nothing to run. Else the canary's comes first."""
    unchecked: list[str]
    """Changes that nothing of it would look at, and why: with one of them it cannot pass."""
    seed: int
    """What draws everything random, unless another is given: as long as the base is the same, so are the tests."""


def explain(
    catalog: Catalog,
    path: Path,
    *,
    since: str,
    targets: Sequence[str],
    suites: Sequence[str],
    allocator: Allocator,
) -> Premerge:
    """What is to be run for a checkout; builds and runs nothing. `suites`: the user's own choice, if there is one.

    Raises UsageError for what is no server or no checkout, and for a revision that does not exist.
    """
    source_tree.open_tree(path, digest="not needed yet")
    checkout = Checkout(path.resolve())
    base = checkout.base(since)
    choice = choose(checkout.changed(base), catalog.suites, read_unseen(), allocator)
    wanted = list(suites) or choice.suites
    plan = make_plan(catalog, targets=targets, server=str(path), suites=wanted or [catalog.canary])
    planned = plan.suites if wanted and choice.changes else []
    return Premerge(
        server=str(checkout.path),
        base=base,
        changes=choice.changes,
        targets=plan.targets,
        suites=planned,
        unchecked=unchecked_changes.foreseen(choice.changes, planned),
        seed=int(base.commit[:8], 16),
    )


def text_of(premerge: Premerge) -> str:
    """For people: the base, each file with its suites and why, the plan."""
    lines = [f"BASE  {premerge.base}", ""]
    for change in premerge.changes:
        lines += [f"{change.file}", f"    {' '.join(change.suites) or 'nothing to run'}: {change.why}"]
    return "\n".join([*lines, "", summary(premerge)] if premerge.changes else [*lines[:1], summary(premerge)])


def summary(premerge: Premerge) -> str:
    """A line: what will be run, and for how many files; or why nothing is. Then what is not checked, a line each."""
    return "\n".join([_summary(premerge), *premerge.unchecked])


def _summary(premerge: Premerge) -> str:
    if not premerge.changes:
        return "nothing has changed since BASE: nothing to run"
    files = f"{len(premerge.changes)} changed file{'' if len(premerge.changes) == 1 else 's'}"
    if not premerge.suites:
        return f"{files}, of which no {'suite looks at' if premerge.unchecked else 'build sees'} any: nothing to run"
    cells = len(premerge.suites) * len(premerge.targets)
    return f"{files}: {', '.join(premerge.suites)} on {', '.join(premerge.targets)} ({cells} cells)"


def refuse_inside(run: Path | None, path: Path) -> None:
    """Raise UsageError for a run folder inside the checkout: it would be a change of its own the next time."""
    if run is not None and run.resolve().is_relative_to(path.resolve()):
        raise UsageError(
            "the run folder is inside the checkout",
            where=str(run),
            because="the next run would take it for a change of the server",
            remedy="name another place: --run FOLDER",
        )


def run(
    catalog: Catalog, store: Cache, progress: Progress, request: Request, premerge: Premerge
) -> tuple[Judgement, ExitCode]:
    """Check the tree, and the base if anything is found; what the base shows too is known. Raises as Check.run does."""
    with unchecked_changes.noted(request.run, premerge.changes):
        judgement, code = check.Check(catalog, store, progress, request).run()
    suspected = {cell.suite for cell in judgement.cells if cell.verdict == Verdict.FAIL.name}
    if not suspected and not warning_findings.verdicts(judgement.findings):
        return judgement, code
    # For what compilers say of the base, nothing of it has to run.
    suites = [name for name in premerge.suites if name in suspected] or [catalog.canary]
    progress.say(f"findings in {', '.join(suites)}: does BASE show them too? {premerge.base}")
    old = _of_base(catalog, store, progress, msgspec.structs.replace(request, suites=suites), premerge.base)
    baseline.write(request.run, old)
    stored = stored_run.read(request.run)
    return conclusion.conclude(stored, request.known, progress, tree=Path(request.server), made_here=True)


def _of_base(catalog: Catalog, store: Cache, progress: Progress, request: Request, base: BaseRevision) -> Baseline:
    """What the base shows of the same targets and suites: from the cache, or of a check of its own, RUN/base.

    It is the same targets, though one of them showed something: they read each other's files.
    """
    checkout = Checkout(Path(request.server))
    key = key_of(_identity(catalog, request, checkout.content(base)))
    with store.lock(f"base-{key}"):
        entry = store.entry("bases", key)
        if entry is not None and (stored := baseline.read(entry)) is not None:
            progress.say("what BASE shows is in the cache")
            return msgspec.structs.replace(stored, base=base)
        with store.work(f"base-{key}") as work:
            # The checkout's own name: by it the compiler's cache knows the files that have not changed.
            tree = checkout.write(base, work / checkout.path.name)
            of_base = msgspec.structs.replace(request, server=str(tree), run=request.run / "base")
            # A run's record has the times of its own stages.
            judgement, _ = check.Check(catalog, store, progress.fresh(), of_base).run()
        formats.write(of_base.run, judgement)
        found = baseline.of_judgement(base, judgement)
        # Somebody may have edited our own suites meanwhile: then it is told of nothing.
        if not found.untold and key_of(_identity(catalog, request, checkout.content(base))) == key:
            store.folder("bases", key, lambda into: baseline.write(into, found))
    return found


def _identity(catalog: Catalog, request: Request, content: str) -> list[str]:
    """All that a base's findings depend on: its content, what is asked of it and how, compilers, and our own code."""
    plan = make_plan(catalog, targets=request.targets, server=request.server, suites=request.suites)
    tools = [catalog.toolchain_of(catalog.targets[name]) for name in [*plan.targets, "native"]]
    return [
        content,
        *plan.targets,
        *plan.suites,
        *(toolchain.version(toolchain.tool(one, "gcc")) for one in tools),
        *(tree_files.digest_of(ROOT / name) for name in ("harness", "suites", "targets", "toolchains")),
        *map(
            str,
            (request.policy, request.optimisation, request.allocator, request.emulator, request.seed, request.warnings),
        ),
    ]
