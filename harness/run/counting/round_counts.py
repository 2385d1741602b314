"""The result of one counted round of a workload, as values."""

from __future__ import annotations

import msgspec

from harness.core.model import Record
from harness.record.fault_log import MapRecord  # noqa: TC001 - msgspec reads the annotations when it decodes


class RoundCounts(Record, frozen=True):
    """A server's work in one round, while it served the counted requests, and its memory afterwards."""

    requests: int
    instructions: int
    """Instructions of its first thread, which serves the requests; without its timers', which depend on the clock."""
    other_instructions: int
    """Instructions of its other threads."""
    child_instructions: int
    """Instructions of the child, from its fork to its end; 0 without a child."""
    child_written_bytes: int
    child_private_bytes: int
    """Bytes that were copied because the child or the server wrote to them while both lived."""
    calls: int
    """Calls of the kernel by the first thread."""
    writes: int
    """Calls that wrote to a file, by the first thread."""
    written_bytes: int
    syncs: int
    """fsync and the like by the first thread. Another thread's depend on the clock, and are not counted."""
    used_memory_before: int
    """INFO's used_memory before the counted requests."""
    used_memory: int
    """INFO's used_memory after them."""
    resident_bytes: int
    """The guest's pages in memory after them."""
    own_bytes: int
    """Those of them that the server has written to, and therefore shares with no other process."""
    turns: list[int]
    """Instructions of the first thread for each wake-up, in order; without its timers'."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """A round's counts and the code that was executed."""

    counts: RoundCounts
    blocks: dict[tuple[int, int], int]
    """(guest address, instructions) -> executions by the first thread."""
    maps: list[MapRecord]
