"""Loads and stores of vector registers of z/Architecture: whole, by elements, reversed, and in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.isa.encodings.encoding import AddressForm, Move, directions
from harness.isa.encodings.s390x.instruction import (
    ADDRESSES,
    BASE,
    INDEX,
    INDEX_VALUE,
    VALUE,
    VECTOR,
    S390xInstruction,
    vector,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.isa.encodings.encoding import Direction, Encoding


def _whole_vectors() -> Iterator[Encoding]:
    """The emulator moves doublewords where the architecture has 16 bytes of no alignment at all."""
    at, operand = vector(), f"%v{VECTOR}"
    for name, direction in directions("vl", "vst"):
        one = S390xInstruction("VRX", f"{name} {operand},{{}}", (Move(direction, 0, at, 16),), 8)
        yield from one.at_each_address()
    for name, direction in directions("vlm", "vstm"):
        one = S390xInstruction("VRS", f"{name} {operand},%v{VECTOR + 2},{{}}", (Move(direction, 0, at, 48),), 8)
        yield from one.at_each_address()


def _elements() -> Iterator[Encoding]:
    """One element, as it is or with its bytes in the other order."""
    at = vector()
    for letter, size in {"b": 1, "h": 2, "f": 4, "g": 8}.items():
        for element in (0, 16 // size - 1):
            for name, direction in directions(f"vle{letter}", f"vste{letter}"):
                yield from _of_element(name, (Move(direction, 0, at + size * element, size),), size, element)
            for name, direction in directions(f"vlebr{letter}", f"vstebr{letter}"):
                if size > 1:
                    yield from _of_element(name, _backward(direction, at + size * element, size), size, element)


def _copies() -> Iterator[Encoding]:
    """An element to all of a register, or to its left half with zeros around it; in both orders of bytes."""
    at, rest = vector(), Move("load", 0, vector() + 16, 0, 8)
    for letter, size in {"b": 1, "h": 2, "f": 4, "g": 8}.items():
        places, last = range(at, at + 16, size), at + 8 - size
        yield from _of_element(f"vlrep{letter}", tuple(Move("load", 0, place, size) for place in places), size)
        yield from _of_element(f"vllez{letter}", (Move("load", 0, last, size, 8 - size), rest), size)
        if size > 1:
            everywhere = tuple(move for place in places for move in _backward("load", place, size))
            yield from _of_element(f"vlbrrep{letter}", everywhere, size)
            zeros = (Move("load", 0, last, 0, 8 - size), rest)
            yield from _of_element(f"vllebrz{letter}", (*_backward("load", last, size), *zeros), size)


def _of_element(name: str, moves: tuple[Move, ...], size: int, element: int | None = None) -> Iterator[Encoding]:
    behind = "" if element is None else f",{element}"
    return S390xInstruction("VRX", f"{name} %v{VECTOR},{{}}{behind}", moves, size).at_each_address()


def _backward(direction: Direction, register: int, size: int, memory: int = 0) -> tuple[Move, ...]:
    """The bytes of an element in the other order."""
    return tuple(Move(direction, memory + i, register + size - 1 - i, 1) for i in range(size))


def _backward_vectors() -> Iterator[Encoding]:
    """Whole registers, with each element's bytes in the other order or with the elements in the other order."""
    at, operand = vector(), f"%v{VECTOR}"
    for letter, size in {"h": 2, "f": 4, "g": 8, "q": 16}.items():
        for name, direction in directions("vlbr", "vstbr"):
            moves = tuple(move for i in range(0, 16, size) for move in _backward(direction, at + i, size, i))
            yield from S390xInstruction("VRX", f"{name}{letter} {operand},{{}}", moves, 8).at_each_address()
        for name, direction in directions("vler", "vster") if size < 16 else ():
            moves = tuple(Move(direction, i, at + 16 - size - i, size) for i in range(0, 16, size))
            yield from S390xInstruction("VRX", f"{name}{letter} {operand},{{}}", moves, 8).at_each_address()


def _parts_of_vectors() -> Iterator[Encoding]:
    """As many bytes as a register says, and elements whose offsets are in another vector."""
    at, operand = vector(), f"%v{VECTOR}"
    for count in (11, 16):
        for address in ADDRESSES["RS"]:
            # Two registers, so that the text says how many bytes it is.
            register = VALUE if count == 16 else INDEX
            preset = (register, count - 1)
            rest = (Move("load", 0, at + 16, 0, 16 - count),) if count < 16 else ()
            for name, moves in (("vll", (Move("load", 0, at, count), *rest)), ("vstl", (Move("store", 0, at, count),))):
                text = f"{name} {operand},%r{register},{address.text}"
                yield S390xInstruction("VRS", text, moves, 1, preset=preset).at(address)
    indexes = 3
    for letter, size, value in (("f", 4, INDEX_VALUE << 32), ("g", 8, INDEX_VALUE)):
        for address in ADDRESSES["RS"]:
            # The index is the first element of %v3.
            preset = (vector(indexes) // 8, value)
            there = AddressForm(address.text, address.displacement + INDEX_VALUE)
            memory = f"{address.displacement}(%v{indexes},%r{BASE})"
            for name, direction in directions(f"vge{letter}", f"vsce{letter}"):
                moves = (Move(direction, 0, at, size),)
                yield S390xInstruction("VRV", f"{name} {operand},{memory},0", moves, size, preset=preset).at(there)


def vector_registers() -> Iterator[Encoding]:
    """Everything that moves vector registers."""
    yield from _whole_vectors()
    yield from _elements()
    yield from _copies()
    yield from _backward_vectors()
    yield from _parts_of_vectors()
