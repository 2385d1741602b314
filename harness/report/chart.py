"""Computes the bars that the page draws. Each bar is a table row, so a screen reader can read the figures.

The page's template draws plain SVG without a plotting library. The bars follow the page's light or dark colours, keep
their text readable on a phone and cost almost nothing. matplotlib would add 60 MB of dependencies and a second at
start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.report.misaligned_sites import FATES, sites, targets_of

if TYPE_CHECKING:
    from harness.judge.findings import Judgement


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A coloured part of a bar, in percent of the chart's width."""

    style: str
    start: float
    width: float
    description: str


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a chart."""

    label: str
    value: str
    segments: list[Segment]


def _bars(rows: list[tuple[str, list[tuple[str, float, str]], str]]) -> list[Bar]:
    """Bars for rows of (label, parts of (style, size, description), total as text), scaled to the largest row."""
    largest = max((sum(size for _, size, _ in parts) for _, parts, _ in rows), default=0) or 1
    bars = []
    for label, parts, value in rows:
        segments: list[Segment] = []
        start = 0.0
        for style, size, description in parts:
            width = 100 * size / largest
            segments.append(Segment(style=style, start=round(start, 2), width=round(width, 2), description=description))
            start += width
        bars.append(Bar(label=label, value=value, segments=segments))
    return bars


def stages(judgement: Judgement) -> list[Bar]:
    """Seconds of each stage of the run, in order."""
    return _bars([(name, [("plain", seconds, name)], _seconds(seconds)) for name, seconds in judgement.stages.items()])


def cells(judgement: Judgement) -> list[Bar]:
    """Seconds of each target's cells: one part per suite, the canary's first."""
    by_target: dict[str, list[tuple[str, float, str]]] = {}
    suites = list(dict.fromkeys(cell.suite for cell in judgement.cells))
    for cell in judgement.cells:
        style = f"suite-{suites.index(cell.suite) % 8}"
        by_target.setdefault(cell.target, []).append((style, cell.seconds, f"{cell.suite} {_seconds(cell.seconds)}"))
    return _bars([(target, parts, _seconds(sum(size for _, size, _ in parts))) for target, parts in by_target.items()])


def misaligned_sites(judgement: Judgement) -> list[Bar]:
    """Source lines with misaligned accesses, by target and by their worst fate there."""
    listed = sites(judgement.findings)
    rows = []
    for target in targets_of(listed):
        here = [site for site in listed if site.fates_on(target)]
        worst = [min(site.fates_on(target), key=list(FATES).index) for site in here]
        parts = [
            (f"fate-{fate}", float(worst.count(fate)), f"{worst.count(fate)} {fate}") for fate in FATES if fate in worst
        ]
        rows.append((target, parts, " · ".join([str(len(here)), *(description for _, _, description in parts)])))
    return _bars(rows)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds) // 60} min {int(seconds) % 60} s"
