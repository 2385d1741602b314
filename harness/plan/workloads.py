"""Reads workloads: the requests of a client while `plumb measure` counts (suites/bench/*.toml).

A file is one published document. Each of its workloads is complete, and says nothing about targets or releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from harness.core.errors import UsageError
from harness.core.model import Record
from harness.core.strict_toml import at_line, line_of, read_text, read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class BenchWorkload(Record, frozen=True):
    """Requests that one measurement sends, and the state of the server meanwhile.

    In `prepare` and `commands` `{key}` stands for a key's number, `{number}` for the request's own number, `{value}`
    for `payload_bytes` bytes, and `{floats}` for as many bytes of 32-bit floating-point numbers.
    """

    name: str
    title: str
    commands: tuple[tuple[str, ...], ...]
    """The requests of a round take these commands in turn."""
    requests: int
    """Counted in one round, after `warm_up`."""
    prepare: tuple[tuple[str, ...], ...] = ()
    """Sent before, once for each key."""
    keys: int = 1
    drawn: Literal["evenly", "in-order"] = "evenly"
    """How `{key}` is chosen: by a generator with a fixed seed, or the request's number modulo `keys`."""
    payload_bytes: int = 0
    pipeline: int = 1
    """Requests that a connection sends before it reads a reply."""
    connections: int = 1
    """Each sends a pipeline before the server wakes up: one wake-up serves all."""
    new_connections: bool = False
    """Whether each request is the first of a connection that stays open."""
    warm_up: int = 0
    """Requests before the counted ones."""
    saving: Literal["none", "aof-everysec", "aof-always"] = "none"
    during: Literal["nothing", "aof-rewrite", "bgsave"] = "nothing"
    """A child that lives while requests are counted: it is held before its first action until the last reply."""
    options: tuple[str, ...] = ()
    """Further words of the server's command line."""
    spread: float = 0.01
    """The largest difference between rounds, as a share of their median, at which the count is a figure."""
    steady: bool = False
    """Whether used_memory must not grow while requests are counted."""

    @property
    def needs(self) -> set[str]:
        """The commands that a release must have, in lower case."""
        return {words[0].lower() for words in [*self.prepare, *self.commands]}

    @property
    def shown_by_request(self) -> bool:
        """Whether the counter is read after each request, so that percentiles are those of requests."""
        return self.pipeline == self.connections == 1 and not self.new_connections


class WorkloadFile(Record, frozen=True):
    """suites/bench/NAME.toml: the workloads of one published document."""

    title: str
    source: str
    """The document, and the parts of it that these workloads repeat."""
    workloads: list[BenchWorkload]


def read_workloads(paths: Iterable[Path]) -> dict[str, BenchWorkload]:
    """All workloads of these files by name.

    Raises UsageError for a duplicate name, and for a workload that cannot be sent.
    """
    found: dict[str, BenchWorkload] = {}
    for path in paths:
        for number, workload in enumerate(read_toml(path, WorkloadFile).workloads):
            where = at_line(path, line_of(read_text(path), "workloads", number))
            _refuse_impossible(workload, where)
            if workload.name in found:
                raise UsageError(f"workload '{workload.name}' is defined twice", where=where)
            found[workload.name] = workload
    return found


def _refuse_impossible(workload: BenchWorkload, where: str) -> None:
    """Raise UsageError for a workload that cannot be sent."""
    least = {"keys": 1, "requests": 1, "pipeline": 1, "connections": 1, "payload_bytes": 0, "warm_up": 0}
    for field, value in least.items():
        if getattr(workload, field) < value:
            raise UsageError(f"{field} of {workload.name} is below {value}", where=where)
    if not workload.commands or not all([*workload.commands, *workload.prepare]):
        raise UsageError(f"{workload.name} has no commands, or an empty one", where=where)
    at_once = workload.pipeline * workload.connections
    for field in ("requests", "warm_up"):
        if getattr(workload, field) % at_once:
            raise UsageError(
                f"{field} of {workload.name} is not a multiple of {at_once}",
                where=where,
                because=f"{workload.connections} connections send {workload.pipeline} requests each at a time",
            )
    if not 0 < workload.spread < 1:
        raise UsageError(f"spread of {workload.name} is not between 0 and 1", where=where)
    if workload.new_connections and workload.connections > 1:
        raise UsageError(f"{workload.name} has both connections and new_connections", where=where)
