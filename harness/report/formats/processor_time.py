"""A run's processor time, by suite and by consumer: a Markdown page, and a flame graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.model import Record
from harness.record import event_log, run_cost, run_folder
from harness.record.cell_events import BEFORE_TESTS, IN_TESTS
from harness.report import icicle
from harness.report.markdown_table import table
from harness.report.report_format import ReportFormat

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.record.cell_events import ProcessorTime
    from harness.record.run_cost import RunCost
    from harness.record.run_record import RunRecord

HEAD = "# Processor time"
COLUMNS = ["start", "tests", "proxy", "emulators", "native servers", "Tcl", "others", "sum", "elapsed", "waiting"]
EXPLANATION = """\
Seconds of all processors, on all targets. *start*: a cell's process until its first test. *tests*: the same from then
on. *proxy*: its threads that record what clients send. *Tcl*: its interpreters, with the servers that they start and
wait for. *elapsed*: how long the cells took. *waiting*: the part of it in which no processor worked for them."""
PROFILE_SEPARATOR = ";"
_KINDS = {"start": BEFORE_TESTS, "tests": IN_TESTS}
"""The kinds of time for which a cell's profile contains functions -> the phase with which these begin."""


class SuiteTime(Record, frozen=True):
    """Processor seconds of the cells of one suite, by consumer."""

    suite: str
    start: float = 0.0
    tests: float = 0.0
    proxy: float = 0.0
    emulators: float = 0.0
    native_servers: float = 0.0
    tcl: float = 0.0
    others: float = 0.0
    elapsed: float = 0.0
    """Seconds by the clock."""
    waiting: float = 0.0
    """Clock seconds without a processor: for a timer, for another process, or for a processor that others had."""

    @property
    def parts(self) -> tuple[float, ...]:
        """The processors' seconds, in the order of COLUMNS."""
        return (self.start, self.tests, self.proxy, self.emulators, self.native_servers, self.tcl, self.others)


def suites(folder: Path, run: RunRecord) -> list[SuiteTime]:
    """The time of each suite. Cells that were killed left no record of theirs."""
    clocks = {(cell.target, cell.suite): cell.seconds for cell in run.cells}
    found = []
    for suite in run.suites:
        times = {}
        for target in run.targets:
            log = event_log.read(folder / target / suite / event_log.NAME)
            if log.processor is not None:
                times[target] = log.processor
        if times:
            found.append(_sum(suite, [(time, clocks.get((target, suite), 0.0)) for target, time in times.items()]))
    return found


def _sum(suite: str, times: Iterable[tuple[ProcessorTime, float]]) -> SuiteTime:
    sums = {name: 0.0 for name in SuiteTime.__struct_fields__ if name != "suite"}
    for time, elapsed in times:
        parts = {"start": time.start, "tests": time.tests, "proxy": time.proxy, "others": time.others}
        for program, seconds in time.programs.items():
            kind = _kind(program)
            parts[kind] = parts.get(kind, 0.0) + seconds
        # Cell by cell: one that has two processors at a time makes no other wait less.
        parts |= {"elapsed": elapsed, "waiting": max(0.0, elapsed - sum(parts.values()))}
        for name, seconds in parts.items():
            sums[name] += seconds
    return SuiteTime(suite=suite, **sums)


def _kind(program: str) -> str:
    if program.startswith("qemu-"):
        return "emulators"
    if program.startswith("tclsh"):
        return "tcl"
    return "native_servers" if program.endswith("-server") else "others"


def render(folder: Path, run: RunRecord) -> str:
    """The page."""
    found = suites(folder, run)
    rows = [_row(f"`{one.suite}`", one.parts, one.elapsed, one.waiting) for one in found]
    if found:
        sums = [sum(column) for column in zip(*(one.parts for one in found), strict=True)]
        rows.append(_row("all", sums, sum(one.elapsed for one in found), sum(one.waiting for one in found)))
    lines = [
        HEAD,
        "",
        f"`{run.server}` on {', '.join(f'`{target}`' for target in run.targets)}, seed {run.seed}.",
        EXPLANATION,
        "",
        *table(["suite", *COLUMNS], rows, numbers_from=1),
        "",
    ]
    if cost := run_cost.read(folder):
        lines += [*_beside_cells(cost, cells=sum(sum(one.parts) for one in found)), ""]
    return "\n".join(lines)


def _row(name: str, parts: Iterable[float], elapsed: float, waiting: float) -> list[str]:
    parts = list(parts)
    return [name, *(f"{seconds:.1f}" for seconds in (*parts, sum(parts), elapsed, waiting))]


def _beside_cells(cost: RunCost, *, cells: float) -> list[str]:
    """The costs outside of cells: the command's own time and that of its other programs, its memory, its cache."""
    others = _other_programs(cost, cells)
    used = cost.own_seconds + cells + others
    idle = max(0.0, cost.processors * cost.clock_seconds - used)
    by_stage = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in cost.stages.items())
    programs = sorted(cost.peak.by_program.items(), key=lambda each: -each[1])
    largest = ", ".join(f"{name} {_mebibytes(taken)}" for name, taken in programs[:6])
    lines = [
        f"- {cost.clock_seconds:.1f} s of the clock on {cost.processors} processors, which worked for the run",
        f"  {used:.1f} s, and for {idle:.1f} s did not.",
        f"- `plumb` itself: {cost.own_seconds:.1f} s of processors ({by_stage or 'no stage'}). Its other programs:",
        f"  {others:.1f} s.",
        f"- The largest sample of the memory of all processes (PSS): {_mebibytes(cost.peak.pss_bytes)} in",
        f"  {cost.peak.processes} processes: {largest}.",
    ]
    grown = cost.cache_growth_bytes
    return lines if grown is None else [*lines, f"- The cache grew by {_mebibytes(grown)}."]


def _other_programs(cost: RunCost, cells: float) -> float:
    """Seconds of the command's programs other than cells: compilers, canaries, tools that read binaries."""
    return max(0.0, sum(cost.programs.values()) - cells)


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"


def tree(folder: Path, run: RunRecord) -> icicle.Part:
    """The same figures as parts of the whole: suite, kind, and the functions where the run has profiles."""
    root = icicle.Part("the run")
    found = suites(folder, run)
    for one in found:
        stacks = _stacks_of(folder, run, one.suite)
        for name, seconds in zip(COLUMNS, one.parts, strict=False):
            phase = _KINDS.get(name, "")
            shares = {names[1:]: amount for names, amount in stacks.items() if phase and names[0] == phase}
            suite = root.parts.setdefault(one.suite, icicle.Part(one.suite))
            suite.parts.setdefault(name, icicle.Part(name)).add_shares(shares, seconds)
    if cost := run_cost.read(folder):
        own = root.parts.setdefault("plumb", icicle.Part("plumb"))
        own.add_shares({_names(stack)[1:]: amount for stack, amount in cost.stacks.items()}, cost.own_seconds)
        root.add(["other programs"], _other_programs(cost, sum(sum(one.parts) for one in found)))
    return root


def _stacks_of(folder: Path, run: RunRecord, suite: str) -> dict[tuple[str, ...], float]:
    stacks: dict[tuple[str, ...], float] = {}
    for target in run.targets:
        for stack, seconds in run_cost.read_profile(folder / target / suite).items():
            stacks[_names(stack)] = stacks.get(_names(stack), 0.0) + seconds
    return stacks


def _names(stack: str) -> tuple[str, ...]:
    return tuple(stack.split(PROFILE_SEPARATOR))


def flame_graph(folder: Path, run: RunRecord) -> str:
    """The picture of `tree`."""
    title = f"processor seconds of a run of {run.server} on {', '.join(run.targets)}"
    return icicle.svg(tree(folder, run), title=title, unit="s")


FORMAT = ReportFormat(name="processor-time", render=lambda folder, _: render(folder, run_folder.read_run(folder)))
FLAME_GRAPH = ReportFormat(
    name="flame-graph", render=lambda folder, _: flame_graph(folder, run_folder.read_run(folder))
)
