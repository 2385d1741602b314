"""An instruction of a 68040 in all of its addressing modes, and what instructions move."""

from __future__ import annotations

from collections.abc import Callable, Iterator  # noqa: TC003 - the annotations of NamedTuples are evaluated
from typing import TYPE_CHECKING, NamedTuple

from harness.isa.encodings.encoding import AddressForm, Encoding, Move
from harness.isa.encodings.m68k.addressing import BASE, INDEX, INDEX_VALUE, OTHER, VALUE, Mode, modes

if TYPE_CHECKING:
    from harness.core.target_model import AccessClass
    from harness.isa.encodings.encoding import Change, Direction

MEMORY, FLOATS = 64, 80
"""Offsets in the register file of m68k.S: of the other operand's memory, and of %fp0."""
CLASSES: dict[int, AccessClass] = {1: "other", 2: "half", 4: "word"}
SIGN = (Move("load", 0, 4 * OTHER + 4, 0, 4, True),)
"""%d3 is filled with the sign of the value in memory."""
SHOWN_SIGN = ("smi %d3", "extb.l %d3")
NOTHING = (Move("load", 0, 0, 0),)


class M68kInstruction(NamedTuple):
    """What an instruction does, in whichever addressing mode."""

    text: str
    """The instruction in the assembler's notation. A `{}` stands for the address, as in `before`."""
    size: int
    """The bytes that it accesses, by which an automatic mode changes the base."""
    moves: tuple[Move, ...]
    words: int = 0
    """Words of the opcode beside the first."""
    unit: int = 0
    """The unit whose alignment counts, in bytes; 0 for all of them."""
    access_class: AccessClass | None = None
    """None for that of the unit."""
    index_register: tuple[int, int] = (INDEX, INDEX_VALUE)
    """Number and value of the index register that modes have."""
    chapter: int = 4
    """The chapter of the manual that describes it."""
    only: Callable[[Mode], bool] = lambda _: True
    """Whether it has a mode."""
    address: AddressForm | None = None
    """The one form of its address, for what has no modes."""
    truncates: bool = False
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    results: tuple[tuple[int, int], ...] = ()
    """The last four as of an encoding."""

    @property
    def stores(self) -> bool:
        """Whether it writes to memory."""
        return any(move.direction == "store" for move in self.moves)

    def encodings(self) -> Iterator[Encoding]:
        """It with its one address, or in all modes that it has. What stores has none that is relative to PC."""
        if self.address is not None:
            yield self._at(self.address, 0)
            return
        for mode in modes(self.size, self.index_register):
            if self.only(mode) and not (mode.is_read_only and self.stores):
                yield self._at(mode.address._replace(index_register=self.index_register), mode.words)

    def _at(self, address: AddressForm, words: int) -> Encoding:
        """Its encoding with an address that has so many words."""
        unit = self.unit or self.size
        return Encoding(
            state=str(16 * (1 + self.words + words)),
            text=self.text.format(address.text),
            section=f"{self.chapter}, {self.text.split(maxsplit=1)[0].partition('.')[0].upper()}",
            access_class=self.access_class or CLASSES.get(unit, "other"),
            direction="store" if self.stores else "load",
            unit_bytes=unit,
            base=BASE,
            moves=self.moves,
            displacement=address.displacement,
            index_register=address.index_register,
            writeback=address.writeback,
            results=self.results,
            before=tuple(line.format(address.text) for line in self.before),
            after=self.after,
            truncates=self.truncates,
        )


def low(register: int, size: int) -> int:
    """Where the lowest bytes of a register are in the register file."""
    return 4 * register + 4 - size


def data(direction: Direction, size: int, register: int = VALUE, change: Change = "") -> tuple[Move, ...]:
    """What moves the lowest bytes of a register."""
    return (Move(direction, 0, low(register, size), size, change=change),)


def extended(register: int, size: int, *, is_signed: bool = True, change: Change = "") -> tuple[Move, ...]:
    """A load that fills a register."""
    return (Move("load", 0, low(register, size), size, 4 - size, is_signed, change),)


def constant(size: int, value: int, change: Change = "") -> tuple[Move, ...]:
    """What stores a constant, or combines memory with one."""
    return (Move("store", 0, MEMORY, size, change=change, constant=value),)


def kept(size: int, change: Change = "", constant: int | None = None) -> tuple[Move, ...]:
    """A value that is loaded, and that the memory of the other operand then shows."""
    return (Move("load", 0, MEMORY, size, change=change, constant=constant),)
