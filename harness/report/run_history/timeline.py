"""Orders judged runs: by revision and configuration, with verdicts by target, and each finding from first to last.

A revision is a release, a package, or a commit. A tree with uncommitted changes, or outside a checkout, has none that
another run could share, so that each of its runs stands alone. Nothing here reads a file.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec

from harness.core.finding import Verdict
from harness.record.program_launch import SUITE as PROGRAM
from harness.record.run_record import CHANGES
from harness.report.history import configuration_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.report.history import Judged, JudgedFinding, JudgedRun

SHOWN_DIGITS = 12
"""How many digits of a commit are shown."""


class TargetCell(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one revision's runs for one target."""

    verdict: Verdict
    """The worst."""
    differing: str
    """`FAIL in 1 of 3 runs`, if the runs disagree; else empty."""
    findings: int
    """The number of distinct findings."""
    seconds: float
    """How long its cells took in the latest run."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A revision in one configuration."""

    label: str
    configuration: str
    runs: list[JudgedRun]
    """The oldest first."""
    cells: dict[str, TargetCell]
    """Target -> the results of the runs for it."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """A finding from its first run to its last."""

    finding: JudgedFinding
    """The version of the last run that saw it."""
    series: str
    """The server, without its revision."""
    targets: list[str]
    first: JudgedRun
    last: JudgedRun
    seen: int
    looked: int
    """The number of runs that looked: a cell that once showed it had a verdict, in the same configuration."""
    is_gone: bool
    """Whether the newest run that looked did not see it."""
    is_flaky: bool
    """Whether runs of one revision disagree."""
    has_returned: bool
    """Whether it was gone and has returned."""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the site shows of the runs."""

    targets: list[str]
    rows: list[Row]
    """The latest first."""
    traces: list[Trace]
    """Findings that are still present first, then the latest ones."""


def timeline(runs: Iterable[JudgedRun]) -> Timeline:
    """The runs in order."""
    ordered = sorted(runs, key=lambda one: (one.seconds, one.folder.name))
    targets = sorted({cell.target for run in ordered for cell in run.judged.cells})
    groups: dict[tuple[str, ...], list[JudgedRun]] = {}
    for run in ordered:
        groups.setdefault(_revision_key(run), []).append(run)
    rows = [
        Row(
            label=label_of(mine[0]),
            configuration=configuration_of(mine[0].judged),
            runs=mine,
            cells={target: cell for target in targets if (cell := _cell(mine, target)) is not None},
        )
        for mine in groups.values()
    ]
    rows.sort(key=lambda row: row.runs[-1].seconds, reverse=True)
    traces = _traces(ordered)
    traces.sort(key=lambda one: (one.is_gone, bool(one.finding.known), -one.last.seconds, one.finding.id))
    return Timeline(targets=targets, rows=rows, traces=traces)


def label_of(run: JudgedRun) -> str:
    """The server and its revision, for people: `redis-7.0.15`, `my-redis 0123456789ab`."""
    judged = run.judged
    commit, changes, _ = judged.revision.partition(CHANGES)
    return " ".join(filter(None, [_server_name(judged), commit[:SHOWN_DIGITS] + (f" {changes}" if changes else "")]))


def _series(run: JudgedRun) -> str:
    """The server's name without its revision. Releases of one family form one series."""
    return re.sub(r"-\d[\w.]*$", "", _server_name(run.judged))


def _server_name(judged: Judged) -> str:
    """A tree's name without its folder, in which machines differ."""
    return PurePath(judged.server).name if judged.server.startswith("/") else judged.server


def _revision_key(run: JudgedRun) -> tuple[str, ...]:
    """The same for runs of the same revision in the same configuration."""
    judged = run.judged
    is_tree = judged.server.startswith("/") or any(cell.suite == PROGRAM for cell in judged.cells)
    has_revision = bool(judged.revision) and not judged.revision.endswith(CHANGES)
    alone = str(run.folder) if is_tree and not has_revision else ""
    return (_server_name(judged), judged.revision, configuration_of(judged), alone)


def _cell(runs: Sequence[JudgedRun], target: str) -> TargetCell | None:
    """The results of one revision's runs for a target; None if none of them includes it."""
    mine = [(run, cells) for run in runs if (cells := [cell for cell in run.judged.cells if cell.target == target])]
    if not mine:
        return None
    verdicts = [Verdict.merge([cell.verdict for cell in cells]) for _, cells in mine]
    worst = Verdict.merge(verdicts)
    number = verdicts.count(worst)
    return TargetCell(
        verdict=worst,
        differing=f"{worst} in {number} of {len(verdicts)} runs" if number < len(verdicts) else "",
        findings=len({one.id for run, _ in mine for one in run.judged.findings if target in one.targets}),
        seconds=sum(cell.seconds for cell in mine[-1][1]),
    )


def _traces(ordered: Sequence[JudgedRun]) -> list[Trace]:
    """Every finding of every series. `ordered`: the oldest first."""
    sightings: dict[tuple[str, str], list[tuple[JudgedRun, JudgedFinding]]] = {}
    for run in ordered:
        for finding in run.judged.findings:
            sightings.setdefault((_series(run), finding.id), []).append((run, finding))
    return [_trace(series, seen, ordered) for (series, _), seen in sightings.items()]


def _trace(series: str, seen: Sequence[tuple[JudgedRun, JudgedFinding]], ordered: Sequence[JudgedRun]) -> Trace:
    cells = {(one.target, one.suite) for _, finding in seen for one in finding.witnesses}
    configurations = {configuration_of(run.judged) for run, _ in seen}
    showing = {run.folder for run, _ in seen}
    looked = [
        run
        for run in ordered
        if run.folder in showing
        or (_series(run) == series and configuration_of(run.judged) in configurations and run.judged.has_looked(cells))
    ]
    saw = [run.folder in showing for run in looked]
    by_revision: dict[tuple[str, ...], set[bool]] = {}
    for run, is_seen in zip(looked, saw, strict=True):
        by_revision.setdefault(_revision_key(run), set()).add(is_seen)
    first, last = saw.index(True), len(saw) - 1 - saw[::-1].index(True)
    return Trace(
        finding=seen[-1][1],
        series=series,
        targets=sorted({target for _, finding in seen for target in finding.targets}),
        first=looked[first],
        last=looked[last],
        seen=sum(saw),
        looked=len(looked),
        is_gone=not saw[-1],
        is_flaky=any(len(answers) > 1 for answers in by_revision.values()),
        has_returned=not all(saw[first : last + 1]),
    )
