"""Which registers the instructions of PowerPC use, and where each of them is in a target's register file."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from harness.isa.encodings.encoding import AddressForm, Encoding, Move, Opcode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.isa.encodings.encoding import Direction

VALUE, BASE, INDEX, NEGATIVE_INDEX, STRING, CR0 = 3, 4, 5, 6, 7, 32
"""r3 is moved, r4 is the base, r5 and r6 are the index, r7 to r9 are strings. r0 is free for preceding instructions.

32 is not a register: there the register file has what an instruction made of CR0.
"""
QUAD, OTHER_QUAD = 8, 10
"""r8 and r9 are moved as a quadword. r10 and r11 are loaded where the load has to come before."""
SINGLE, DOUBLE, VECTOR = 1, 2, 2
"""f1 is kept in the register file as the single that LFS reads and STFS writes, f2 and f3 as they are; and v2."""


class PowerpcTarget(NamedTuple):
    """A target, and where its registers are in the register file."""

    target: str
    word_bytes: int
    is_big: bool = True

    @property
    def is_wide(self) -> bool:
        """Whether its integer registers have 64 bits."""
        return self.word_bytes == 8

    def integer(self, register: int, size: int) -> int:
        """The position of an integer register's lowest bytes."""
        return self.word_bytes * register + (self.word_bytes - size if self.is_big else 0)

    def low_word(self, register: int) -> int:
        """The position of a floating-point register's low word."""
        return self.float(register) + (4 if self.is_big else 0)

    @property
    def is_power8(self) -> bool:
        """Whether it has the instructions of Power ISA 2.07."""
        return not self.is_big

    def elements(self, direction: Direction, vector: int, size: int) -> tuple[Move, ...]:
        """What moves a vector's elements of this size: the file has a vector's bytes in the order of a quadword."""
        return self._in_order(direction, range(vector, vector + 16, size), size)

    def halves(self, direction: Direction, places: tuple[int, int]) -> tuple[Move, ...]:
        """What moves two doublewords of 16 bytes, of which the first place is that of the high one."""
        return self._in_order(direction, places, 8)

    def quadword(self, direction: Direction, register: int) -> tuple[Move, ...]:
        """What moves a pair of integer registers, of which the first has the high doubleword."""
        return self.halves(direction, (self.integer(register, 8), self.integer(register + 1, 8)))

    def _in_order(self, direction: Direction, places: Sequence[int], size: int) -> tuple[Move, ...]:
        by_address = places if self.is_big else places[::-1]
        return tuple(Move(direction, size * i, place, size) for i, place in enumerate(by_address))

    def float(self, register: int) -> int:
        """The position of a floating-point register."""
        return 36 * self.word_bytes + 8 * register

    def vector(self, register: int) -> int:
        """The position of a vector register."""
        return 36 * self.word_bytes + 256 + 16 * register

    def moved(self, direction: Direction, size: int, register: int = VALUE, *, is_signed: bool = False) -> Move:
        """What an instruction moves between an integer register and memory."""
        extension = self.word_bytes - size if direction == "load" else 0
        return Move(direction, 0, self.integer(register, size), size, extension, is_signed)

    def at(self, one: Opcode, address: AddressForm, *, truncates: bool = False) -> Encoding:
        """An instruction's encoding with an address."""
        text = f"{one.name} {one.operand},{address.text}"
        return one.at(address, text, base=BASE, truncates=truncates, targets=(self.target,))
