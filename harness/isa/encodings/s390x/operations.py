"""Instructions of z/Architecture that calculate or compare with memory, that change it, and strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.isa.encodings.encoding import AddressForm, Move
from harness.isa.encodings.s390x.instruction import (
    ADDRESSES,
    BASE,
    CONDITION,
    MEMORY,
    PAIR,
    VALUE,
    S390xInstruction,
    high,
    load,
    low,
    store,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.isa.encodings.encoding import Encoding


def _identities() -> Iterator[Encoding]:
    """Calculations with an operand for which the result is the value in memory. The operand is also the index, if there
    is one.
    """
    rows: list[tuple[str, int, int, bool, int]] = [
        ("a ay al aly o oy x xy", 4, 0, False, 0),
        ("ag alg og xg", 8, 0, False, 0),
        ("agf", 4, 4, True, 0),
        ("algf", 4, 4, False, 0),
        ("ah ahy", 2, 2, True, 0),
        ("agh", 2, 6, True, 0),
        ("n ny", 4, 0, False, -1),
        ("ng", 8, 0, False, -1),
        ("ms msy msc", 4, 0, False, 1),
        ("msg msgc", 8, 0, False, 1),
        ("msgf", 4, 4, True, 1),
        ("mh mhy", 2, 2, True, 1),
        ("mgh", 2, 6, True, 1),
    ]
    # These extend only the half of a register that they are of.
    of_words = {"ah", "ahy", "mh", "mhy"}
    for names, size, fills, is_signed, identity in rows:
        for name in names.split():
            kind = "RX" if name in {"a", "al", "o", "x", "ah", "n", "ms", "mh"} else "RXY"
            assert (name in of_words) == (fills == 2)
            yield from _with_operand(kind, name, load(size, VALUE, fills, is_signed=is_signed), size, (VALUE, identity))
    # The carry of condition code 3 is one that they add, so that the operand is one less.
    for name, size in (("alc", 4), ("alcg", 8)):
        yield from _with_operand("RXY", name, load(size), size, (VALUE, -1))
    # With a pair, of which the odd register is multiplied, the even one has the high half.
    odd = PAIR + 1
    products: list[tuple[str, str, int, bool]] = [
        ("RX", "m", 4, True),
        ("RXY", "mfy", 4, True),
        ("RXY", "ml", 4, False),
        ("RXY", "mg", 8, True),
        ("RXY", "mlg", 8, False),
    ]
    for kind, name, size, is_signed in products:
        moves = (*load(size, odd), Move("load", 0, low(PAIR, 0), 0, size, is_signed))
        yield from _with_operand(kind, name, moves, size, (odd, 1), f"%r{PAIR}")


def _with_operand(
    kind: str, name: str, moves: tuple[Move, ...], size: int, operand: tuple[int, int], text: str = f"%r{VALUE}"
) -> Iterator[Encoding]:
    register, value = operand
    for address in ADDRESSES[kind]:
        at = address
        if address.index_register:
            at = AddressForm(f"8(%r{register},%r{BASE})", 8 + value)
        yield S390xInstruction(kind, f"{name} {text},{at.text}", moves, size, preset=operand).at(at)


def _fetched(size: int, name: str, registers: str = "%r0") -> tuple[str, ...]:
    """Load the memory into %r0, or into several registers, by an instruction of this name."""
    return ("lay %r14,{}", f"mvc 160({size},%r15),0(%r14)", f"{name} {registers},160(%r15)")


def _additions() -> Iterator[Encoding]:
    """ADD IMMEDIATE to memory, of 0, so that it stays; a logical sum without a carry has the condition code 1."""
    nothing = (Move("store", 0, 0, 0),)
    for name, size in (("asi", 4), ("agsi", 8)):
        yield from S390xInstruction("SIY", f"{name} {{}},0", nothing, size).at_each_address()
    for name, size in (("alsi", 4), ("algsi", 8)):
        one = S390xInstruction("SIY", f"{name} {{}},0", nothing, size)
        yield from one._replace(results=((CONDITION, 1),), before=("mvi 184(%r15),1",)).at_each_address()


def _comparisons() -> Iterator[Encoding]:
    """Comparisons with the value in memory, loaded before: both are equal, so differences are zero."""
    rows: list[tuple[str, str, int, str, int]] = [
        ("RX", "c", 4, "l", 0),
        ("RXY", "cy", 4, "l", 0),
        ("RXY", "cg", 8, "lg", 0),
        ("RXY", "cgf", 4, "lgf", 0),
        ("RX", "ch", 2, "lgh", 0),
        ("RXY", "chy", 2, "lgh", 0),
        ("RXY", "cgh", 2, "lgh", 0),
        ("RXY", "chf", 4, "lfh", 0),
        ("RX", "cl", 4, "l", 0),
        ("RXY", "cly", 4, "l", 0),
        ("RXY", "clg", 8, "lg", 0),
        ("RXY", "clgf", 4, "llgf", 0),
        ("RXY", "clhf", 4, "lfh", 0),
        ("RX", "s", 4, "l", 0),
        ("RXY", "sy", 4, "l", 0),
        ("RXY", "sg", 8, "lg", 0),
        ("RXY", "sgf", 4, "lgf", 0),
        ("RX", "sh", 2, "lgh", 0),
        ("RXY", "shy", 2, "lgh", 0),
        ("RXY", "sgh", 2, "lgh", 0),
        # A logical difference of zero has the condition code 2 (7, SUBTRACT LOGICAL).
        ("RX", "sl", 4, "l", 2),
        ("RXY", "sly", 4, "l", 2),
        ("RXY", "slg", 8, "lg", 2),
        ("RXY", "slgf", 4, "llgf", 2),
        ("RXY", "slb", 4, "l", 2),
        ("RXY", "slbg", 8, "lg", 2),
    ]
    for kind, name, size, fetching, condition in rows:
        results = ((CONDITION, condition),)
        before = _fetched(size, fetching) + ((f"mvi 184(%r15),{condition}",) if condition else ())
        one = S390xInstruction(kind, f"{name} %r0,{{}}", (), size, results=results, before=before)
        yield from one.at_each_address()
    for kind, name, fetching in (("RS", "clm", "l"), ("RSY", "clmy", "l"), ("RSY", "clmh", "lfh")):
        one = S390xInstruction(kind, f"{name} %r0,15,{{}}", (), 1, results=((CONDITION, 0),))
        yield from one._replace(before=_fetched(4, fetching)).at_each_address()


def _interlocked() -> Iterator[Encoding]:
    """Interlocked accesses: they load the value in memory; the operand decides what they store."""
    for letter, size in (("", 4), ("g", 8)):
        for name, operand, stores in (
            ("laa", 0, False),
            ("laal", 0, False),
            ("lan", 0, True),
            ("lan", -1, False),
            ("lao", -1, True),
            ("lao", 0, False),
            ("lax", 0, False),
        ):
            # A register whose number says which of two rows of an instruction it is.
            register = PAIR if stores else PAIR + 1
            moves = (*load(size), *(store(size, register) if stores else ()))
            one = S390xInstruction("RSY", f"{name}{letter} %r{VALUE},%r{register},{{}}", moves, size, "cas", "store")
            results = ((CONDITION, 0),) if name == "lan" and stores else ()
            yield from one._replace(preset=(register, operand), results=results).at_each_address()


def _compare_and_swap() -> Iterator[Encoding]:
    """Compare and swap with the value in memory, loaded before, which succeeds and stores; and with another value,
    which fails and loads.
    """
    for kind, name, size, fetching in (("RS", "cs", 4, "l"), ("RSY", "csy", 4, "l"), ("RSY", "csg", 8, "lg")):
        success = S390xInstruction(kind, f"{name} %r0,%r{VALUE},{{}}", store(size), size, "cas", "store")
        yield from _swapped(success, _fetched(size, fetching))
        failure = S390xInstruction(kind, f"{name} %r{PAIR},%r{VALUE},{{}}", load(size, PAIR), size, "cas", "store")
        yield from failure.at_each_address()


def _compare_double_and_swap() -> Iterator[Encoding]:
    """CDS and CDSG: the same with two registers, of which the first has an even number."""
    for kind, name, size, fetching in (("RS", "cds", 4, "lm"), ("RSY", "cdsy", 4, "lm"), ("RSY", "cdsg", 8, "lmg")):
        stored = tuple(Move("store", size * i, low(PAIR + 2 + i, size), size) for i in range(2))
        loaded = tuple(Move("load", size * i, low(PAIR + i, size), size) for i in range(2))
        success = S390xInstruction(kind, f"{name} %r0,%r{PAIR + 2},{{}}", stored, 2 * size, "cas", "store")
        yield from _swapped(success, _fetched(2 * size, fetching, "%r0,%r1"))
        failure = S390xInstruction(kind, f"{name} %r{PAIR},%r{PAIR + 2},{{}}", loaded, 2 * size, "cas", "store")
        yield from failure.at_each_address()


def _swapped(one: S390xInstruction, before: tuple[str, ...]) -> Iterator[Encoding]:
    """What finds what it compares with, and says so by the condition code 0."""
    return one._replace(results=((CONDITION, 0),), before=before).at_each_address()


def _strings() -> Iterator[Encoding]:
    """Strings of bytes. The other operand is in the register file: the moved value, or a copy of the memory."""
    here, there = f"{high(VALUE)}(%r1)", f"{8 * MEMORY}(%r1)"
    for address in ADDRESSES["RS"]:
        displacement = address.text.partition("(")[0]
        for size in (2, 4, 8):
            operand = f"{displacement}({size},%r{BASE})"
            kept = f"{8 * MEMORY}({size},%r1)"
            rows: list[tuple[str, tuple[Move, ...], tuple[int, int] | None]] = [
                (f"mvc {operand},{here}", (Move("store", 0, high(VALUE), size),), None),
                (f"mvc {kept},{address.text}", (Move("load", 0, 8 * MEMORY, size),), None),
                (f"oc {kept},{address.text}", (Move("load", 0, 8 * MEMORY, size),), (MEMORY, 0)),
                (f"xc {kept},{address.text}", (Move("load", 0, 8 * MEMORY, size),), (MEMORY, 0)),
                (f"nc {kept},{address.text}", (Move("load", 0, 8 * MEMORY, size),), (MEMORY, -1)),
                (f"nc {operand},{there}", (Move("store", 0, 8 * MEMORY, size),), (MEMORY, 0)),
                (f"oc {operand},{there}", (Move("store", 0, 8 * MEMORY, size),), (MEMORY, -1)),
                (f"xc {operand},{address.text}", (Move("store", 0, 8 * MEMORY, size),), (MEMORY, 0)),
            ]
            for text, moves, preset in rows:
                # XC with itself and NC with zeros have the condition code 0.
                zero = moves[0].direction == "store" and preset == (MEMORY, 0)
                results = ((CONDITION, 0),) if zero else ()
                yield S390xInstruction("SS", text, moves, 1, preset=preset, results=results).at(address)
            yield S390xInstruction(
                "SS",
                f"clc {operand},160(%r15)",
                (),
                1,
                results=((CONDITION, 0),),
                before=(f"mvc 160({size},%r15),{address.text}",),
            ).at(address)


def operations() -> Iterator[Encoding]:
    """Everything that does more than to move, and strings of bytes."""
    yield from _identities()
    yield from _additions()
    yield from _comparisons()
    yield from _interlocked()
    yield from _compare_and_swap()
    yield from _compare_double_and_swap()
    yield from _strings()
