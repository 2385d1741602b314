"""The files whose code a change alters without touching them, and the suites that they ask for besides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.plan.plan import make_plan
from harness.workflows.preparation.reach.base_code import BaseCode, altered_files, code_of, may_alter_others
from harness.workflows.suite_selection import choose, read_ignored_paths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.model import Allocator, SourceTree
    from harness.judge.change.unchecked_changes import Change
    from harness.plan.catalog import Catalog
    from harness.plan.request import Request
    from harness.workflows.premerge.change_selection import Premerge
    from harness.workflows.workbench import Workbench


def altered_besides(
    bench: Workbench, request: Request, premerge: Premerge, base: BaseCode, tree: SourceTree
) -> list[Change]:
    """The files that the change alters without touching them, and that other suites than the chosen ones cover."""
    touched = {change.file for change in premerge.changes}
    if not may_alter_others(change.file for change in premerge.changes if change.suites):
        return []
    bench.progress.say("a header or a makefile has changed: comparing builds to find the code that it alters")
    # The changed tree is built last, so its check continues with the results of that build.
    old = base.code.targets
    found = altered_files(old, code_of(bench, request, tree).targets, tree.content)
    return asked_besides(
        premerge.changes, [name for name in found if name not in touched], bench.catalog, request.allocator
    )


def asked_besides(
    changes: Sequence[Change], altered: Sequence[str], catalog: Catalog, allocator: Allocator
) -> list[Change]:
    """The files that a change alters without touching them and that suites other than the selected ones cover."""
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
