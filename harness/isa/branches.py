"""Branches whose instruction contains the distance to its destination, in the bytes of a function.

An assembler writes that distance where caller and destination are in one section and the destination is local. It
changes with the length of any function between them.

Other bytes may look like a branch to the begin of a function. They count as equal if they look like one to the same
function in both objects, although another distance is then another value. So only distances of 19 bits and more are
recognised: by chance, hardly any value is that of a distance to a function's begin, twice.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_X86 = re.compile(rb"(?s)(?=(?:[\xe8\xe9]|\x0f[\x80-\x8f]|\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d])(.{4}))")
"""CALL and JMP rel32, Jcc rel32, and LEA of an address relative to the next instruction (Intel SDM volume 2).
Instructions begin at any byte, and so may bytes that only look like one. Of short jumps (rel8), too many would."""


class Branch(NamedTuple):
    """What may be a branch. It is one if something begins at its destination."""

    start: int
    """Where the bytes that contain the distance begin, from the start of the code."""
    without: bytes
    """These bytes without the distance."""
    destination: int
    """Where it leads, from the start of the code."""


class WordBranch(NamedTuple):
    """A branch in an instruction of four bytes."""

    mask: int
    match: int
    """The value of the instruction in the bits of `mask`."""
    bits: int
    """The lowest bits are the distance, counted in instructions."""
    base: int = 0
    """From where the distance counts, in bytes behind the begin of the instruction."""


def in_words(*kinds: WordBranch, always: str = "") -> Callable[[bytes, str, int], Iterator[Branch]]:
    """How to find branches of these kinds. The result takes the code, the byte order as of `struct`, and the value of
    the function's symbol. `always`: the byte order of instructions, if it is not that of data.
    """

    def find(code: bytes, order: str, _: int) -> Iterator[Branch]:
        order = always or order
        whole = code[: len(code) & ~3]
        for number, (word,) in enumerate(struct.iter_unpack(f"{order}I", whole)):
            for kind in kinds:
                if word & kind.mask == kind.match:
                    rest = word & ~((1 << kind.bits) - 1)
                    destination = 4 * number + kind.base + 4 * _signed(word, kind.bits)
                    yield Branch(4 * number, struct.pack(f"{order}I", rest), destination)

    return find


_ARM = in_words(WordBranch(0x0E000000, 0x0A000000, 24, base=8))
"""B and BL of the ARM instruction set (ARM DDI 0406C, A8.8.18 and A8.8.25)."""


def in_arm(code: bytes, order: str, symbol: int) -> Iterator[Branch]:
    """The branches of an ARM or Thumb function: B and BL (T4 and T1 in ARM DDI 0406C, A8.8.18 and A8.8.25). The lowest
    bit of the symbol's value tells Thumb.
    """
    if not symbol & 1:
        yield from _ARM(code, order, symbol)
        yield from _arm_addresses(code, order)
        return
    yield from _thumb_addresses(code, order)
    halves = [half for (half,) in struct.iter_unpack(f"{order}H", code[: len(code) & ~1])]
    for number, first in enumerate(halves):
        second = halves[number + 1] if number + 1 < len(halves) else 0
        if first & 0xF800 == 0xF000 and second & 0x9000 == 0x9000:
            sign = first >> 10 & 1
            high = [~(second >> bit ^ sign) & 1 for bit in (13, 11)]
            field = sign << 23 | high[0] << 22 | high[1] << 21 | (first & 0x3FF) << 11 | second & 0x7FF
            rest = struct.pack(f"{order}2H", first & 0xF800, second & 0xD000)
            yield Branch(2 * number, rest, 2 * number + 4 + 2 * _signed(field, 24))


def _arm_addresses(code: bytes, order: str) -> Iterator[Branch]:
    """Distances behind the code from which a function makes another's address: LDR of a register from there (ARM DDI
    0406C, A8.8.64), then ADD of the program counter to that register (A8.8.7).
    """
    loaded: dict[int, int] = {}
    for number, (word,) in enumerate(struct.iter_unpack(f"{order}I", code[: len(code) & ~3])):
        here = 4 * number + 8
        if word & 0x0F7F0000 == 0x051F0000:
            loaded[word >> 12 & 15] = here + (word & 0xFFF if word & 1 << 23 else -(word & 0xFFF))
        elif word & 0x0FFF0FF0 == 0x008F0000:
            yield from _address(code, order, loaded.get(word & 15, -1), here)


def _thumb_addresses(code: bytes, order: str) -> Iterator[Branch]:
    """The same in Thumb: LDR (T1 and T2 in A8.8.64), ADD (T2 in A8.8.6)."""
    loaded: dict[int, int] = {}
    halves = [half for (half,) in struct.iter_unpack(f"{order}H", code[: len(code) & ~1])]
    for number, first in enumerate(halves):
        here = 2 * number + 4
        second = halves[number + 1] if number + 1 < len(halves) else 0
        if first & 0xF800 == 0x4800:
            loaded[first >> 8 & 7] = (here & ~3) + 4 * (first & 0xFF)
        elif first & 0xFF7F == 0xF85F:
            by = second & 0xFFF
            loaded[second >> 12] = (here & ~3) + (by if first & 0x80 else -by)
        elif first & 0xFF78 == 0x4478:
            yield from _address(code, order, loaded.get(first >> 4 & 8 | first & 7, -1), here)


def _address(code: bytes, order: str, place: int, here: int) -> Iterator[Branch]:
    if 0 <= place <= len(code) - 4:
        (distance,) = struct.unpack_from(f"{order}i", code, place)
        # The lowest bit tells Thumb, and is no part of the distance.
        yield Branch(place, struct.pack(f"{order}I", distance & 1), here + (distance & ~1))


def in_x86(code: bytes, order: str, symbol: int) -> Iterator[Branch]:
    """What may be a branch of x86, at any byte."""
    del order, symbol
    for found in _X86.finditer(code):
        distance = int.from_bytes(found[1], "little", signed=True)
        yield Branch(found.start(1), bytes(4), found.end(1) + distance)


def _signed(value: int, bits: int) -> int:
    """The lowest bits of a value as a number in two's complement."""
    low = value & ((1 << bits) - 1)
    return low - (1 << bits) if low >> (bits - 1) else low
