"""The release's own tests on each target: how many pass, and the reason for every other one, as a Markdown page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.target_model import ORACLE
from harness.judge.upstream_tests.tally import UNKNOWN, tallies
from harness.record import run_folder
from harness.report.formats.markdown import as_text
from harness.report.markdown_table import table
from harness.report.report_format import ReportFormat

if TYPE_CHECKING:
    from pathlib import Path

    from harness.judge.upstream_tests.tally import UpstreamTally
    from harness.record.run_folder import RunRecord

HEAD = "# The release's own tests"
COLUMNS = ["target", "tests", "passed", "failed", UNKNOWN, "skipped", "files left out", "processor time", "× native"]


def render(folder: Path, run: RunRecord) -> str:
    """The page."""
    lines = [HEAD, "", f"`{run.server}`, -{run.optimisation}, policy {run.policy}, seed {run.seed}.", ""]
    found = tallies(folder, run)
    if not found:
        lines += ["No suite of this run ran the release's own tests: `plumb check --suite upstream`.", ""]
        return "\n".join(lines)
    native = next((one.processor_seconds for one in found if one.target == ORACLE), 0.0)
    lines += [*table(COLUMNS, [_row(one, native) for one in found], numbers_from=1), ""]
    for one in found:
        rows = [(as_text(test.name), test.outcome, as_text(test.reason)) for test in one.others]
        lines += [f"## {one.sentence}", "", *(f"- {count} skipped: {kind}" for kind, count in one.skips.most_common())]
        lines += ["", *table(["test", "outcome", "reason"], rows), ""]
    return "\n".join(lines)


def _row(one: UpstreamTally, native: float) -> list[str]:
    counts = [one.outcomes[outcome] for outcome in ("passed", "failed", UNKNOWN, "skipped")]
    ratio = f"{one.processor_seconds / native:.1f}" if native and one.target != ORACLE else ""
    return [
        one.target,
        *(f"{count:,}" for count in (len(one.tests), *counts, one.left_out)),
        f"{one.processor_seconds:,.0f} s",
        ratio,
    ]


FORMAT = ReportFormat(name="upstream-tests", render=lambda folder, _: render(folder, run_folder.read_run(folder)))
