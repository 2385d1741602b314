"""Instructions of a 68040 that calculate, compare or change bits, and exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.isa.encodings.encoding import AddressForm, Move
from harness.isa.encodings.m68k.addressing import OTHER, TARGET, VALUE, is_control
from harness.isa.encodings.m68k.instruction import (
    MEMORY,
    NOTHING,
    SHOWN_SIGN,
    SIGN,
    M68kInstruction,
    constant,
    data,
    extended,
    low,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.isa.encodings.encoding import Change


def _arithmetic() -> Iterator[M68kInstruction]:
    for letter, size in (("b", 1), ("w", 2), ("l", 4)):
        changes: list[tuple[str, Change]] = [
            ("add", "add"),
            ("sub", "sub"),
            ("and", "and"),
            ("or", "or"),
            ("eor", "xor"),
        ]
        value = -0x5B if size == 1 else -0x5BCD if size == 2 else -0x5BCDEF12
        for name, change in changes:
            if name != "eor":
                yield M68kInstruction(f"{name}.{letter} {{}},%d2", size, data("load", size, change=change))
            yield M68kInstruction(f"{name}.{letter} %d2,{{}}", size, data("store", size, change=change))
            immediate = f"{name}i.{letter} #{value},{{}}"
            yield M68kInstruction(immediate, size, constant(size, value, change), words=max(size // 2, 1))
        for name, change in changes[:2]:
            yield M68kInstruction(f"{name}q.{letter} #5,{{}}", size, constant(size, 5, change))
            if size > 1:
                moves = extended(TARGET, size, change=change)
                yield M68kInstruction(f"{name}a.{letter} {{}},%a3", size, moves)
            both = f"{name}x.{letter} "
            clear, point = "move.w #0,%ccr", f"lea {64 + size}(%a5),%a1"
            for text, moves in (
                ("-(%a0),-(%a1)", (Move("load", 0, MEMORY, size, change=change),)),
                ("-(%a1),-(%a0)", (Move("store", 0, MEMORY, size, change=change),)),
            ):
                yield M68kInstruction(
                    both + text, size, moves, before=(point, clear), address=AddressForm("", -size, -size)
                )
        yield M68kInstruction(f"neg.{letter} {{}}", size, constant(size, 0, "from"))
        yield M68kInstruction(f"negx.{letter} {{}}", size, constant(size, 0, "from"), before=("move.w #0,%ccr",))
        yield M68kInstruction(f"not.{letter} {{}}", size, constant(size, -1, "xor"))


def _comparisons() -> Iterator[M68kInstruction]:
    """Comparisons with the value that was loaded before, so that both are equal, if the mode gives the same address
    again.
    """
    equal = ("seq %d3", "extb.l %d3")
    yes = ((OTHER, -1),)
    for letter, size in (("b", 1), ("w", 2), ("l", 4)):
        fetch = (f"move.{letter} {{}},%d2",)
        got = data("load", size)
        yield M68kInstruction(
            f"cmp.{letter} {{}},%d2", size, got, before=fetch, after=equal, results=yes, only=is_control
        )
        yield M68kInstruction(f"cmp.{letter} {{}},%d2", size, NOTHING, only=lambda mode: mode.is_automatic)
        words = max(size // 2, 1)
        yield M68kInstruction(f"cmpi.{letter} #-77,{{}}", size, NOTHING, words=words)
        yield M68kInstruction(f"tst.{letter} {{}}", size, SIGN, after=SHOWN_SIGN)
        both = f"cmpm.{letter} "
        point = ("lea 64(%a5),%a1",)
        yield M68kInstruction(f"{both}(%a0)+,(%a1)+", size, NOTHING, before=point, address=AddressForm("", 0, size))
        yield M68kInstruction(f"{both}(%a1)+,(%a0)+", size, NOTHING, before=point, address=AddressForm("", 0, size))
        if size > 1:
            fetch = (f"movea.{letter} {{}},%a3",)
            moves = extended(TARGET, size)
            text = f"cmpa.{letter} {{}},%a3"
            yield M68kInstruction(text, size, moves, before=fetch, after=equal, results=yes, only=is_control)
            yield M68kInstruction(text, size, NOTHING, only=lambda mode: mode.is_automatic)
    # The lower bound is at the lower address. What is equal to it is between the bounds.
    yield M68kInstruction(
        "chk2.b {},%d2",
        2,
        data("load", 1),
        words=1,
        unit=1,
        before=("move.b {},%d2",),
        after=equal,
        results=yes,
        only=is_control,
    )


def _products() -> Iterator[M68kInstruction]:
    """Multiplications by 1, and divisions of 0."""
    one, zero = (VALUE, 1), (VALUE, 0)
    for name, is_signed in (("mulu", False), ("muls", True)):
        moves = extended(VALUE, 2, is_signed=is_signed)
        yield M68kInstruction(f"{name}.w {{}},%d2", 2, moves, index_register=one)
        yield M68kInstruction(f"{name}.l {{}},%d2", 4, data("load", 4), index_register=one, words=1)
        high = Move("load", 0, 4 * OTHER + 4, 0, 4, is_signed)
        yield M68kInstruction(f"{name}.l {{}},%d3:%d2", 4, (*data("load", 4), high), index_register=one, words=1)
    for name in ("divu", "divs"):
        yield M68kInstruction(f"{name}.w {{}},%d2", 2, NOTHING, index_register=zero, results=((VALUE, 0),))
        yield M68kInstruction(f"{name}.l {{}},%d2", 4, NOTHING, index_register=zero, results=((VALUE, 0),), words=1)
        both = ((VALUE, 0), (OTHER, 0))
        yield M68kInstruction(f"{name}l.l {{}},%d3:%d2", 4, NOTHING, index_register=zero, results=both, words=1)


def _shifts() -> Iterator[M68kInstruction]:
    """Shifts of a word in memory by one bit; those through X with X clear. ASR and LSR: see `unmade`."""
    rows: list[tuple[str, Change]] = [("asl", "shl"), ("lsl", "shl"), ("rol", "rol"), ("ror", "ror")]
    through: list[tuple[str, Change]] = [("roxl", "shl"), ("roxr", "shr")]
    for name, change in (*rows, *through):
        yield M68kInstruction(f"{name}.w {{}}", 2, constant(2, 0, change), before=("move.w #0,%ccr",))


def _bits() -> Iterator[M68kInstruction]:
    """Operations on a bit of a byte, and on bit fields of several bytes."""
    rows: list[tuple[str, int, Change]] = [("bset", 0x80, "or"), ("bclr", 0x7F, "and"), ("bchg", 0x80, "xor")]
    for name, value, change in rows:
        yield M68kInstruction(f"{name} #7,{{}}", 1, constant(1, value, change), words=1)
        moves = constant(1, value, change)
        yield M68kInstruction(f"{name} %d5,{{}}", 1, moves, before=("moveq #7,%d5",), results=((5, 7),))
    shown = ("sne %d3", "extb.l %d3")
    yield M68kInstruction("btst #7,{}", 1, SIGN, words=1, after=shown)
    yield M68kInstruction("btst %d5,{}", 1, SIGN, before=("moveq #7,%d5",), results=((5, 7),), after=shown)
    yield M68kInstruction("tas {}", 1, constant(1, 0x80, "or"))
    yield M68kInstruction("st {}", 1, constant(1, -1))
    yield M68kInstruction("sf {}", 1, constant(1, 0))
    yield M68kInstruction("seq {}", 1, constant(1, -1), before=("move.w #4,%ccr",))
    yield from _fields()


def _fields() -> Iterator[M68kInstruction]:
    """Bit fields: of whole bytes, so that there is something to compare them with."""

    def each(text: str, moves: tuple[Move, ...], after: tuple[str, ...] = ()) -> M68kInstruction:
        return M68kInstruction(text, 1, moves, words=1, unit=1, only=is_control, after=after)

    def memory(first: int, size: int, change: Change) -> tuple[Move, ...]:
        return (Move("store", first, MEMORY, size, change=change, constant=-1),)

    yield each("bfextu {}{{#0:#32}},%d2", (Move("load", 0, 8, 4),))
    yield each("bfextu {}{{#8:#16}},%d2", (Move("load", 1, 10, 2, 2),))
    yield each("bfextu {}{{#24:#24}},%d2", (Move("load", 3, 9, 3, 1),))
    yield each("bfexts {}{{#8:#16}},%d2", (Move("load", 1, 10, 2, 2, True),))
    yield each("bfexts {}{{#24:#8}},%d2", (Move("load", 3, 11, 1, 3, True),))
    yield each("bfins %d2,{}{{#0:#32}}", (Move("store", 0, 8, 4),))
    yield each("bfins %d2,{}{{#24:#24}}", (Move("store", 3, 9, 3),))
    yield each("bfchg {}{{#8:#24}}", memory(1, 3, "xor"))
    yield each("bfset {}{{#16:#32}}", memory(2, 4, ""))
    yield each("bfclr {}{{#8:#16}}", (Move("store", 1, MEMORY, 2, constant=0),))
    yield each("bftst {}{{#8:#16}}", (Move("load", 1, 16, 0, 4, True),), SHOWN_SIGN)


def _exchanges() -> Iterator[M68kInstruction]:
    """CAS with a value that differs from memory, and with the value in memory; CAS2 twice with the same place."""
    for letter, size in (("b", 1), ("w", 2), ("l", 4)):
        got, put = Move("load", 0, low(VALUE, size), size), Move("store", 0, low(OTHER, size), size)
        nothing = Move("store", 0, 0, 0)
        # The lowest byte of %d7 is not among those that are accessed.
        moves = (Move("load", 0, low(7, size), size), nothing)
        yield M68kInstruction(f"cas.{letter} %d7,%d3,{{}}", size, moves, words=1)
        fetch, text = (f"move.{letter} {{}},%d2",), f"cas.{letter} %d2,%d3,{{}}"
        yield M68kInstruction(text, size, (got, put), words=1, before=fetch, only=is_control)
        if size > 1:
            both = (got, Move("load", 0, low(OTHER, size), size), nothing)
            yield M68kInstruction(
                f"cas2.{letter} %d2:%d3,%d6:%d7,(%a0):(%a0)", size, both, words=2, address=AddressForm("")
            )


def operations() -> Iterator[M68kInstruction]:
    """Everything that does more with an integer than to move it."""
    yield from _arithmetic()
    yield from _comparisons()
    yield from _products()
    yield from _shifts()
    yield from _bits()
    yield from _exchanges()
