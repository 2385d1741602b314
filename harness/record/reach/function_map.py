"""The functions that a program under the emulator enters: a file that the emulator's plugin maps and writes to.

toolchains/function_reach/reach.c is the plugin, whose `struct header` is the beginning of the file. Callers decide what
an entered function means.
"""

from __future__ import annotations

import mmap
import re
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_HEADER = struct.Struct("<3Q")
_MAGIC = 0x3148434552424C50
_ENTERED = re.compile(b"\x01")


def blank_map(base: int, functions: Mapping[int, Iterable[str]]) -> bytes:
    """The content of a map before its program runs. `base`: the address of its first byte, as its own addresses count;
    `functions`: address of each function -> its names.
    """
    addresses = sorted(functions)
    count = len(addresses)
    names = "\n".join(" ".join(sorted(set(functions[address]))) for address in addresses)
    head = _HEADER.pack(_MAGIC, count, base) + struct.pack(f"<{count}Q", *addresses)
    return head + bytes(2 * count) + names.encode()


def names_in(blank: bytes) -> list[tuple[str, ...]]:
    """The names of each function of a map, in the order of their addresses."""
    _, count, _ = _HEADER.unpack_from(blank)
    return [tuple(row.split(" ")) for row in blank[_HEADER.size + 10 * count :].decode().split("\n")]


class FunctionMap:
    """The functions that one process, with its threads and children, enters."""

    def __init__(self, path: Path, blank: bytes) -> None:
        """Write the file. The emulator opens it when it starts."""
        self.path = path
        path.write_bytes(blank)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), len(blank))
        _, self._count, _ = _HEADER.unpack_from(blank)
        self._first = _HEADER.size + 8 * self._count
        self._others = self._first + self._count
        self._names = names_in(blank)

    def take(self) -> frozenset[str]:
        """The names of the functions that the first thread entered since the last call."""
        found = self._entered(self._first)
        for index in found:
            self._map[self._first + index] = 0
        return self._named(found)

    def beside(self) -> frozenset[str]:
        """The names of the functions that other threads, and children, have entered since the start."""
        return self._named(self._entered(self._others))

    def close(self) -> None:
        """Release the memory and remove the file. The process may still run."""
        self._map.close()
        self.path.unlink(missing_ok=True)

    def _entered(self, start: int) -> list[int]:
        return [found.start() for found in _ENTERED.finditer(self._map[start : start + self._count])]

    def _named(self, indices: list[int]) -> frozenset[str]:
        return frozenset(name for index in indices for name in self._names[index])
