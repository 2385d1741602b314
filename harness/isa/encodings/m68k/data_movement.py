"""Instructions of a 68040 that move data: MOVE and its kin, and what pushes and pops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.isa.encodings.encoding import AddressForm, Move, directions
from harness.isa.encodings.m68k.addressing import BASE, TARGET, VALUE, goes_down, goes_up
from harness.isa.encodings.m68k.instruction import MEMORY, M68kInstruction, constant, data, extended, kept, low

if TYPE_CHECKING:
    from collections.abc import Iterator


def _moves() -> Iterator[M68kInstruction]:
    for letter, size in (("b", 1), ("w", 2), ("l", 4)):
        yield M68kInstruction(f"move.{letter} {{}},%d2", size, data("load", size))
        yield M68kInstruction(f"move.{letter} %d2,{{}}", size, data("store", size))
        if size > 1:
            yield M68kInstruction(f"movea.{letter} {{}},%a3", size, extended(TARGET, size))
            yield M68kInstruction(f"move.{letter} %a3,{{}}", size, data("store", size, TARGET))
        yield M68kInstruction(f"move.{letter} {{}},64(%a5)", size, (Move("load", 0, MEMORY, size),), words=1)
        yield M68kInstruction(f"move.{letter} 64(%a5),{{}}", size, (Move("store", 0, MEMORY, size),), words=1)
        for there, place in (("(%a1)", 64), ("(%a1)+", 64), ("-(%a1)", 64 + size)):
            point = (f"lea {place}(%a5),%a1",)
            moved = (Move("load", 0, MEMORY, size), Move("store", 0, MEMORY, size))
            yield M68kInstruction(f"move.{letter} {{}},{there}", size, moved[:1], before=point)
            yield M68kInstruction(f"move.{letter} {there},{{}}", size, moved[1:], before=point)
        value = -0x5B if size == 1 else -0x5BCD if size == 2 else -0x5BCDEF12
        words = max(size // 2, 1)
        yield M68kInstruction(f"move.{letter} #{value},{{}}", size, constant(size, value), words=words)
        yield M68kInstruction(f"clr.{letter} {{}}", size, constant(size, 0))
    yield M68kInstruction("move.w %ccr,{}", 2, constant(2, 21), before=("move.w #21,%ccr",))
    flags = kept(2, "and", 0x1F)
    yield M68kInstruction("move.w {},%ccr", 2, flags, after=("move.w %ccr,64(%a5)",))


def _peripherals() -> Iterator[M68kInstruction]:
    """MOVEP: every second byte."""
    for letter, size in (("w", 2), ("l", 4)):
        for text, direction in directions("movep.{} {}(%a0),%d2", "movep.{} %d2,{}(%a0)"):
            for by in (0, 8, 0x7FF0, -0x8000):
                moves = tuple(Move(direction, 2 * i, low(VALUE, size) + i, 1) for i in range(size))
                yield M68kInstruction(text.format(letter, by), 1, moves, words=1, address=AddressForm("", by))


def _multiples() -> Iterator[M68kInstruction]:
    for letter, size in (("w", 2), ("l", 4)):
        for listed, registers in (("%d2-%d3", (2, 3)), ("%d3/%d7/%a3", (3, 7, TARGET))):
            count = len(registers)
            stores, loads = [], []
            for i, register in enumerate(registers):
                stores.append(Move("store", size * i, low(register, size), size))
                loads.append(Move("load", size * i, low(register, size), size, 4 - size, is_signed=True))
            yield M68kInstruction(
                f"movem.{letter} {listed},{{}}",
                count * size,
                tuple(stores),
                words=1,
                unit=size,
                only=goes_down,
            )
            yield M68kInstruction(
                f"movem.{letter} {{}},{listed}",
                count * size,
                tuple(loads),
                words=1,
                unit=size,
                only=goes_up,
            )


def _lines() -> Iterator[M68kInstruction]:
    """MOVE16: 16 bytes, wherever in them the address lies."""
    load = tuple(Move("load", 4 * i, MEMORY + 4 * i, 4) for i in range(4))
    store = tuple(Move("store", 4 * i, MEMORY + 4 * i, 4) for i in range(4))
    point = ("lea 64(%a5),%a1",)
    fetch = tuple(f"move.l sweep_line+{4 * i},{64 + 4 * i}(%a5)" for i in range(4))
    bring = tuple(f"move.l {64 + 4 * i}(%a5),sweep_line+{4 * i}" for i in range(4))
    for text, words, moves, writeback, before, after in (
        ("(%a0)+,(%a1)+", 1, load, 16, point, ()),
        ("(%a1)+,(%a0)+", 1, store, 16, point, ()),
        ("(%a0)+,sweep_line", 2, load, 16, (), fetch),
        ("(%a0),sweep_line", 2, load, 0, (), fetch),
        ("sweep_line,(%a0)+", 2, store, 16, bring, ()),
        ("sweep_line,(%a0)", 2, store, 0, bring, ()),
    ):
        yield M68kInstruction(
            f"move16 {text}",
            16,
            moves,
            words=words,
            before=before,
            after=after,
            address=AddressForm("", 0, writeback),
            truncates=True,
        )


def _stack() -> Iterator[M68kInstruction]:
    """What pushes and pops beside MOVE: with the stack where the base points to."""
    push = ("lea 4(%a0),%a1", "move.l %a1,%sp")
    yield M68kInstruction("pea (%a3)", 4, (Move("store", 0, 4 * TARGET, 4),), before=push, address=AddressForm(""))
    # The base is what is pushed, and the new frame pointer.
    yield M68kInstruction(
        "link.w %a0,#-8", 4, (Move("store", 0, 4 * BASE, 4),), words=1, before=push, address=AddressForm("")
    )
    yield M68kInstruction(
        "link.l %a0,#-80000", 4, (Move("store", 0, 4 * BASE, 4),), words=2, before=push, address=AddressForm("")
    )
    yield M68kInstruction("unlk %a0", 4, (Move("load", 0, 4 * BASE, 4),), address=AddressForm(""))


def data_movement() -> Iterator[M68kInstruction]:
    """Everything that moves data."""
    yield from _moves()
    yield from _peripherals()
    yield from _multiples()
    yield from _lines()
    yield from _stack()
