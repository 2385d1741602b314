"""The release's own tests on each target: how many pass, and the reason for every other one, as a Markdown page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.model import level_text
from harness.core.target_model import ORACLE
from harness.judge.upstream_tests.tally import UNKNOWN, tallies
from harness.record import run_folder
from harness.report.formats.markdown import as_text
from harness.report.markdown_table import table
from harness.report.report_format import ReportFormat

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path

    from harness.judge.upstream_tests.tally import UpstreamTally
    from harness.record.run_record import RunRecord

HEAD = "# The release's own tests"
COLUMNS = ["target", "tests", "passed", "failed", UNKNOWN, "skipped", "files left out", "processor time", "× native"]


def render(folder: Path, run: RunRecord) -> str:
    """The page."""
    lines = [HEAD, "", f"`{run.server}`, {level_text(run.optimisation)}, policy {run.policy}, seed {run.seed}.", ""]
    found = tallies(folder, run)
    if not found:
        lines += ["No suite of this run ran the release's own tests: `plumb check --suite upstream`.", ""]
        return "\n".join(lines)
    native = next((one.processor_seconds for one in found if one.target == ORACLE), 0.0)
    lines += [*table(COLUMNS, [_row(one, native) for one in found], numbers_from=1), ""]
    lines += [*(f"- {one.sentence}" for one in found), ""]
    lines += _others("## Tests that fail, or left no result", found, {"failed", UNKNOWN})
    lines += _crash_reports(found)
    lines += _others("## Skipped tests", found, {"skipped"})
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


def _others(head: str, found: list[UpstreamTally], outcomes: Container[str]) -> list[str]:
    """The tests of some outcomes, each with all targets on which it ended so for the same reason.

    Skipped ones follow the kinds of skips of each target.
    """
    targets: dict[tuple[str, str, str], list[str]] = {}
    for one in found:
        for test in one.others:
            if test.outcome in outcomes:
                targets.setdefault((test.name, test.outcome, test.reason), []).append(one.target)
    if not targets:
        return []
    rows = [
        (as_text(name), outcome, _names(where, found), as_text(reason))
        for (name, outcome, reason), where in sorted(targets.items())
    ]
    counts = [
        f"- {one.target}: " + "; ".join(f"{count} × {as_text(kind)}" for kind, count in one.skips.most_common())
        for one in found
        if "skipped" in outcomes and one.skips
    ]
    return [head, "", *counts, *([""] if counts else []), *table(["test", "outcome", "targets", "reason"], rows), ""]


def _names(targets: list[str], found: list[UpstreamTally]) -> str:
    return "all" if len(targets) == len(found) > 1 else ", ".join(targets)


def _crash_reports(found: list[UpstreamTally]) -> list[str]:
    """The tests of crash reports, watchdog and log, by target."""
    names = dict.fromkeys(test.name for one in found for test in one.tests if test.is_of_crash_reports)
    outcomes = [{test.name: test.outcome for test in one.tests} for one in found]
    rows = [(as_text(name), *(of_target.get(name, "") for of_target in outcomes)) for name in sorted(names)]
    if not rows:
        return []
    return ["## Crash reports, watchdog and log", "", *table(["test", *(one.target for one in found)], rows), ""]


FORMAT = ReportFormat(name="upstream-tests", render=lambda folder, _: render(folder, run_folder.read_run(folder)))
