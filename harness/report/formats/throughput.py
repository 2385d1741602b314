"""Throughput: commands per second of each suite on each target, from a run's record, as a Markdown page.

A cell's throughput is the number of commands that its guests executed, by their own count, divided by the cell's whole
time. That time includes the oracle's replies. `plumb bench` measures a server alone under the emulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.model import Record, level_text
from harness.record import cell_events, event_log, run_folder
from harness.report.markdown_table import table
from harness.report.report_format import ReportFormat

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.run_record import CellRecord, RunRecord

HEAD = "# Throughput of the suites"


class Throughput(Record, frozen=True):
    """The throughput of one cell."""

    target: str
    suite: str
    commands: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Commands per second of the cell's time; 0 for a cell that took no time."""
        return self.commands / self.seconds if self.seconds else 0.0


def cells(folder: Path, run: RunRecord) -> list[Throughput]:
    """Every cell that sent commands."""
    measured = [_of_cell(folder, record) for record in run.cells]
    return [one for one in measured if one.commands]


def _of_cell(folder: Path, record: CellRecord) -> Throughput:
    recorded = event_log.read_events(folder / record.target / record.suite / "events.jsonl")
    guests = [event for event in recorded if isinstance(event, cell_events.GuestEvent)]
    # Count guests on other targets too: the cell waits for them.
    commands = sum(guest.commands for guest in guests)
    return Throughput(target=record.target, suite=record.suite, commands=commands, seconds=record.seconds)


def render(folder: Path, run: RunRecord) -> str:
    """The page."""
    measured = cells(folder, run)
    suites = [name for name in run.suites if any(one.suite == name for one in measured)]
    before, after = run.load
    options = f"compiled with {level_text(run.optimisation)}, under the policy `{run.policy}` with seed {run.seed}"
    rows = []
    for target in run.targets:
        by_suite = {one.suite: one for one in measured if one.target == target}
        rows.append([f"`{target}`", *(_text(by_suite.get(suite)) for suite in suites)])
    lines = [
        HEAD,
        "",
        f"This page shows how many commands per second each suite executes on each target: `{run.server}`, {options}.",
        f"The host's load average was {before:.1f} before the run and {after:.1f} after it.",
        "",
        "Each figure is the number of commands that the cell's guests counted, divided by the time that the cell took.",
        "That time includes the oracle's replies. The brackets contain both numbers.",
        "",
        "`plumb report RUN --format throughput` writes this page for a run.",
        "",
        *table(["target", *suites], rows, numbers_from=1),
        "",
    ]
    return "\n".join(lines)


def _text(cell: Throughput | None) -> str:
    return f"{cell.per_second:,.0f} ({cell.commands:,} in {cell.seconds:.0f} s)" if cell else "–"


FORMAT = ReportFormat(name="throughput", render=lambda folder, _: render(folder, run_folder.read_run(folder)))
