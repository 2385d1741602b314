"""The release's own tests pass on the target as they do natively.

The failure of a test that fails in the same words natively is on every machine. The cell is UNKNOWN if a test fails in
one of three runs on the target alone, or if the target leaves one out for no known reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.run.upstream.session import UpstreamFailedError
from suites.upstream import table

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.session.cell_session import CellSession
    from harness.run.upstream.session import UpstreamResult


def test_upstream(upstream_test: str, cell_run: CellSession, cell: CellSpec, family: str) -> None:
    def entry_of(test: str) -> table.ListedTest | None:
        return table.listed(test, cell.runner.target, family, cell.version)

    result = cell_run.run_upstream(upstream_test, may_fail=lambda test: entry_of(test) is not None)
    verdict = result.verdict
    if verdict.outcome == "skipped":
        pytest.skip(verdict.message)
    if (entry := entry_of(upstream_test)) is not None:
        excuse(entry, result)
    if verdict.outcome != "passed":
        times = f"\nfailed in {verdict.failures} of {len(verdict.tries)} runs" if verdict.failures > 1 else ""
        log = f"\nthe server's log:\n{result.log}" if result.log else ""
        raise UpstreamFailedError(f"{verdict.message}{times}\nat {result.place}{log}")
    cell_run.current.note = verdict.message


def excuse(entry: table.ListedTest, result: UpstreamResult) -> None:
    """Skip a listed test that failed. One that passed must leave the list.

    A fault does not count as such a difference, unless the test announced a crash: an unannounced fault is a separate
    finding.
    """
    as_listed = {"failed", "undecided", "unsteady"} if entry.sometimes else {"failed", "undecided"}
    if result.verdict.outcome in as_listed and (result.event.announced or not result.event.guests):
        pytest.skip(f"listed in suites/upstream/differences.toml: {entry.reason}")
    if result.verdict.outcome == "passed" and not entry.sometimes:
        raise UpstreamFailedError(f"it is listed in suites/upstream/differences.toml ({entry.reason}), and passes")
