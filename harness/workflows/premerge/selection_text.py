"""Tells a person what a change selects: the base, each file with its suites, and a summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.judge.change import unchecked_changes
from harness.workflows.premerge.change_selection import unseen_changes

if TYPE_CHECKING:
    from harness.workflows.premerge.change_selection import Premerge


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
    unseen = [f"WARNING: {one}" for one in unchecked_changes.unseen(unseen_changes(premerge))]
    lines = [_summary(premerge), *premerge.unchecked, *unseen, premerge.warning, *premerge.known]
    return "\n".join(filter(None, lines))


def _summary(premerge: Premerge) -> str:
    if not premerge.changes:
        return "nothing has changed since BASE: nothing to run"
    files = f"{len(premerge.changes)} changed file{'' if len(premerge.changes) == 1 else 's'}"
    if not premerge.suites:
        return f"{files}, not {'tested by any suite' if premerge.unchecked else 'used by any build'}: nothing to run"
    cells = len(premerge.suites) * len(premerge.targets)
    return f"{files}: {', '.join(premerge.suites)} on {', '.join(premerge.targets)} ({cells} cells)"
