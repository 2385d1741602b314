"""Which of the release's own tests a run contains."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from harness.core.model import TIERS
from harness.run.upstream.test_files import has_tests, selected, upstream_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.model import SourceTree, Suite
    from harness.plan.request import Request


class UpstreamSelection(NamedTuple):
    """The release's own tests of a run."""

    files: tuple[str, ...]
    """The test files that may have wanted tests; none if no suite of the plan runs them."""
    left_out: tuple[str, ...]
    """Tests of these files that do not run, as globs of `FILE::TEST`: none if tests are selected."""


def select_upstream(request: Request, tree: SourceTree, suites: Sequence[Suite]) -> UpstreamSelection:
    """The release's own tests that the suites of a plan run.

    Raises UsageError for a selection that names no file and, if no other suite runs, for a tree without tests.
    """
    suite = next((each for each in suites if each.upstream), None)
    if suite is None:
        return UpstreamSelection((), ())
    # Plumbline's own suites, besides canaries.
    others = any(not each.upstream and each.role == "" for each in suites)
    quick = others and TIERS[request.tier] == 0
    left_out = suite.quick_leaves_out if quick and not request.tests else ()
    if suite.absent_from(tree) or (others and not has_tests(tree.content)):
        return UpstreamSelection((), left_out)
    every = upstream_files(tree.content, shown=tree.path)
    short = suite.quick_files if quick else None
    files = selected(every, request.tests, unnamed=short, beside_others=others)
    return UpstreamSelection(tuple(file.name for file in files), left_out)
