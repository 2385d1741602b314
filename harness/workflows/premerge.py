"""Checks a change before a merge: the changed files select the suites, and only new findings count against it.

It runs harness.workflows.check on the checkout and then, if that has findings, on the base revision.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import source_excerpt
from harness.build import toolchain
from harness.build.sources import source_tree, tree_files
from harness.core.digests import key_of
from harness.core.errors import UsageError
from harness.core.finding import Verdict
from harness.core.model import Record
from harness.core.strict_toml import OWN_FOLDERS
from harness.core.target_model import ORACLE
from harness.judge import baseline, conclusion, known_findings, unchecked_changes, warning_findings
from harness.judge.baseline import BaseRevision  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.judge.unchecked_changes import Change
from harness.plan.plan import make_plan
from harness.record import stored_run
from harness.report.formats import registry as formats
from harness.workflows import check
from harness.workflows.git.checkout import Checkout, enclosing_server
from harness.workflows.preparation.base_code import BaseCode, altered_files, code_of, may_alter_others
from harness.workflows.preparation.edited_lines import edited_lines
from harness.workflows.suite_selection import choose, read_ignored_paths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.errors import ExitCode
    from harness.core.model import Allocator, SourceTree
    from harness.judge.baseline import Baseline
    from harness.judge.findings import Judgement
    from harness.plan.catalog import Catalog
    from harness.plan.plan import Plan
    from harness.plan.request import Request
    from harness.workflows.workbench import Workbench


MANY_FILES = 30
"""Changes of more files are rare. An old base makes them of a few."""


class Premerge(Record, frozen=True):
    """The changes of a checkout and the suites that they select, as `plumb premerge --explain --json` prints them."""

    server: str
    base: BaseRevision
    changes: list[Change]
    targets: list[str]
    suites: list[str]
    """The canary suite first; empty where there is nothing to run."""
    unchecked: list[str]
    """Changes that no suite would check, each with the reason. With one of them the check cannot pass."""
    known: list[str]
    """What the change does to the tree's own list of known findings. An entry that it adds excuses nothing here."""
    unseen: list[str]
    """Files that a build may read and whose changes git does not report."""
    warning: str
    """Why BASE may be the wrong one; empty where nothing says so."""
    seed: int
    """The default seed, drawn from the base: as long as that is the same, so are the random tests."""


def explain(
    catalog: Catalog,
    path: Path,
    *,
    base_name: str,
    targets: Sequence[str],
    suites: Sequence[str],
    allocator: Allocator,
) -> tuple[Premerge, Plan]:
    """The changes of a checkout and the plan of its check; builds and runs nothing.

    `path` may be any folder of the server. `base_name` names the base; empty: the checkout tells. `suites` replaces the
    selection where the user gives one. Raises UsageError for a path that is in no server or no checkout, and for a
    revision that does not exist.
    """
    server = enclosing_server(path)
    if not (server / "src" / "version.h").is_file():
        raise UsageError(
            "no checkout of a server here",
            where=str(path.resolve()),
            because="neither this folder nor one above it in its repository has a src/version.h",
            remedy="cd into a git checkout of Redis or Valkey, or name it: plumb premerge --server PATH",
        )
    source_tree.open_tree(server, digest="not needed yet")
    known = known_findings.text_in(server)
    checkout = Checkout(server.resolve())
    base = checkout.base(base_name)
    table = read_ignored_paths()
    choice = choose(checkout.changed(base), catalog.suites, table, allocator)
    wanted = list(suites) or choice.suites
    plan = make_plan(catalog, targets=targets, server=str(server), suites=wanted or [catalog.canary])
    planned = plan.suites if wanted and choice.changes else []
    premerge = Premerge(
        server=str(checkout.path),
        base=base,
        changes=choice.changes,
        targets=plan.targets,
        suites=planned,
        unchecked=unchecked_changes.foreseen(choice.changes, planned),
        known=known_findings.changes(known, _known_in(checkout, base)),
        unseen=[one.file for one in choose(checkout.unseen(), catalog.suites, table, allocator).changes if one.suites],
        warning=_warning(len(choice.changes)),
        seed=int(base.commit[:8], 16),
    )
    return premerge, plan


def _known_in(checkout: Checkout, base: BaseRevision) -> str:
    """The base's own list of known findings; empty if it has none, or one that is damaged, which excuses nothing."""
    text = checkout.text(base, known_findings.IN_TREE.as_posix()) or ""
    try:
        known_findings.entries_of(text or known_findings.EMPTY, known_findings.IN_TREE)
    except UsageError:
        return ""
    return text


def text_of(premerge: Premerge) -> str:
    """The base, each changed file with its suites and the reason, and a summary."""
    lines = [f"BASE  {premerge.base}", ""]
    for change in premerge.changes:
        lines += [f"{change.file}", f"    {' '.join(change.suites) or 'nothing to run'}: {change.why}"]
    return "\n".join([*lines, "", summary(premerge)] if premerge.changes else [*lines[:1], summary(premerge)])


def summary(premerge: Premerge) -> str:
    """The suites that will run, or the reason why none will; then each unchecked change, the warnings, and each entry
    that the change adds to the tree's list of known findings or removes from it.
    """
    unseen = [f"WARNING: {one}" for one in unchecked_changes.unseen(_unseen(premerge))]
    lines = [_summary(premerge), *premerge.unchecked, *unseen, premerge.warning, *premerge.known]
    return "\n".join(filter(None, lines))


def _unseen(premerge: Premerge) -> list[Change]:
    return [
        Change(file=name, suites=[], why="git does not look for changes in it", unseen=True) for name in premerge.unseen
    ]


def _warning(files: int) -> str:
    """Why a change of this many files may be compared with the wrong base; empty if it is of the usual size."""
    if files <= MANY_FILES:
        return ""
    return f"WARNING: {files} changed files are unusually many. If your work did not start at BASE, add --base REVISION"


def _summary(premerge: Premerge) -> str:
    if not premerge.changes:
        return "nothing has changed since BASE: nothing to run"
    files = f"{len(premerge.changes)} changed file{'' if len(premerge.changes) == 1 else 's'}"
    if not premerge.suites:
        return f"{files}, not {'tested by any suite' if premerge.unchecked else 'used by any build'}: nothing to run"
    cells = len(premerge.suites) * len(premerge.targets)
    return f"{files}: {', '.join(premerge.suites)} on {', '.join(premerge.targets)} ({cells} cells)"


def refuse_inside(run: Path | None, path: Path) -> None:
    """Raise UsageError for a run folder inside the checkout: the next run would take it for a change."""
    if run is not None and run.resolve().is_relative_to(path.resolve()):
        raise UsageError(
            "the run folder is inside the checkout",
            where=str(run),
            because="the next run would mistake it for a change to the server",
            remedy="name another place: --run FOLDER",
        )


def refuse_own_list(known: Path, path: Path) -> None:
    """Raise UsageError for `--known` with the checkout's own list: there, entries of the change would count."""
    if known.resolve() == (path / known_findings.IN_TREE).resolve():
        raise UsageError(
            "the checkout's own list counts by itself",
            where=f"--known {known}",
            because="named here, it would also excuse findings by entries that only the change has",
            remedy="leave --known out",
        )


def run(
    bench: Workbench, request: Request, premerge: Premerge, *, all_tests: bool = False
) -> tuple[Judgement, ExitCode]:
    """Check the tree and, if that has findings, the base, whose findings are not new. Raises as Check.run does.

    Unless `all_tests`, those do not run that ended as expected in an earlier run and that no change since can reach. A
    change of more than sources also runs the suites that alone cover files whose code it alters.
    """
    # The base is another matter: what its tree lacks on this machine says nothing about the change.
    of_change = msgspec.structs.replace(request, needs_native=True)
    base_code = BaseCode(bench.with_new_stages("base: "), request, premerge.base)
    checkout = Checkout(Path(request.server))
    parts = [change.file for change in premerge.changes if change.suites or change.unchecked]
    change = check.CheckedChange(
        files=[change.file for change in premerge.changes],
        known_in_base=_known_in(checkout, premerge.base),
        base_code=base_code,
        edited=edited_lines(checkout, premerge.base, parts),
        every_test=all_tests,
    )
    checking = check.Check(bench, of_change, change=change, patient=True)
    altered = _altered(bench, request, premerge, base_code, checking.tree)
    if altered:
        request, checking.request = (
            with_suites(each, bench.catalog, premerge.changes, altered) for each in (request, of_change)
        )
    with unchecked_changes.noted(request.run, [*premerge.changes, *altered, *_unseen(premerge)]):
        judgement, code = checking.run()
    suspected = {cell.suite for cell in judgement.cells if cell.verdict == Verdict.FAIL}
    if not suspected and not warning_findings.verdicts(judgement.findings):
        return judgement, code
    # The canary suite alone is enough where only compilers warned: no other suite of the base has to run.
    suites = [name for name in request.plan.suites if name in suspected] or [bench.catalog.canary]
    bench.progress.say(f"findings in {', '.join(suites)}: checking whether BASE shows them, too: {premerge.base}")
    of_base = msgspec.structs.replace(request, plan=request.plan.only(suites))
    old = _of_base(bench, of_base, premerge.base)
    sources = source_excerpt.read(request.run).sources
    if undecided := baseline.undecided(old, [one for one in judgement.findings if not one.known], sources):
        names = ", ".join(one.id for one in undecided)
        bench.progress.say(f"BASE shows other values: running it once more, since values may vary by chance: {names}")
        again = _of_base(bench, of_base, premerge.base, again=True)
        old = msgspec.structs.replace(old, again=again.appearances)
    baseline.write(request.run, old)
    stored = stored_run.read(request.run)
    return conclusion.conclude(stored, request.known, bench.progress, tree=Path(request.server), made_here=True)


def _altered(bench: Workbench, request: Request, premerge: Premerge, base: BaseCode, tree: SourceTree) -> list[Change]:
    """The files that the change alters without touching them, and that other suites than the chosen ones cover."""
    touched = {change.file for change in premerge.changes}
    if not may_alter_others(change.file for change in premerge.changes if change.suites):
        return []
    bench.progress.say("a header or a makefile has changed: comparing builds to find the code that it alters")
    # The changed tree last: its check goes on with what the build leaves.
    old = base.code.targets
    found = altered_files(old, code_of(bench, request, tree).targets, tree.content)
    return asked_besides(
        premerge.changes, [name for name in found if name not in touched], bench.catalog, request.allocator
    )


def asked_besides(
    changes: Sequence[Change], altered: Sequence[str], catalog: Catalog, allocator: Allocator
) -> list[Change]:
    """Of the files that a change alters without touching them, those that other suites cover than it asks for."""
    asked = {name for change in changes for name in change.suites}
    return [
        msgspec.structs.replace(change, why=f"the change alters its code; {change.why}")
        for change in choose(altered, catalog.suites, read_ignored_paths(), allocator).changes
        if not (asked & {*change.covering} if change.covering else asked >= {*change.suites})
    ]


def with_suites(request: Request, catalog: Catalog, changes: Sequence[Change], altered: Sequence[Change]) -> Request:
    """The request with the suites of these altered files besides, unless its user has named suites."""
    plan = request.plan
    if {*plan.suites} >= {name for change in changes for name in change.suites}:
        more = dict.fromkeys(name for change in altered for name in change.suites)
        suites = list(dict.fromkeys([*plan.suites, *more]))
        plan = make_plan(catalog, targets=plan.targets, server=request.server, suites=suites)
    return msgspec.structs.replace(request, plan=plan)


def _of_base(bench: Workbench, request: Request, base: BaseRevision, *, again: bool = False) -> Baseline:
    """The base's findings with the same targets and suites: from the cache, or from a check of its own in RUN/base.
    `again`: those of a second check of it, in RUN/base-again.

    Every target runs, even if only one had findings: targets read each other's files.
    """
    cache = bench.cache
    checkout = Checkout(Path(request.server))
    name = "base-again" if again else "base"
    key = key_of([name, *_identity(bench, request, checkout.content(base))])
    with cache.lock(f"base-{key}"):
        entry = cache.entry("bases", key)
        if entry is not None and (stored := baseline.read(entry)) is not None:
            bench.progress.say("using the cached findings of BASE")
            return msgspec.structs.replace(stored, base=base)
        with cache.work(f"base-{key}") as work:
            # The copy keeps the checkout's name, under which messages and the cache know its builds.
            tree = checkout.write(base, work / checkout.path.name)
            of_base = msgspec.structs.replace(request, server=str(tree), run=request.run / name)
            judgement, _ = check.Check(bench.with_new_stages("base: "), of_base, patient=True).run()
        formats.write(of_base.run, judgement)
        found = baseline.of_judgement(base, judgement, source_excerpt.read(of_base.run).sources)
        # The result is not kept if the project's own suites were edited meanwhile.
        if not found.unjudged and key_of([name, *_identity(bench, request, checkout.content(base))]) == key:
            cache.folder("bases", key, lambda into: baseline.write(into, found))
    return found


def _identity(bench: Workbench, request: Request, content: str) -> list[str]:
    """Everything that a base's findings depend on: its content, the request, compilers, and the project's own code."""
    tools = [bench.toolchain_of(bench.catalog.targets[name]) for name in [*request.plan.targets, ORACLE]]
    return [
        content,
        *request.plan.targets,
        *request.plan.suites,
        *(toolchain.identity(each) for each in tools),
        *map(tree_files.digest_of, OWN_FOLDERS),
        *map(
            str,
            (
                request.policy,
                request.optimisation,
                request.allocator,
                request.environment,
                request.io,
                request.emulator,
                request.seed,
                request.warnings,
                shlex.join(request.settings.words),
            ),
        ),
    ]
