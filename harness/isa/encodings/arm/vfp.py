"""Loads and stores of registers of VFP: one, or several in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from harness.isa.encodings.arm.addressing import ALL_TARGETS, BASE, PLAIN, V7, in_each_mode, offset
from harness.isa.encodings.encoding import Encoding, Move, Opcode, directions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.isa.encodings.encoding import Direction


class _VfpList(NamedTuple):
    """Registers that one instruction moves."""

    text: str
    bytes_each: int
    number: int
    bytes_more: int = 0
    """How far the base is moved beyond them."""

    @property
    def total(self) -> int:
        """What write-back adds to the base, in bytes."""
        return self.bytes_each * self.number + self.bytes_more


_LISTS = [
    _VfpList("s1", 4, 1),
    _VfpList("s1-s3", 4, 3),
    _VfpList("s1-s15", 4, 15),
    _VfpList("d1", 8, 1),
    _VfpList("d1-d3", 8, 3),
    _VfpList("d1-d15", 8, 15),
]
_WITH_WORD_MORE = _VfpList("d1-d3", 8, 3, 4)
"""A word more is not moved (A8.8.332: FLDMX, FSTMX)."""


def vfp() -> Iterator[Encoding]:
    """Everything that loads or stores registers of VFP."""
    for state, targets in (("A32", ALL_TARGETS), ("T32", V7)):
        yield from _singles(state, targets)
        for order, mark in (("ia", ""), ("ia", "!"), ("db", "!")):
            for name, direction in directions("vldm{}", "vstm{}"):
                for registers in _LISTS:
                    one = _block(name, order, mark, direction, registers)
                    yield one._replace(state=state, targets=targets)
            for name, direction in directions("fldm{}x", "fstm{}x"):
                one = _block(name, order, mark, direction, _WITH_WORD_MORE)
                yield one._replace(state=state, targets=targets)


def _singles(state: str, targets: tuple[str, ...]) -> Iterator[Encoding]:
    for name, direction in directions("vldr", "vstr"):
        for register, place, size in (("s1", 68, 4), ("d1", 72, 8)):
            section, move = "A8.8.333" if direction == "load" else "A8.8.413", Move(direction, 0, place, size)
            one = Opcode(name, register, section, "vfp", direction, size, (move,))
            yield from in_each_mode(state, one, (PLAIN, offset(1), offset(-1)), "", targets)


def _block(name: str, order: str, mark: str, direction: Direction, registers: _VfpList) -> Encoding:
    """What moves a list. `name`: a `{}` is the order, `db` for one that goes down. `mark`: `!` for write-back."""
    each = registers.bytes_each
    change = -registers.total if order == "db" else registers.total
    return Encoding(
        state="",
        text=f"{name.format(order)} r4{mark}, {{{registers.text}}}",
        section="A8.8.332" if direction == "load" else "A8.8.412",
        access_class="vfp",
        direction=direction,
        unit_bytes=4,
        base=BASE,
        moves=tuple(Move(direction, each * i, 64 + each * (1 + i), each) for i in range(registers.number)),
        displacement=min(change, 0),
        writeback=change if mark else 0,
    )
