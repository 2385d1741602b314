"""Figures of servers on emulated boards: `python -m tools.boards FILE...` stores what `plumb measure --json` wrote.

The stored figures (measurements/boards.json) have no functions. `python -m
tools.generated` makes the tables and the charts of docs/BOARDS.md from them.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from harness.core import json_codec
from harness.core.model import Record
from harness.core.strict_toml import ROOT
from harness.core.target_model import DEFAULT_FAMILY, ORACLE
from harness.report.line_chart import line_chart
from harness.report.markdown_table import table
from harness.workflows.measure.cost_document import Figure, KernelCost, Measurement, NoFigure, ServerCost

if TYPE_CHECKING:
    from collections.abc import Sequence

STORED = ROOT / "measurements" / "boards.json"
RELEASES = ["redis-2.8.17", "redis-3.2.6", "redis-5.0.6", "redis-6.2.14", "redis-7.0.15", "redis-8.0.6", "valkey-9.1.2"]
TARGETS = ["armv5", "armv6", "aarch64", "sparc64", ORACLE]
SHOWN_AS = {ORACLE: "x86-64"}
"""Target -> its name for readers who do not know Plumbline's targets: the host's is x86-64."""
KERNEL_TARGETS = ["armv5-kernel", "aarch64-kernel"]
DASH = "–"

AnyCost = TypeVar("AnyCost", ServerCost, KernelCost)
AnyFigure = TypeVar("AnyFigure", ServerCost, KernelCost, NoFigure)


class StoredCosts(Record, frozen=True):
    """measurements/boards.json."""

    costs: list[ServerCost]
    kernel_costs: list[KernelCost]
    no_figures: list[NoFigure]


class PublishedRatio(NamedTuple):
    """A ratio of a document, and the workloads whose ratio should have the same shape."""

    question: str
    published: str
    server: str
    targets: tuple[str, ...]
    slower: str
    faster: str


PI = ("redis-5.0.6", ("armv6", "aarch64"))
PI_5 = ("redis-7.0.15", ("aarch64",))
RATIOS = [
    PublishedRatio(
        "Pi: pipelines of 8 against none", "× 2.9 (Pi 3), × 3.9 (Pi 1)", *PI, "pi-1-plain", "pi-2-pipelined"
    ),
    PublishedRatio("Pi: no AOF against everysec", "× 1.22, × 1.21", *PI, "pi-3-aof", "pi-1-plain"),
    PublishedRatio("Pi: no AOF against a rewrite", "× 1.33, × 2.2", *PI, "pi-4-aof-rewrite", "pi-1-plain"),
    PublishedRatio("Pi: AOF against AOF and a rewrite", "× 1.10, × 1.82", *PI, "pi-4-aof-rewrite", "pi-3-aof"),
    PublishedRatio("Pi: SET against GET", "similar", *PI, "pi-1-plain", "pi-get"),
    PublishedRatio("Pi: INCR against SET", "similar", *PI, "pi-incr", "pi-1-plain"),
    PublishedRatio("Pi: HSET against SET", "similar", *PI, "pi-hset", "pi-1-plain"),
    PublishedRatio("Pi: SADD, SREM against SET", "similar", *PI, "pi-sadd", "pi-1-plain"),
    PublishedRatio("Pi: ZADD against SET", "slightly slower", *PI, "pi-zadd", "pi-1-plain"),
    PublishedRatio("Pi 5: 64 bytes against 512", "× 1.9 (x86 × 1.8)", *PI_5, "pi5-set-512", "pi5-set-64"),
    PublishedRatio("Pi 5: no AOF against everysec", "× 1.18 to 1.31", *PI_5, "pi5-set-64-everysec", "pi5-set-64"),
    PublishedRatio("Pi 5: the same with 512 bytes", "× 1.25", *PI_5, "pi5-set-512-everysec", "pi5-set-512"),
    PublishedRatio("Pi 5: no AOF against always", "× 3.4", *PI_5, "pi5-set-64-always", "pi5-set-64"),
    PublishedRatio("Redis 2.2: batches of 1,000 against 1", "nearly flat", *PI_5, "r22-batch-1", "r22-batch-1000"),
    PublishedRatio(
        "Redis 2.2: 1,000 connections against 1", "rises", *PI_5, "r22-connections-1", "r22-connections-1000"
    ),
    PublishedRatio("Redis 2.2: fsync always against none", "about × 3", *PI_5, "r22-fsync-always", "r22-batch-1"),
    PublishedRatio("Redis 2.2: fsync everysec against none", "nearly × 1", *PI_5, "r22-fsync-everysec", "r22-batch-1"),
]


@cache
def stored() -> StoredCosts:
    """The stored figures."""
    return json_codec.decode(STORED.read_bytes(), StoredCosts)


def _shown(target: str) -> str:
    return SHOWN_AS.get(target, target)


def _by_place(figures: Sequence[AnyFigure]) -> dict[tuple[str, str, str], AnyFigure]:
    """Server, target and workload -> what there is of them; of one figure the last counts."""
    return {(one.server, one.target, one.workload): one for one in figures}


def _cost(costs: Sequence[AnyCost], server: str, target: str, workload: str) -> AnyCost | None:
    return _by_place(costs).get((server, target, workload))


def _ratios(costs: Sequence[AnyCost], ratio: PublishedRatio, targets: Sequence[str]) -> str:
    """Our ratio on each target that has both figures, sent by one program."""
    found = []
    for target in targets:
        slower, faster = (_cost(costs, ratio.server, target, name) for name in (ratio.slower, ratio.faster))
        if slower and faster and getattr(slower, "sent_by", "") == getattr(faster, "sent_by", ""):
            found.append(f"× {slower.instructions.value / faster.instructions.value:.2f} ({target})")
    return ", ".join(found) or DASH


def ratio_rows() -> list[str]:
    """The table of published ratios beside ours."""
    rows = [
        (
            one.question,
            one.published,
            _ratios(stored().costs, one, one.targets),
            _ratios(stored().kernel_costs, one, KERNEL_TARGETS),
            f"`{one.slower}` / `{one.faster}`",
            one.server,
        )
        for one in RATIOS
    ]
    return table(
        ["ratio", "published throughput", "our instructions", "with the kernel's", "workloads", "release"], rows
    )


def cost_rows(server: str, targets: Sequence[str], *patterns: str) -> list[str]:
    """The figures of a server on some targets in the workloads whose names begin so."""
    rows = [
        (
            f"`{one.workload}`",
            _shown(one.target),
            f"{one.instructions.value:,.0f}",
            *(f"{one.percentiles[name]:,.0f}" if one.percentiles else "" for name in ("p50", "p95", "p99")),
            f"{one.kernel_calls.value:.1f}",
            f"{one.allocations.value:.1f}",
            f"{one.written_bytes.value:,.0f}",
            f"{one.syncs.value:.2f}",
            f"{round(one.growth_bytes.value):,}",
            f"{one.child_instructions.value / 1e6:,.1f}" if one.child_instructions.value else DASH,
            f"{one.copied_bytes.value / 1024:,.0f}" if one.child_instructions.value else DASH,
        )
        for one in stored().costs
        if one.server == server and one.target in targets and one.workload.startswith(patterns)
    ]
    headings = [
        "workload",
        "target",
        "instructions",
        "p50",
        "p95",
        "p99",
        "calls",
        "mallocs",
        "bytes",
        "syncs",
        "growth",
    ]
    headings += ["child, millions", "copied KiB"]
    return table(headings, rows, numbers_from=2)


def kernel_rows() -> list[str]:
    """Requests on real kernels beside the same on the user tier: what the kernel adds."""
    rows = []
    for one in stored().kernel_costs:
        alone = _cost(stored().costs, one.server, one.target.removesuffix("-kernel"), one.workload)
        whole, own = one.instructions.value, alone.instructions.value if alone else 0.0
        share = (f"{own:,.0f}", f"{whole - own:,.0f}", f"{1 - own / whole:.0%}") if alone else (DASH, DASH, DASH)
        rows.append((one.server, f"`{one.workload}`", one.target, f"{whole:,.0f}", *share))
    headings = ["release", "workload", "target", "with the kernel's", "the server's own", "the kernel's", "share"]
    return table(headings, rows, numbers_from=3)


def kernel_state_rows() -> list[str]:
    """What else real kernels show of a server: latencies in thousands of instructions, memory, and its child."""
    rows = []
    for one in stored().kernel_costs:
        if one.resident_bytes is None:
            continue
        found = [one.latencies.get(name) for name in ("p50", "p95", "p99")]
        latencies = [f"{latency / 1e3:,.0f}" if latency else DASH for latency in found]
        memory = (one.used_memory, one.resident_bytes, one.proportional_bytes, one.own_bytes)
        child = f"{one.child_instructions.value / 1e6:,.1f}" if one.child_instructions else DASH
        cells = (*latencies, *map(_kib, memory), child, _kib(one.copied_bytes))
        rows.append((one.server, f"`{one.workload}`", one.target, one.sent_by, *cells))
    headings = ["release", "workload", "target", "sent by", "p50", "p95", "p99", "used, KiB", "RSS", "PSS", "own"]
    return table([*headings, "child, millions", "copied, KiB"], rows, numbers_from=4)


def _kib(one: Figure | None) -> str:
    return f"{one.value / 1024:,.0f}" if one else DASH


def footprint_rows() -> list[str]:
    """Bytes of what an instance holds, by release and target."""
    units = ["key", "hash-field", "list-element", "set-member", "zset-member", "stream-entry", "connection"]
    rows = []
    for server, target in sorted({(one.server, one.target) for one in stored().costs}):
        found = [_cost(stored().costs, server, target, f"footprint-{unit}") for unit in units]
        empty = _cost(stored().costs, server, target, "footprint-empty")
        if sum(one is not None for one in found) > 1:
            cells = [f"{one.growth_bytes.value:,.0f}" if one else DASH for one in found]
            rows.append((server, _shown(target), f"{empty.own_bytes.value / 1024:,.0f}" if empty else DASH, *cells))
    headings = ["release", "target", "empty, KiB", *(unit.replace("-", " ") for unit in units)]
    return table(headings, rows, numbers_from=2)


def release_rows() -> list[str]:
    """Instructions of SET and GET, and memory, by release and target."""
    rows = []
    for server in RELEASES:
        for target in TARGETS:
            found = [_cost(stored().costs, server, target, name) for name in ("pi-1-plain", "pi-2-pipelined", "pi-get")]
            if not any(found):
                continue
            empty, key = (_cost(stored().costs, server, target, f"footprint-{name}") for name in ("empty", "key"))
            cells = [f"{one.instructions.value:,.0f}" if one else DASH for one in found]
            cells.append(f"{empty.own_bytes.value / 1024:,.0f}" if empty else DASH)
            cells.append(f"{key.growth_bytes.value:,.0f}" if key else DASH)
            rows.append((server, _shown(target), *cells))
    headings = ["release", "target", "SET", "SET, pipelined", "GET", "empty, KiB", "a key, bytes"]
    return table(headings, rows, numbers_from=2)


def missing_rows() -> list[str]:
    """The missing figures, and the reasons."""
    found = {(one.server, one.target, one.reason.partition(": ")[2] or one.reason) for one in stored().no_figures}
    return [f"- {server} on {_shown(target)}: {reason}" for server, target, reason in sorted(found)] or ["Nothing."]


def release_chart(title: str, workload: str, figure: str, unit: float) -> str:
    """The chart of one figure of a workload, releases from left to right."""
    lines = {}
    for target in TARGETS:
        found = [_cost(stored().costs, server, target, workload) for server in RELEASES]
        lines[_shown(target)] = [getattr(one, figure).value / unit if one else None for one in found]
    return line_chart(title, RELEASES, lines)


def set_chart() -> str:
    """docs/boards-set.svg."""
    return release_chart("Instructions of a SET without pipelining", "pi-1-plain", "instructions", 1)


def memory_chart() -> str:
    """docs/boards-key.svg."""
    return release_chart("Bytes of used_memory for a key with a value of 8 bytes", "footprint-key", "growth_bytes", 1)


def main() -> None:
    """Store the figures of these files beside those that are stored; of one figure the last counts."""
    costs = _by_place(stored().costs)
    missing = _by_place(stored().no_figures)
    kernels = _by_place(stored().kernel_costs)
    for path in map(Path, sys.argv[1:]):
        measured = json_codec.decode(path.read_bytes(), Measurement)
        others = (measured.allocator, "libc"), (measured.toolchain, DEFAULT_FAMILY)
        suffix = "".join(f" {chosen}" for chosen, default in others if chosen != default)
        for cost in measured.costs:
            key = (cost.server + suffix, cost.target, cost.workload)
            costs[key] = msgspec.structs.replace(cost, server=key[0], functions={})
            missing.pop(key, None)
        for on_kernel in measured.kernel_costs:
            key = (on_kernel.server + suffix, on_kernel.target, on_kernel.workload)
            kernels[key] = msgspec.structs.replace(on_kernel, server=key[0])
            missing.pop(key, None)
        for one in measured.no_figures:
            if one.inapplicable:
                continue
            key = (one.server + suffix, one.target, one.workload)
            if key not in costs and key not in kernels:
                missing[key] = msgspec.structs.replace(one, server=key[0])
    found = StoredCosts(
        costs=[costs[key] for key in sorted(costs)],
        kernel_costs=[kernels[key] for key in sorted(kernels)],
        no_figures=[missing[key] for key in sorted(missing)],
    )
    STORED.write_bytes(json_codec.pretty(found))


if __name__ == "__main__":
    main()
