"""An instruction of z/Architecture at all addresses that its format can have, and what instructions move."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from harness.isa.encodings.encoding import AddressForm, Encoding, Move

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.core.target_model import AccessClass
    from harness.isa.encodings.encoding import Direction

VALUE, BASE, INDEX, PAIR = 3, 4, 5, 6
"""%r3 is moved, %r4 is the base, %r5 the index; %r6 to %r8 are moved together."""
CONDITION, MEMORY, VECTORS = 16, 17, 192
"""Numbers in the register file of the condition code and of the memory in it, and where %v0 begins."""
INDEX_VALUE = 24
VECTOR = 2
SHORT, LONG = "32", "48"
"""The two lengths of instructions, in bits."""
CLASSES: dict[int, AccessClass] = {1: "other", 2: "half", 4: "word", 8: "dword", 16: "other"}
_NAME = re.compile(r"\w+")
_INDEXED = AddressForm(f"8(%r{INDEX},%r{BASE})", 8 + INDEX_VALUE, index_register=(INDEX, INDEX_VALUE))
_UNSIGNED = [AddressForm(f"{by}(%r{BASE})", by) for by in (0, 8, 0xFF8)]
_SIGNED = [AddressForm(f"{by}(%r{BASE})", by) for by in (0, -8, 0x7FFF8, -0x80000)]
ADDRESSES = {
    **{name: [*_UNSIGNED, _INDEXED] for name in ("RX", "VRX")},
    **{name: [*_SIGNED, _INDEXED] for name in ("RXY",)},
    **dict.fromkeys(("RS", "SI", "SIL", "SS", "VRS", "VRV"), _UNSIGNED),
    **dict.fromkeys(("RSY", "SIY"), _SIGNED),
}
"""Format -> displacements of 12 bits or of 20, with an index or without one."""


class S390xInstruction(NamedTuple):
    """What an instruction does, at whichever address."""

    format: str
    text: str
    """The instruction in the assembler's notation. A `{}` stands for the address, as in `before`."""
    moves: tuple[Move, ...]
    unit: int
    """The unit whose alignment counts, in bytes."""
    access_class: AccessClass | None = None
    """None for that of the unit."""
    direction: Direction | None = None
    """None for `store` where something is stored, else `load`."""
    preset: tuple[int, int] | None = None
    """Number and value of a register beside the address, in the place of an index."""
    results: tuple[tuple[int, int], ...] = ()
    before: tuple[str, ...] = ()
    """These two as of an encoding."""

    def at(self, address: AddressForm) -> Encoding:
        """Its encoding with an address."""
        stores = any(move.direction == "store" for move in self.moves)
        return Encoding(
            state=SHORT if self.format in {"RX", "RS", "SI"} else LONG,
            text=self.text.format(address.text),
            section=_NAME.findall(self.text)[0].upper(),
            access_class=self.access_class or CLASSES[self.unit],
            direction=self.direction or ("store" if stores else "load"),
            unit_bytes=self.unit,
            base=BASE,
            moves=self.moves,
            displacement=address.displacement,
            index_register=self.preset or address.index_register,
            results=self.results,
            before=tuple(line.format(address.text) for line in self.before),
        )

    def at_each_address(self) -> Iterator[Encoding]:
        """Its encodings with every address that its format can have."""
        return map(self.at, ADDRESSES[self.format])


def low(register: int, size: int) -> int:
    """The position of a register's lowest bytes."""
    return 8 * register + 8 - size


def high(register: int) -> int:
    """The position of a register's high word."""
    return 8 * register


def vector(register: int = VECTOR) -> int:
    """A vector register, whose leftmost bytes are the floating-point register of that number."""
    return VECTORS + 16 * register


def load(size: int, register: int = VALUE, fills: int = 0, *, is_signed: bool = False) -> tuple[Move, ...]:
    """What loads the lowest bytes of a register. `fills`: how many more it fills with zeros or the sign."""
    return (Move("load", 0, low(register, size), size, fills, is_signed),)


def store(size: int, register: int = VALUE) -> tuple[Move, ...]:
    """What stores the lowest bytes of a register."""
    return (Move("store", 0, low(register, size), size),)
