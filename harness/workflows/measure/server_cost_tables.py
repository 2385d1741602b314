"""Tables of what servers cost: their figures, those with a kernel's share, and the differences between two servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from harness.core.model import level_text
from harness.core.target_model import DEFAULT_FAMILY
from harness.report.markdown_table import table
from harness.workflows.measure.cost_document import PERCENTILES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.workflows.measure.cost_document import CostDifference, Figure, KernelCost, Measurement, ServerCost


class CostTable(NamedTuple):
    """A table for every form of the document."""

    title: str
    """The heading; empty for a table that belongs to the one before it."""
    headings: list[str]
    rows: list[list[str]]
    numbers_from: int
    """The first column of numbers."""


def tables(measurement: Measurement) -> list[CostTable]:
    """The figures of each server, and those with a kernel's share."""
    found: list[CostTable] = []
    for name in filter(None, (*measurement.servers, measurement.against)):
        mine = [cost for cost in measurement.costs if cost.server == name]
        if mine:
            words = [name, level_text(measurement.optimisation), measurement.allocator]
            words += [measurement.toolchain] if measurement.toolchain != DEFAULT_FAMILY else []
            found.append(_figures(" ".join(words), mine))
        if saving := [cost for cost in mine if cost.child_instructions.value]:
            found.append(_children(saving))
    if measurement.kernel_costs:
        found.append(_on_kernels(measurement.kernel_costs))
    if saving_there := [cost for cost in measurement.kernel_costs if cost.child_instructions]:
        found.append(_children_on_kernels(saving_there))
    return found


def difference_table(measurement: Measurement) -> CostTable:
    """The server's figures beside those of the server that it was compared with: all that differ, and all
    instructions.
    """
    (server,) = measurement.servers
    headings = ["workload", "target", "figure", measurement.against, server, "change", "noise", "verdict"]
    rows = [
        [one.workload, one.target, one.figure, _number(one.against), _number(one.value), *_change(one)]
        for one in _shown(measurement)
    ]
    return CostTable("", headings, rows, 3)


def remarks(measurement: Measurement) -> list[str]:
    """Missing figures, and the reasons."""
    return [f"no figure: {one.workload} on {one.target}, {one.server}: {one.reason}" for one in measurement.no_figures]


def origins(measurement: Measurement) -> list[str]:
    """The functions that cause the differences."""
    lines = []
    for one in _shown(measurement):
        parts = ", ".join(f"{name} {moved:+,.0f}" for name, moved in one.functions.items())
        lines += [f"{one.workload} on {one.target}: {parts} instructions a request"] if parts else []
    return lines


def summary(measurement: Measurement) -> list[str]:
    """Markdown: the figures, the missing ones with reasons, and the comparison."""
    lines: list[str] = []
    for one in tables(measurement):
        lines += [*([one.title, ""] if one.title else []), *_markdown(one), ""]
    lines += remarks(measurement)
    if measurement.differences:
        lines += ["", *_markdown(difference_table(measurement)), "", *origins(measurement)]
    return lines


def _markdown(one: CostTable) -> list[str]:
    return table(one.headings, one.rows, numbers_from=one.numbers_from)


def _shown(measurement: Measurement) -> list[CostDifference]:
    return [one for one in measurement.differences if one.figure == "instructions" or one.verdict != "same"]


def _figures(title: str, costs: Sequence[ServerCost]) -> CostTable:
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
    return CostTable(title, headings, rows, 2)


def _children(costs: Sequence[ServerCost]) -> CostTable:
    rows = [
        [cost.workload, cost.target, _number(cost.child_instructions.value)]
        + [_number(one.value / 1024) for one in (cost.child_written_bytes, cost.copied_bytes)]
        for cost in costs
    ]
    return CostTable("", ["workload", "target", "child", "written KiB", "copied KiB"], rows, 2)


def _on_kernels(costs: Sequence[KernelCost]) -> CostTable:
    headings = ["server", "workload", "target", "sent by", "instructions with the kernel's", "spread"]
    headings += [*(f"p{number} latency" for number in PERCENTILES), "used KiB", "RSS KiB", "PSS KiB", "own KiB"]
    rows = [
        [one.server, one.workload, one.target, one.sent_by]
        + [_number(one.instructions.value), f"{one.instructions.spread:.2%}"]
        + [_number(latency) if (latency := one.latencies.get(f"p{number}")) else "" for number in PERCENTILES]
        + [_kib(of) for of in (one.used_memory, one.resident_bytes, one.proportional_bytes, one.own_bytes)]
        for one in costs
    ]
    return CostTable("", headings, rows, 4)


def _children_on_kernels(costs: Sequence[KernelCost]) -> CostTable:
    rows = [
        [one.server, one.workload, one.target, _number(one.child_instructions.value), _kib(one.copied_bytes)]
        for one in costs
        if one.child_instructions
    ]
    return CostTable("", ["server", "workload", "target", "child with the kernel's", "copied KiB"], rows, 3)


def _kib(one: Figure | None) -> str:
    return "" if one is None else _number(one.value / 1024)


def _change(one: CostDifference) -> list[str]:
    return [f"{one.change:+.1%}", f"{one.noise:.1%}", one.verdict]


def _number(value: float) -> str:
    """Three digits are enough: 9,620 · 12.3 · 1.25 · 0."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
