"""Loads and stores of general and floating-point registers of z/Architecture, as they are, in parts and reversed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.isa.encodings.encoding import Move, directions
from harness.isa.encodings.s390x.instruction import (
    INDEX,
    PAIR,
    VALUE,
    VECTOR,
    S390xInstruction,
    high,
    load,
    low,
    store,
    vector,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.core.target_model import AccessClass
    from harness.isa.encodings.encoding import Encoding


def _loads() -> Iterator[Encoding]:
    rows: list[tuple[str, str, int, int, bool]] = [
        ("RX", "l", 4, 0, False),
        ("RXY", "ly", 4, 0, False),
        ("RXY", "lg", 8, 0, False),
        ("RXY", "lgf", 4, 4, True),
        ("RXY", "llgf", 4, 4, False),
        ("RX", "lh", 2, 2, True),
        ("RXY", "lhy", 2, 2, True),
        ("RXY", "lgh", 2, 6, True),
        ("RXY", "llh", 2, 2, False),
        ("RXY", "llgh", 2, 6, False),
        ("RXY", "lb", 1, 3, True),
        ("RXY", "lgb", 1, 7, True),
        ("RXY", "llc", 1, 3, False),
        ("RXY", "llgc", 1, 7, False),
        ("RX", "ic", 1, 0, False),
        ("RXY", "icy", 1, 0, False),
        ("RXY", "lt", 4, 0, False),
        ("RXY", "ltg", 8, 0, False),
        ("RXY", "ltgf", 4, 4, True),
        # They trap where they load zero, which is nowhere here.
        ("RXY", "lat", 4, 0, False),
        ("RXY", "lgat", 8, 0, False),
        ("RXY", "llgfat", 4, 4, False),
    ]
    for kind, name, size, fills, is_signed in rows:
        yield from S390xInstruction(
            kind, f"{name} %r{VALUE},{{}}", load(size, VALUE, fills, is_signed=is_signed), size
        ).at_each_address()
    of_high_words: list[tuple[str, int, int, bool]] = [
        ("lfh", 4, 0, False),
        ("lfhat", 4, 0, False),
        ("lhh", 2, 2, True),
        ("llhh", 2, 2, False),
        ("lbh", 1, 3, True),
        ("llch", 1, 3, False),
    ]
    for name, size, fills, is_signed in of_high_words:
        move = Move("load", 0, high(VALUE) + fills, size, fills, is_signed)
        yield from S390xInstruction("RXY", f"{name} %r{VALUE},{{}}", (move,), size).at_each_address()
    # The rightmost byte becomes zero.
    for name, size, fills in (("lzrf", 4, 0), ("lzrg", 8, 0), ("llzrgf", 4, 4)):
        moves = (Move("load", 0, low(VALUE, size), size - 1, fills), Move("load", 0, low(VALUE, 0), 0, 1))
        yield from S390xInstruction("RXY", f"{name} %r{VALUE},{{}}", moves, size).at_each_address()


def _stores() -> Iterator[Encoding]:
    rows = [("RX", "st", 4), ("RXY", "sty", 4), ("RXY", "stg", 8), ("RX", "sth", 2), ("RXY", "sthy", 2)]
    for kind, name, size in (*rows, ("RX", "stc", 1), ("RXY", "stcy", 1)):
        yield from S390xInstruction(kind, f"{name} %r{VALUE},{{}}", store(size), size).at_each_address()
    for name, size in (("stfh", 4), ("sthh", 2), ("stch", 1)):
        yield from S390xInstruction(
            "RXY", f"{name} %r{VALUE},{{}}", (Move("store", 0, high(VALUE) + 4 - size, size),), size
        ).at_each_address()
    # A constant that a register, which it does not name, has too.
    for name, size in (("mvhhi", 2), ("mvhi", 4), ("mvghi", 8)):
        one = S390xInstruction("SIL", f"{name} {{}},-77", store(size, INDEX), size, preset=(INDEX, -77))
        yield from one.at_each_address()
    for kind, name in (("SI", "mvi"), ("SIY", "mviy")):
        one = S390xInstruction(kind, f"{name} {{}},77", store(1, INDEX), 1, preset=(INDEX, 77))
        yield from one.at_each_address()


def _reversed() -> Iterator[Encoding]:
    for letter, size in (("h", 2), ("", 4), ("g", 8)):
        for name, direction in directions(f"lrv{letter}", f"strv{letter}"):
            moves = tuple(Move(direction, i, low(VALUE, 1) - i, 1) for i in range(size))
            yield from S390xInstruction("RXY", f"{name} %r{VALUE},{{}}", moves, size).at_each_address()


def _on_condition() -> Iterator[Encoding]:
    """Loads and stores on condition. A slot begins with condition code 3, whose bit in the mask is the lowest."""
    rows = [
        ("loc", "stoc", 4, low(VALUE, 4)),
        ("locg", "stocg", 8, low(VALUE, 8)),
        ("locfh", "stocfh", 4, high(VALUE)),
    ]
    for loads, stores, size, register in rows:
        for name, direction in directions(loads, stores):
            yield from S390xInstruction(
                "RSY", f"{name} %r{VALUE},{{}},1", (Move(direction, 0, register, size),), size
            ).at_each_address()


def _multiples() -> Iterator[Encoding]:
    rows: list[tuple[str, str, int, bool]] = [("RS", "m", 4, False), ("RSY", "my", 4, False), ("RSY", "mg", 8, False)]
    for kind, letters, size, is_high in (*rows, ("RSY", "mh", 4, True)):
        for name, direction in directions(f"l{letters}", f"st{letters}"):
            if name == "stmh":  # See `unmade`.
                continue
            for count in (2, 3):
                moves = tuple(
                    Move(direction, size * i, high(PAIR + i) if is_high else low(PAIR + i, size), size)
                    for i in range(count)
                )
                operand = f"%r{PAIR},%r{PAIR + count - 1}"
                kind_of: AccessClass = "word" if is_high else "multi"
                yield from S390xInstruction(kind, f"{name} {operand},{{}}", moves, size, kind_of).at_each_address()
    for name, direction in directions("lpq", "stpq"):
        yield from S390xInstruction(
            "RXY", f"{name} %r{PAIR},{{}}", (Move(direction, 0, high(PAIR), 16),), 16
        ).at_each_address()


def _floats() -> Iterator[Encoding]:
    for kind, letter in (("RX", ""), ("RXY", "y")):
        for name, access_class, size in (("e", "float", 4), ("d", "double", 8)):
            for each, direction in directions(f"l{name}{letter}", f"st{name}{letter}"):
                named: AccessClass = "float" if access_class == "float" else "double"
                yield from S390xInstruction(
                    kind, f"{each} %f{VECTOR},{{}}", (Move(direction, 0, vector(), size),), size, named
                ).at_each_address()


def _masked() -> Iterator[Encoding]:
    """INSERT and STORE CHARACTERS UNDER MASK, which are of bytes."""
    for kind, letter, first in (("RS", "", 4), ("RSY", "y", 4), ("RSY", "h", 0)):
        for mask in (15, 7, 5, 3, 8):
            places = [high(VALUE) + first + i for i in range(4) if mask & 8 >> i]
            for name, direction in directions(f"icm{letter}", f"stcm{letter}"):
                moves = tuple(Move(direction, i, place, 1) for i, place in enumerate(places))
                yield from S390xInstruction(kind, f"{name} %r{VALUE},{mask},{{}}", moves, 1).at_each_address()


def loads_and_stores() -> Iterator[Encoding]:
    """Everything that moves such registers and does not calculate."""
    yield from _loads()
    yield from _stores()
    yield from _reversed()
    yield from _on_condition()
    yield from _multiples()
    yield from _floats()
    yield from _masked()
