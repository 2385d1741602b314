"""Reads the control-flow edges that a guest's program has taken, from the output of the emulator's `-coverage` option.

An edge leads from one translated block of the program to the next, excluding libc. Each edge has one byte of a file
that the emulator also maps (toolchains/qemu/overlay/linux-user/coverage.c). An edge has the same number in every guest
of one build. Callers decide how to use the edges.
"""

from __future__ import annotations

import mmap
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE_BYTES = 1 << 20
"""One byte per edge. Of the ten thousand edges of a server that a fuzzer reaches, one in a hundred shares its byte."""
_TAKEN = re.compile(b"\x01")
_BLOCK_BYTES = (SIZE_BYTES, 1 << 14, 256)
"""The map is compared as a whole, and then in smaller blocks if it differs: most streams change nothing, others
little.
"""


class EdgeCoverage:
    """The edges that one guest takes. Create this before the emulator starts, and pass the path to the emulator."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(SIZE_BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE_BYTES)
        self._known = bytearray(SIZE_BYTES)
        """The map at the last call of `new`."""

    def taken(self) -> frozenset[int]:
        """The numbers of all edges that the guest's threads and forked children have taken since it started."""
        return frozenset(found.start() for found in _TAKEN.finditer(self._map))

    def new(self) -> frozenset[int]:
        """The edges taken since the last call."""
        with memoryview(self._map) as now:
            return frozenset(_added(self._known, now, 0, _BLOCK_BYTES))

    def close(self) -> None:
        """Release the memory and remove the file. The guest may still run."""
        self._map.close()
        self.path.unlink(missing_ok=True)


def _added(known: bytearray, now: memoryview, offset: int, blocks: tuple[int, ...]) -> Iterator[int]:
    """The positions of bits that are newly set, counted from an offset of the whole map. From then on, they count as
    known.
    """
    if not blocks:
        # A running guest takes further edges meanwhile, so the same copy is both reported and stored.
        taken = now.tobytes()
        before = known[offset : offset + len(taken)]
        known[offset : offset + len(taken)] = taken
        yield from (offset + found.start() for found in _TAKEN.finditer(taken) if not before[found.start()])
        return
    size, *smaller = blocks
    for start in range(0, len(now), size):
        # It compares without a copy, which slices of a map are.
        if not known.startswith(now[start : start + size], offset + start):
            yield from _added(known, now[start : start + size], offset + start, tuple(smaller))
