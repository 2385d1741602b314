"""The blocks of a program that a process under the emulator executes: a file that the emulator's plugin writes to.

toolchains/executed_blocks/blocks.c is the plugin, whose `struct header` is the beginning of the file. A block is a
sequence of instructions that the emulator translates at once; it counts as executed when it is entered. Callers decide
on the meaning.
"""

from __future__ import annotations

import mmap
import re
import struct
from bisect import bisect_right
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NewType

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_HEADER = struct.Struct("<7Q")
_HEADER_BYTES = 1 << 16
_MAGIC = 0x314B4C4258454C50
_FULL_AT, _USED_AT = 40, 48
_WORD = struct.Struct("<Q")
_LEAST_PLACES, _MOST_PLACES = 1 << 13, 1 << 17
_BYTES_PER_PLACE = 32
"""Bytes of a server's code for each place in the map: the quick tier executes a third of a server's blocks."""
_SIZE_BITS = 13
_MARK = re.compile(b"\x01")
MAIN = "main"
"""The function that every program enters: if it was not executed, nothing was recorded."""

Block = NewType("Block", int)
"""Some instructions of a program: the distance of the first one from the beginning of the code, times 8192, plus their
bytes. It is one number because servers execute many."""


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A function of a program."""

    start: int
    size: int
    """In bytes. 0 if it is not recorded, as for some assembly code: the function then extends to the next one."""
    names: list[str]


class ProgramCode(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The location of a program's code. All addresses are relative to the program."""

    base: int
    """The address of its first byte."""
    begin: int
    end: int
    """The bounds of the executable segments."""
    step: int
    """The length of the shortest instruction in bytes; 1 where that is not known."""
    functions: list[Function]
    """The functions, ordered by address."""

    @cached_property
    def function_names(self) -> list[str]:
        """The names of all functions, sorted."""
        return sorted({name for one in self.functions for name in one.names})

    @cached_property
    def places(self) -> int:
        """How many blocks the map has room for: a power of two."""
        wanted = (self.end - self.begin) // _BYTES_PER_PLACE
        return min(max(1 << wanted.bit_length(), _LEAST_PLACES), _MOST_PLACES)

    def block(self, start: int, size: int) -> Block:
        """The instructions at an address; `size` is in bytes."""
        return Block((start - self.begin) << _SIZE_BITS | size)

    def names_in(self, blocks: Iterable[Block]) -> set[str]:
        """The names of the functions to which one of the blocks, or a part of it, belongs.

        A block that begins in the middle of a function, after a jump or a return, also belongs to it.
        """
        return set().union(*map(self._names.__getitem__, blocks))

    def addresses(self, blocks: Iterable[Block]) -> frozenset[int]:
        """The addresses at which instructions of the blocks may begin: those that do are among them."""
        places = map(self._place, blocks)
        return frozenset(address for start, end in places for address in range(start, end, self.step))

    def _place(self, block: Block) -> tuple[int, int]:
        """The begin and the end of a block."""
        start = self.begin + (block >> _SIZE_BITS)
        return start, start + (block & (1 << _SIZE_BITS) - 1)

    @cached_property
    def _names(self) -> _Names:
        return _Names(self._find_names)

    @cached_property
    def _starts(self) -> list[int]:
        return [one.start for one in self.functions]

    @cached_property
    def _ends(self) -> list[int]:
        after = [*self._starts[1:], self.end]
        return [one.start + one.size if one.size else end for one, end in zip(self.functions, after, strict=True)]

    @cached_property
    def _last_ends(self) -> list[int]:
        """For each function, the largest end among it and all earlier functions."""
        return list(accumulate(self._ends, max))

    def _find_names(self, block: Block) -> Iterator[str]:
        start, end = self._place(block)
        at = bisect_right(self._starts, end - 1)
        # Functions may overlap, such as one that has several entries.
        while at > 0 and self._last_ends[at - 1] > start:
            at -= 1
            if self._ends[at] > start:
                yield from self.functions[at].names


class _Names(dict[Block, tuple[str, ...]]):
    """The names of functions by their blocks, each found once."""

    def __init__(self, find: Callable[[Block], Iterable[str]]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, block: Block) -> tuple[str, ...]:
        found = self[block] = tuple(self._find(block))
        return found


class BlockMap:
    """The file of one process, with its threads and children."""

    def __init__(self, path: Path, code: ProgramCode) -> None:
        """Write the file. The emulator opens it when it starts."""
        self.path = path
        self._array_bytes = code.places * _WORD.size
        size = _HEADER_BYTES + 4 * self._array_bytes
        with path.open("w+b") as file:
            file.write(_HEADER.pack(_MAGIC, code.places, code.begin, code.end, code.base, 0, 0))
            file.truncate(size)
            file.flush()
            self._map = mmap.mmap(file.fileno(), size)
        self._blocks: list[Block] = []
        """By their numbers."""

    def take(self, whose: Literal["first", "others"]) -> set[Block]:
        """The blocks that the first thread, or all other threads and children together, executed since the last call.

        One that is executed during the call may count now, or the next time, or twice.
        """
        begin = self._array_at(2 if whose == "first" else 3)
        (used,) = _WORD.unpack_from(self._map, _USED_AT)
        marks = self._map[begin : begin + min(used * _WORD.size, self._array_bytes)]
        offsets = [mark.start() for mark in _MARK.finditer(marks)]
        if not offsets:
            return set()
        self._read_blocks(len(marks))
        for offset in offsets:
            # Only the blocks that were read are cleared, so nothing that is executed meanwhile gets lost.
            self._map[begin + offset] = 0
        found = {self._blocks[offset // _WORD.size] for offset in offsets}
        if 0 in found:
            # It had a number, and nothing else, when the blocks were read.
            self._blocks.clear()
            self._read_blocks(len(marks))
            found = {self._blocks[offset // _WORD.size] for offset in offsets}
        return found

    @property
    def is_full(self) -> bool:
        """Whether more blocks were translated than fit into the file: the others were not recorded."""
        return bool(self._map[_FULL_AT])

    def close(self) -> None:
        """Release the memory and remove the file. The process may still run."""
        self._map.close()
        self.path.unlink(missing_ok=True)

    def _array_at(self, number: int) -> int:
        return _HEADER_BYTES + number * self._array_bytes

    def _read_blocks(self, length_bytes: int) -> None:
        begin = self._array_at(1)
        more = self._map[begin + len(self._blocks) * _WORD.size : begin + length_bytes]
        self._blocks += [Block(block) for (block,) in _WORD.iter_unpack(more)]
