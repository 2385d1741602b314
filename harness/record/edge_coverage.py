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
    from pathlib import Path

SIZE_BYTES = 1 << 20
"""One byte per edge. Of the ten thousand edges of a server that a fuzzer reaches, one in a hundred shares its byte."""
_TAKEN = re.compile(b"\x01")


class EdgeCoverage:
    """The edges that one guest takes. Create this before the emulator starts, and pass the path to the emulator."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(SIZE_BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE_BYTES)
        self._known: frozenset[int] = frozenset()

    def taken(self) -> frozenset[int]:
        """The numbers of all edges that the guest's threads and forked children have taken since it started."""
        return frozenset(found.start() for found in _TAKEN.finditer(self._map))

    def new(self) -> frozenset[int]:
        """The edges taken since the last call. A call without new edges takes about half a millisecond."""
        # Edges are only ever added, so an equal count means the same edges.
        if self._map[:].count(1) == len(self._known):
            return frozenset()
        before, self._known = self._known, self.taken()
        return self._known - before

    def close(self) -> None:
        """Release the memory and remove the file. The guest may still run."""
        self._map.close()
        self.path.unlink(missing_ok=True)
