"""What a server costs in a workload: the arithmetic from several rounds to figures. Pure;
harness.workflows.measure.server_cost_run and kernel_cost_run measure the rounds.

A count whose spread is larger than its workload allows is not a figure.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from harness.core.errors import InconclusiveError, PlumblineError
from harness.core.model import Record
from harness.workflows.measure.cost_document import PERCENTILES, Figure, KernelCost, NoFigure, ServerCost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.analysis.code_profile import CodeProfile
    from harness.plan.workloads import BenchWorkload
    from harness.run.counting.round_counts import RoundCounts

STEADY_BYTES = 1.0
"""Growth of used_memory for each request below which it counts as steady: clients' buffers move a little."""
LATENCY_SPREAD = 0.1
"""The largest difference between rounds, as a share of the median, at which a percentile of latency is a figure."""
KERNEL_SPREAD = 0.02
"""The addition of a kernel's interrupts to the spread that a workload allows."""


class KernelRound(Record, frozen=True):
    """What one round on a real kernel showed, on its own server. `KernelCost` describes the numbers."""

    instructions: float
    latencies: dict[str, float]
    sent_by: str
    child_instructions: float | None
    copied_bytes: int | None
    used_memory: int
    resident_bytes: int
    proportional_bytes: int
    own_bytes: int


def figure(values: Sequence[float]) -> Figure:
    """The figure of some rounds' numbers."""
    return Figure(value=statistics.median(values), least=min(values), most=max(values))


def server_cost(
    workload: BenchWorkload,
    rounds: Sequence[tuple[RoundCounts, CodeProfile]],
    *,
    server: str,
    target: str,
    build: str,
) -> ServerCost:
    """The cost according to some rounds.

    Raises InconclusiveError for a count or memory that does not repeat within the workload's spread, and for memory
    that grows where the workload says that it must not.
    """

    def whole(of: Callable[[RoundCounts], float]) -> Figure:
        return figure([of(counts) for counts, _ in rounds])

    def each(of: Callable[[RoundCounts], float]) -> Figure:
        return figure([of(counts) / counts.requests for counts, _ in rounds])

    turns = sorted(turn for counts, _ in rounds for turn in counts.turns) if workload.shown_by_request else []
    names = {name for _, profile in rounds for name in profile.instructions}
    cost = ServerCost(
        server=server,
        target=target,
        workload=workload.name,
        build=build,
        rounds=len(rounds),
        instructions=each(lambda counts: counts.instructions),
        percentiles={f"p{number}": percentile(turns, number) for number in PERCENTILES} if turns else {},
        other_instructions=each(lambda counts: counts.other_instructions),
        child_instructions=whole(lambda counts: counts.child_instructions),
        child_written_bytes=whole(lambda counts: counts.child_written_bytes),
        copied_bytes=whole(lambda counts: counts.child_private_bytes),
        kernel_calls=each(lambda counts: counts.calls),
        allocations=figure([profile.allocations / counts.requests for counts, profile in rounds]),
        file_writes=each(lambda counts: counts.writes),
        written_bytes=each(lambda counts: counts.written_bytes),
        syncs=each(lambda counts: counts.syncs),
        growth_bytes=each(lambda counts: counts.used_memory - counts.used_memory_before),
        used_memory=whole(lambda counts: counts.used_memory),
        resident_bytes=whole(lambda counts: counts.resident_bytes),
        own_bytes=whole(lambda counts: counts.own_bytes),
        functions={
            name: statistics.median(profile.instructions.get(name, 0) / counts.requests for counts, profile in rounds)
            for name in sorted(names)
        },
    )
    _refuse_unsteady(workload, cost)
    return cost


def _refuse_unsteady(workload: BenchWorkload, cost: ServerCost) -> None:
    """Raise InconclusiveError for a count or memory that does not repeat, and for memory that grows and must not."""
    where = f"{cost.server} on {cost.target}"
    for count, found in (("the count", cost.instructions), ("its memory", cost.used_memory)):
        _refuse_scattered(workload, found, workload.spread, count, where=where)
    if workload.steady and cost.growth_bytes.value > STEADY_BYTES:
        raise InconclusiveError(
            f"{workload.name}: memory grows where it must stay constant",
            where=where,
            because=f"{cost.growth_bytes.value:.1f} bytes of used_memory with each request",
        )


def _refuse_scattered(workload: BenchWorkload, found: Figure, limit: float, count: str, *, where: str) -> None:
    """Raise InconclusiveError for rounds that differ by more than a limit."""
    if found.spread > limit:
        unit = "instructions a request" if count == "the count" else "bytes of used_memory"
        raise InconclusiveError(
            f"{workload.name}: {count} does not repeat",
            where=where,
            because=f"rounds took {found.least:,.0f} to {found.most:,.0f} {unit}: {found.spread:.1%}, where its spread "
            f"is at most {limit:.1%}",
            remedy="more --rounds show how it varies",
        )


def kernel_cost(workload: BenchWorkload, rounds: Sequence[KernelRound], *, server: str, target: str) -> KernelCost:
    """The cost according to some rounds. Raises InconclusiveError for a count that does not repeat."""

    def whole(of: Callable[[KernelRound], float | None]) -> Figure | None:
        values = [value for one in rounds if (value := of(one)) is not None]
        return figure(values) if values else None

    latencies = {name: figure([one.latencies[name] for one in rounds]) for name in rounds[0].latencies}
    found = figure([one.instructions for one in rounds])
    where, limit = f"{server} on {target}", workload.spread + KERNEL_SPREAD
    _refuse_scattered(workload, found, limit, "the count", where=where)
    if (memory := whole(lambda one: one.used_memory)) is not None:
        _refuse_scattered(workload, memory, limit, "its memory", where=where)
    return KernelCost(
        server=server,
        target=target,
        workload=workload.name,
        instructions=found,
        latencies={name: one.value for name, one in latencies.items() if one.spread <= LATENCY_SPREAD},
        sent_by=rounds[0].sent_by,
        child_instructions=whole(lambda one: one.child_instructions),
        copied_bytes=whole(lambda one: one.copied_bytes),
        used_memory=memory,
        resident_bytes=whole(lambda one: one.resident_bytes),
        proportional_bytes=whole(lambda one: one.proportional_bytes),
        own_bytes=whole(lambda one: one.own_bytes),
    )


def no_figure(
    workload: BenchWorkload, error: Exception, *, server: str, target: str, inapplicable: bool = False
) -> NoFigure:
    """The entry that replaces a cost, with the reason from an error."""
    reason = f"{error.what}: {error.because}" if isinstance(error, PlumblineError) else str(error)
    return NoFigure(server=server, target=target, workload=workload.name, reason=reason, inapplicable=inapplicable)


def percentile(values: Sequence[int], number: int) -> float:
    """The value below or at which so many percent of sorted values lie (nearest rank)."""
    return float(values[max(0, -(-number * len(values) // 100) - 1)])
