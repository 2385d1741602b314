"""Which edges of its program's control flow a guest has taken: reads what the emulator's `-coverage` option writes.

An edge leads from one translated block of the program to the next, libc left out; it has a byte of a file that the
emulator maps too (toolchains/qemu/overlay/linux-user/coverage.c). Edges keep their numbers from guest to guest of one
build. What the edges are good for is not decided here.
"""

from __future__ import annotations

import mmap
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SIZE_BYTES = 1 << 20
"""A byte for an edge: ten thousand edges, as a fuzzer reaches of a server, share a byte in one case of a hundred."""
_TAKEN = re.compile(b"\x01")


class EdgeCoverage:
    """The edges that one guest takes. Its emulator is to be told the path, once this is there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(SIZE_BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE_BYTES)
        self._known: frozenset[int] = frozenset()

    def taken(self) -> frozenset[int]:
        """The numbers of all edges taken since the guest started, by all its threads and forked children."""
        return frozenset(found.start() for found in _TAKEN.finditer(self._map))

    def new(self) -> frozenset[int]:
        """Those that were not taken yet when this was asked last; about half a millisecond when there are none."""
        # Edges are never untaken: while there are as many as before, they are the same.
        if self._map[:].count(1) == len(self._known):
            return frozenset()
        before, self._known = self._known, self.taken()
        return self._known - before

    def close(self) -> None:
        """Give the memory back and remove the file. The guest may still run."""
        self._map.close()
        self.path.unlink(missing_ok=True)
