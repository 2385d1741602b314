"""Where a run's processor time went, by suite and by what took it, as a Markdown page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.model import Record
from harness.record import event_log, run_folder
from harness.report.markdown_table import table
from harness.report.report_format import ReportFormat

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.record.run_folder import ProcessorTime, RunRecord

HEAD = "# Processor time"
COLUMNS = ["start", "tests", "proxy", "emulators", "native servers", "Tcl", "others", "sum"]
EXPLANATION = """\
Seconds of all processors, on all targets. *start*: a cell's process until its first test. *tests*: the same from then
on. *proxy*: its threads that record what clients send. *Tcl*: its interpreters, with the servers that they start and
wait for."""


class SuiteTime(Record, frozen=True):
    """Seconds of processors that the cells of one suite took, by what took them."""

    suite: str
    start: float = 0.0
    tests: float = 0.0
    proxy: float = 0.0
    emulators: float = 0.0
    native_servers: float = 0.0
    tcl: float = 0.0
    others: float = 0.0

    @property
    def parts(self) -> tuple[float, ...]:
        """The seconds, in the order of COLUMNS without the sum."""
        return (self.start, self.tests, self.proxy, self.emulators, self.native_servers, self.tcl, self.others)


def suites(folder: Path, run: RunRecord) -> list[SuiteTime]:
    """What each suite took; cells that were killed left no word of it."""
    found = []
    for suite in run.suites:
        logs = (event_log.read(folder / target / suite / event_log.NAME) for target in run.targets)
        if times := [log.processor for log in logs if log.processor is not None]:
            found.append(_sum(suite, times))
    return found


def _sum(suite: str, times: Iterable[ProcessorTime]) -> SuiteTime:
    parts = dict.fromkeys(("start", "tests", "proxy", "emulators", "native_servers", "tcl", "others"), 0.0)
    for time in times:
        parts["start"] += time.start
        parts["tests"] += time.tests
        parts["proxy"] += time.proxy
        parts["others"] += time.others
        for program, seconds in time.programs.items():
            parts[_kind(program)] += seconds
    return SuiteTime(suite=suite, **parts)


def _kind(program: str) -> str:
    if program.startswith("qemu-"):
        return "emulators"
    if program.startswith("tclsh"):
        return "tcl"
    return "native_servers" if program.endswith("-server") else "others"


def render(folder: Path, run: RunRecord) -> str:
    """The page."""
    found = suites(folder, run)
    rows = [_row(f"`{one.suite}`", one.parts) for one in found]
    if found:
        sums = [sum(column) for column in zip(*(one.parts for one in found), strict=True)]
        rows.append(_row("all", sums))
    lines = [
        HEAD,
        "",
        f"`{run.server}` on {', '.join(f'`{target}`' for target in run.targets)}, seed {run.seed}.",
        EXPLANATION,
        "",
        *table(["suite", *COLUMNS], rows, numbers_from=1),
        "",
    ]
    return "\n".join(lines)


def _row(name: str, parts: Iterable[float]) -> list[str]:
    parts = list(parts)
    return [name, *(f"{seconds:.1f}" for seconds in (*parts, sum(parts)))]


FORMAT = ReportFormat(name="processor-time", render=lambda folder, _: render(folder, run_folder.read_run(folder)))
