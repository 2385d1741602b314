"""The release's own tests on each target: how many pass, and the reason for every other one, as a Markdown page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.judge.upstream_tests.tally import tallies
from harness.record import run_folder
from harness.report.markdown_table import table
from harness.report.report_format import ReportFormat

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.run_folder import RunRecord

HEAD = "# The release's own tests"


def render(folder: Path, run: RunRecord) -> str:
    """The page."""
    lines = [HEAD, "", f"`{run.server}`, -{run.optimisation}, policy {run.policy}, seed {run.seed}.", ""]
    found = tallies(folder, run)
    if not found:
        lines += ["No suite of this run ran the release's own tests: `plumb check --suite upstream`.", ""]
    for one in found:
        rows = [(f"`{test}`", outcome, reason) for test, outcome, reason in one.others]
        lines += [f"## {one.sentence}", "", *table(["test", "outcome", "reason"], rows), ""]
    return "\n".join(lines)


FORMAT = ReportFormat(name="upstream-tests", render=lambda folder, _: render(folder, run_folder.read_run(folder)))
