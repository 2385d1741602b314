"""What a checkout changes, compared with its base, and the suites that its changed files select."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.build.sources import source_tree
from harness.core.errors import UsageError
from harness.core.model import Record
from harness.judge.baseline import BaseRevision  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.judge.change import unchecked_changes
from harness.judge.change.unchecked_changes import Change
from harness.judge.known import known_list, tree_list
from harness.plan.plan import make_plan
from harness.workflows.git.checkout import Checkout, enclosing_server
from harness.workflows.suite_selection import choose, read_ignored_paths, sampled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.model import Allocator
    from harness.plan.catalog import Catalog
    from harness.plan.plan import Plan

MANY_FILES = 30
"""Changes of more files are rare. An old base makes them of a few."""


class Premerge(Record, frozen=True):
    """The changes of a checkout and the suites that they select, as `plumb premerge --explain --json` prints them."""

    server: str
    base: BaseRevision
    changes: list[Change]
    targets: list[str]
    suites: list[str]
    """The canary suite first; empty if there is nothing to run."""
    sampled: list[str]
    """Those of `suites` that run on a few targets, and on others if those show anything new."""
    unchecked: list[str]
    """Changes that no suite would check, each with the reason. With one of them the check cannot pass."""
    known: list[str]
    """What the change does to the tree's own list of known findings. An entry that it adds excuses nothing here."""
    unseen: list[str]
    """Files that a build may read and whose changes git does not report."""
    warning: str
    """Why the base may be the wrong one; empty if nothing suggests that."""
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

    `path` may be any folder of the server. `base_name` names the base; empty: it follows from the checkout. `suites`
    replaces the selection, if the user gives any. Raises UsageError for a path outside of any server or checkout, and
    for a revision that does not exist.
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
    known = tree_list.text_in(server)
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
        sampled=sorted(sampled(choice.changes) & set(planned)) if not suites else [],
        unchecked=unchecked_changes.foreseen(choice.changes, planned),
        known=tree_list.changes(known, known_in(checkout, base)),
        unseen=[one.file for one in choose(checkout.unseen(), catalog.suites, table, allocator).changes if one.suites],
        warning=_warning(len(choice.changes)),
        seed=int(base.commit[:8], 16),
    )
    return premerge, plan


def known_in(checkout: Checkout, base: BaseRevision) -> str:
    """The base's own list of known findings; empty if it has none, or one that is damaged, which excuses nothing."""
    text = checkout.text(base, tree_list.IN_TREE.as_posix()) or ""
    try:
        known_list.entries_of(text or known_list.EMPTY, tree_list.IN_TREE)
    except UsageError:
        return ""
    return text


def unseen_changes(premerge: Premerge) -> list[Change]:
    """The files of `unseen` as changes that no suite would check."""
    return [
        Change(file=name, suites=[], why="git does not look for changes in it", unseen=True) for name in premerge.unseen
    ]


def _warning(files: int) -> str:
    """Why a change of this many files may be compared with the wrong base; empty if it is of the usual size."""
    if files <= MANY_FILES:
        return ""
    return f"WARNING: {files} changed files are unusually many. If your work did not start at BASE, add --base REVISION"


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
    if known.resolve() == (path / tree_list.IN_TREE).resolve():
        raise UsageError(
            "the checkout's own list needs no --known",
            where=f"--known {known}",
            because="if named here, entries that only the change adds would also excuse findings",
            remedy="leave --known out",
        )
