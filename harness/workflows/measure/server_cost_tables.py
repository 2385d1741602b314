"""Markdown of what servers cost: a table of their figures, one of figures with a kernel's share, one of differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.markdown_table import table
from harness.workflows.measure.server_cost import PERCENTILES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.workflows.measure.server_cost import CostDifference, Measurement, ServerCost


def summary(measurement: Measurement) -> list[str]:
    """Markdown: a table of figures for each server, what has none, and the comparison."""
    lines: list[str] = []
    for name in dict.fromkeys(filter(None, (measurement.server, measurement.against))):
        mine = [cost for cost in measurement.costs if cost.server == name]
        if mine:
            lines += [f"{name} -{measurement.optimisation} {measurement.allocator}", "", *_figures(mine), ""]
    if measurement.kernel_costs:
        on_kernels = [
            (one.server, one.workload, one.target, _number(one.instructions.value), f"{one.instructions.spread:.2%}")
            for one in measurement.kernel_costs
        ]
        headings = ["server", "workload", "target", "instructions with the kernel's", "spread"]
        lines += [*table(headings, on_kernels, numbers_from=3), ""]
    lines += [
        f"no figure: {one.workload} on {one.target}, {one.server}: {one.reason}" for one in measurement.no_figures
    ]
    if measurement.differences:
        shown = [one for one in measurement.differences if one.figure == "instructions" or one.verdict != "same"]
        headings = [
            "workload",
            "target",
            "figure",
            measurement.against,
            measurement.server,
            "change",
            "noise",
            "verdict",
        ]
        rows = [
            [one.workload, one.target, one.figure, _number(one.against), _number(one.value), *_change(one)]
            for one in shown
        ]
        lines += ["", *table(headings, rows, numbers_from=3), ""]
        for one in shown:
            parts = ", ".join(f"{name} {moved:+,.0f}" for name, moved in one.functions.items())
            lines += [f"{one.workload} on {one.target}: {parts} instructions a request"] if parts else []
    return lines


def _figures(costs: Sequence[ServerCost]) -> list[str]:
    headings = ["workload", "target", "instructions", "spread", "p50", "p95", "p99", "others", "calls", "mallocs"]
    headings += ["writes", "bytes", "syncs", "growth", "used KiB", "RSS KiB", "own KiB"]
    rows = []
    for cost in costs:
        row = [cost.workload, cost.target, _number(cost.instructions.value), f"{cost.instructions.spread:.2%}"]
        row += [_number(cost.percentiles[f"p{number}"]) if cost.percentiles else "" for number in PERCENTILES]
        each = (
            cost.other_instructions,
            cost.kernel_calls,
            cost.allocations,
            cost.file_writes,
            cost.written_bytes,
            cost.syncs,
            cost.growth_bytes,
        )
        row += [_number(one.value) for one in each]
        row += [_number(one.value / 1024) for one in (cost.used_memory, cost.resident_bytes, cost.own_bytes)]
        rows.append(row)
    lines = table(headings, rows, numbers_from=2)
    saving = [cost for cost in costs if cost.child_instructions.value]
    if saving:
        cells = [
            [cost.workload, cost.target, _number(cost.child_instructions.value)]
            + [_number(one.value / 1024) for one in (cost.child_written_bytes, cost.copied_bytes)]
            for cost in saving
        ]
        lines += ["", *table(["workload", "target", "child", "written KiB", "copied KiB"], cells, numbers_from=2)]
    return lines


def _change(one: CostDifference) -> list[str]:
    return [f"{one.change:+.1%}", f"{one.noise:.1%}", one.verdict]


def _number(value: float) -> str:
    """Three digits are enough: 9,620 · 12.3 · 1.25 · 0."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
