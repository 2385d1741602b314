"""The document of `plumb measure`: what servers cost in workloads, and how two servers differ. It contains only data
types.

A figure is the median of its rounds, each with its own server. Its spread is the difference between the largest and the
smallest round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from harness.core import json_codec
from harness.core.errors import InconclusiveError
from harness.core.model import Record
from harness.core.target_model import DEFAULT_FAMILY

if TYPE_CHECKING:
    from collections.abc import Sequence

PERCENTILES = (50, 95, 99)
"""The percentiles of instructions and latencies in every document."""


class Figure(Record, frozen=True):
    """A number with its spread."""

    value: float
    """The median of the rounds."""
    least: float
    most: float

    @property
    def spread(self) -> float:
        """The difference between the largest and the smallest round, as a share of the median; 0 for a median of 0."""
        return (self.most - self.least) / abs(self.value) if self.value else 0.0


class ServerCost(Record, frozen=True):
    """What one server costs on one target in one workload. Figures are for one request unless the field says
    otherwise.
    """

    server: str
    target: str
    workload: str
    build: str
    """Identity of the binary."""
    rounds: int
    instructions: Figure
    """Instructions of the server's first thread, which serves requests; without the kernel's."""
    percentiles: dict[str, float]
    """`p50`, `p95` and `p99` of the instructions of single requests, all rounds together; empty if several requests
    share a wake-up.
    """
    other_instructions: Figure
    """Instructions of the server's other threads."""
    child_instructions: Figure
    """Instructions of the child that saves, in all; 0 without a child."""
    child_written_bytes: Figure
    """Bytes that the child that saves wrote, in all."""
    copied_bytes: Figure
    """Bytes that the kernel copied because the server or the child wrote to them while both lived; whole."""
    kernel_calls: Figure
    allocations: Figure
    """Calls of malloc, calloc, realloc and the like by the first thread."""
    file_writes: Figure
    """Calls that write to a file."""
    written_bytes: Figure
    syncs: Figure
    """fsync and the like by the first thread."""
    growth_bytes: Figure
    """Growth of INFO's used_memory; bytes."""
    used_memory: Figure
    """INFO's used_memory after the last request; bytes."""
    resident_bytes: Figure
    """The guest's pages in memory after the last request; bytes."""
    own_bytes: Figure
    """Those of them that the server has written to, and therefore shares with no other process."""
    functions: dict[str, float]
    """Function -> instructions of the first thread for a request: the median of the rounds."""


class NoFigure(Record, frozen=True):
    """Why a server has no figures on a target in a workload."""

    server: str
    target: str
    workload: str
    reason: str
    inapplicable: bool = False
    """Whether the reason is no fault: the release lacks a command, or the tier cannot send the workload."""


class KernelCost(Record, frozen=True):
    """What a server costs on a real kernel. Figures other than `instructions` are None if they were not counted."""

    server: str
    target: str
    workload: str
    instructions: Figure
    """Instructions of all the server's threads for one request, including the kernel's."""
    latencies: dict[str, float] = msgspec.field(default_factory=dict)
    """`p50`, `p95` and `p99` of the machine's instructions between a request and its reply, as redis-benchmark reports
    them. They include its own instructions, and those for the connections that were served earlier. A percentile that
    does not repeat is missing; empty if another program sends.
    """
    sent_by: str = ""
    """The program inside the machine: `benchmark` or `cli`, of the release itself. A server distinguishes them, so only
    figures of the same program are comparable.
    """
    child_instructions: Figure | None = None
    """Instructions of the child that saves, in all, including the kernel's."""
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


CostVerdict = Literal["same", "cheaper", "dearer", "beyond the limit"]
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
    verdict: CostVerdict
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


def part_in(document: str, job: str, target: str, workload: str) -> Measurement:
    """The part of a measurement that a worker's document holds. `job`: the name of its job.

    Raises InconclusiveError for a document about anything else.
    """
    because = "it is about another target, workload or server"
    try:
        part = json_codec.decode(document.encode(), Measurement)
        rows = [*_rows(part), *part.differences]
        servers = {*part.servers, part.against}
        if all((row.target, row.workload) == (target, workload) for row in rows) and all(
            row.server in servers for row in _rows(part)
        ):
            return part
    except msgspec.DecodeError as error:
        because = str(error)
    raise InconclusiveError("a worker's document is not that of its job", where=job, because=because)


def join(parts: Sequence[Measurement], *, limit: float) -> Measurement:
    """Join the parts of a measurement, each of one target and some workloads.

    The rows are in the order in which one machine would measure them: by target, server and workload. Raises
    InconclusiveError for parts of different servers.
    """
    first = parts[0]
    servers = [*first.servers, first.against]
    if other := next((part for part in parts if [*part.servers, part.against] != servers), None):
        because = f"{' and '.join(other.servers)} instead of {' and '.join(first.servers)}"
        raise InconclusiveError("the parts of a measurement are of different servers", because=because)
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
