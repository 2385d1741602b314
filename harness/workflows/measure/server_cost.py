"""What a server costs in a workload: the figures of several rounds, and the comparison of two servers. Pure;
harness.workflows.measure.server_cost_run measures them.

A figure is the median of its rounds, each with its own server. Its spread is the difference between the largest and the
smallest round. A count whose spread is larger than its workload allows is not a figure.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from harness.core.errors import ExitCode, InconclusiveError, PlumblineError
from harness.core.model import Record
from harness.core.target_model import DEFAULT_FAMILY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.analysis.code_profile import CodeProfile
    from harness.plan.workloads import BenchWorkload
    from harness.run.counted_load import RoundCounts

PERCENTILES = (50, 95, 99)
STEADY_BYTES = 1.0
"""Growth of used_memory for each request below which it counts as steady: clients' buffers move a little."""
LATENCY_SPREAD = 0.1
"""The largest difference between rounds, as a share of the median, at which a percentile of latency is a figure."""
KERNEL_SPREAD = 0.02
"""The addition of a kernel's interrupts to the spread that a workload allows."""
LEAST_CHANGE = 0.005
"""The minimal share by which two servers differ: smaller differences come and go with the state of their heaps."""
NAMED_FUNCTIONS = 5
"""How many functions a comparison names."""
LEAST_FUNCTION_SHARE = 0.05
"""The minimal part of a difference for which a function is named."""


class Figure(Record, frozen=True):
    """A number with its spread."""

    value: float
    """The median of the rounds."""
    least: float
    most: float

    @property
    def spread(self) -> float:
        """The difference between the largest and the smallest round, as a share of the median; 0 for nothing."""
        return (self.most - self.least) / abs(self.value) if self.value else 0.0


class ServerCost(Record, frozen=True):
    """What one server costs on one target in one workload. Figures are for one request, if nothing else is said."""

    server: str
    target: str
    workload: str
    build: str
    """Identity of the binary."""
    rounds: int
    instructions: Figure
    """Of the server's first thread, which serves requests; without the kernel's."""
    percentiles: dict[str, float]
    """`p50`, `p95` and `p99` of the instructions of single requests, all rounds together; empty if several requests
    share a wake-up.
    """
    other_instructions: Figure
    """Of the server's other threads."""
    child_instructions: Figure
    """Of the child that saves, whole; 0 without one."""
    child_written_bytes: Figure
    """Whole."""
    copied_bytes: Figure
    """Bytes that the kernel copied because the server or the child wrote to them while both lived; whole."""
    kernel_calls: Figure
    allocations: Figure
    """Calls of malloc and its kin by the first thread."""
    file_writes: Figure
    """Calls that write to a file."""
    written_bytes: Figure
    syncs: Figure
    """fsync and the like by the first thread."""
    growth_bytes: Figure
    """Of used_memory."""
    used_memory: Figure
    """INFO's used_memory after the last request; bytes."""
    resident_bytes: Figure
    """The guest's pages in memory after the last request; bytes."""
    own_bytes: Figure
    """Those of them that the server has written to, and therefore shares with no other process."""
    functions: dict[str, float]
    """Function -> instructions of a request, of the first thread, in the median of the rounds."""


class NoFigure(Record, frozen=True):
    """Why a server has no figures on a target in a workload."""

    server: str
    target: str
    workload: str
    reason: str
    inapplicable: bool = False
    """Whether the release simply lacks a command, or the tier a way to send the workload, which is not a fault."""


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


class KernelCost(Record, frozen=True):
    """What a server costs on a real kernel. Figures other than `instructions` are None if they were not counted."""

    server: str
    target: str
    workload: str
    instructions: Figure
    """Of all the server's threads for one request, with the kernel's for them."""
    latencies: dict[str, float] = msgspec.field(default_factory=dict)
    """`p50`, `p95` and `p99` of the machine's instructions between a request and its reply, as redis-benchmark tells
    them: with its own instructions, and those for all connections before. Without those that do not repeat; empty if
    another program sends.
    """
    sent_by: str = ""
    """The program inside the machine: `benchmark` or `cli`, of the release itself. A server distinguishes them, so only
    figures of the same program are comparable.
    """
    child_instructions: Figure | None = None
    """Of the child that saves, whole, with the kernel's."""
    copied_bytes: Figure | None = None
    """Bytes that the kernel copied because the server or the child wrote to them, as the server found out; whole."""
    used_memory: Figure | None = None
    """INFO's used_memory after the last request; bytes."""
    resident_bytes: Figure | None = None
    """The server's pages in memory after the last request (RSS); bytes."""
    proportional_bytes: Figure | None = None
    """The same, but each page divided by the number of processes that share it (PSS)."""
    own_bytes: Figure | None = None
    """Those of them that the server has written to, and shares with no process."""


AnyCost = TypeVar("AnyCost", ServerCost, KernelCost)


class CostDifference(Record, frozen=True):
    """One figure of two servers."""

    target: str
    workload: str
    figure: str
    value: float
    against: float
    change: float
    """The share by which `value` is larger than `against`; negative: smaller."""
    noise: float
    """The largest spread of the two."""
    verdict: Literal["same", "cheaper", "dearer", "beyond the limit"]
    functions: dict[str, float]
    """Function -> instructions of a request by which it takes more (less: negative), the largest parts of a difference
    in instructions first."""


class Measurement(Record, frozen=True):
    """The document of `plumb measure --json`."""

    servers: list[str]
    """In the requested order. With `against` there is only one."""
    against: str
    """The server compared with; empty without one."""
    optimisation: str
    allocator: str
    limit: float
    """The maximum share by which a figure may exceed the other."""
    costs: list[ServerCost]
    kernel_costs: list[KernelCost]
    no_figures: list[NoFigure]
    differences: list[CostDifference]
    toolchain: str = DEFAULT_FAMILY
    """The family of toolchains; the default: those that the targets name."""


def join(parts: Sequence[Measurement], *, limit: float) -> Measurement:
    """The measurement whose parts others made, each of one target and some workloads, in the order of the parts.

    Its rows are in the order in which one machine measures them: by target, server and workload.
    """
    first = parts[0]
    servers = [*first.servers, first.against]
    targets = list(dict.fromkeys(row.target for part in parts for row in _rows(part)))
    workloads = list(dict.fromkeys(row.workload for part in parts for row in _rows(part)))

    def place(row: ServerCost | KernelCost | NoFigure) -> tuple[int, int, int]:
        return targets.index(row.target), servers.index(row.server), workloads.index(row.workload)

    compared = [line for part in parts for line in part.differences]
    return msgspec.structs.replace(
        first,
        limit=limit,
        costs=sorted((row for part in parts for row in part.costs), key=place),
        kernel_costs=sorted((row for part in parts for row in part.kernel_costs), key=place),
        no_figures=sorted((row for part in parts for row in part.no_figures), key=place),
        differences=sorted(compared, key=lambda line: (targets.index(line.target), workloads.index(line.workload))),
    )


def _rows(part: Measurement) -> list[ServerCost | KernelCost | NoFigure]:
    return [*part.costs, *part.kernel_costs, *part.no_figures]


COMPARED = ("instructions", "used_memory", "written_bytes", "syncs", "allocations")
"""The figures that the limit applies to."""


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
    """The cost that some rounds come to.

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
    where = f"{server} on {target}"
    for count, found in (("the count", cost.instructions), ("its memory", cost.used_memory)):
        _refuse_scattered(workload, found, workload.spread, count, where=where)
    if workload.steady and cost.growth_bytes.value > STEADY_BYTES:
        raise InconclusiveError(
            f"{workload.name}: memory grows where it must stay constant",
            where=where,
            because=f"{cost.growth_bytes.value:.1f} bytes of used_memory with each request",
        )
    return cost


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
    """The cost that some rounds come to. Raises InconclusiveError for a count that does not repeat."""

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
    """What stands for a cost, where an error says why there is none."""
    reason = f"{error.what}: {error.because}" if isinstance(error, PlumblineError) else str(error)
    return NoFigure(server=server, target=target, workload=workload.name, reason=reason, inapplicable=inapplicable)


def percentile(values: Sequence[int], number: int) -> float:
    """The value below or at which so many percent of sorted values lie (nearest rank)."""
    return float(values[max(0, -(-number * len(values) // 100) - 1)])


def differences(cost: AnyCost, against: AnyCost, limit: float) -> list[CostDifference]:
    """The comparison of two servers' figures, one line for each that `COMPARED` names and that both or either have."""
    found = []
    for name in COMPARED:
        one, other = getattr(cost, name, None), getattr(against, name, None)
        if one is None or other is None or not (one.value or other.value):
            continue
        change = (one.value - other.value) / other.value if other.value else float("inf")
        noise = max(one.spread, other.spread)
        apart = one.least > other.most or one.most < other.least
        verdict: Literal["same", "cheaper", "dearer", "beyond the limit"] = "same"
        if apart and abs(change) > max(noise, LEAST_CHANGE):
            dearer: Literal["dearer", "beyond the limit"] = "beyond the limit" if change > limit else "dearer"
            verdict = dearer if change > 0 else "cheaper"
        moved = name == "instructions" and verdict != "same"
        found.append(
            CostDifference(
                target=cost.target,
                workload=cost.workload,
                figure=name,
                value=one.value,
                against=other.value,
                change=change,
                noise=noise,
                verdict=verdict,
                functions=_moved_functions(cost, against) if moved else {},
            )
        )
    return found


def _moved_functions(cost: AnyCost, against: AnyCost) -> dict[str, float]:
    if not (isinstance(cost, ServerCost) and isinstance(against, ServerCost)):
        return {}  # a machine's clocks know no functions
    names = cost.functions.keys() | against.functions.keys()
    moved = {name: cost.functions.get(name, 0.0) - against.functions.get(name, 0.0) for name in sorted(names)}
    least = LEAST_FUNCTION_SHARE * abs(cost.instructions.value - against.instructions.value)
    largest = sorted(moved, key=lambda name: -abs(moved[name]))[:NAMED_FUNCTIONS]
    return {name: moved[name] for name in largest if abs(moved[name]) >= least}


def exit_code(measurement: Measurement) -> ExitCode:
    """FINDINGS if a figure exceeds the limit, INCONCLUSIVE if one is missing, else PASS."""
    if any(one.verdict == "beyond the limit" for one in measurement.differences):
        return ExitCode.FINDINGS
    if any(not one.inapplicable for one in measurement.no_figures):
        return ExitCode.INCONCLUSIVE
    return ExitCode.PASS
