"""Loads and stores of z/Architecture in instructions of 4 and 6 bytes, up to the vector enhancements of a z15.

Sections are those of the Principles of Operation (SA22-7832-12): instructions' names in chapters 7, 9, 19 and 21.
Displacements, registers and lengths are samples; all opcodes are made. What calculates has an operand with which the
result is what lay in memory. What compares has the operand fetched before by MVC, which asks for no alignment.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from harness.isa.encodings.encoding import (
    AddressForm,
    DecoderTable,
    Encoding,
    EncodingTable,
    Exempt,
    Move,
    RowForm,
    SlotForm,
    directions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.core.target_model import AccessClass
    from harness.isa.encodings.encoding import Direction

FOLDER = Path(__file__).parent
VALUE, BASE, INDEX, PAIR = 3, 4, 5, 6
"""%r3 is moved, %r4 is the base, %r5 the index; %r6 to %r8 are moved together."""
CONDITION, MEMORY, VECTORS = 16, 17, 192
"""Numbers in the register file of the condition code and of the memory in it, and where %v0 begins."""
INDEX_VALUE = 24
VECTOR = 2
SHORT, LONG = "32", "48"
"""The two lengths of instructions, in bits."""
CLASSES: dict[int, AccessClass] = {1: "other", 2: "half", 4: "word", 8: "dword", 16: "other"}
NAME = re.compile(r"\w+")
_INDEXED = AddressForm(f"8(%r{INDEX},%r{BASE})", 8 + INDEX_VALUE, index_register=(INDEX, INDEX_VALUE))
_UNSIGNED = [AddressForm(f"{by}(%r{BASE})", by) for by in (0, 8, 0xFF8)]
_SIGNED = [AddressForm(f"{by}(%r{BASE})", by) for by in (0, -8, 0x7FFF8, -0x80000)]
ADDRESSES = {"RX": [*_UNSIGNED, _INDEXED], "RXY": [*_SIGNED, _INDEXED], "RS": _UNSIGNED, "RSY": _SIGNED}
"""Displacements of 12 bits and of 20, with an index and without one."""


def _low(register: int, size: int) -> int:
    """Where the lowest bytes of a register lie."""
    return 8 * register + 8 - size


def _high(register: int) -> int:
    return 8 * register


def _vector(register: int = VECTOR) -> int:
    """A vector register, whose leftmost bytes are the floating-point register of that number."""
    return VECTORS + 16 * register


def _load(size: int, register: int = VALUE, fills: int = 0, *, is_signed: bool = False) -> tuple[Move, ...]:
    return (Move("load", 0, _low(register, size), size, fills, is_signed),)


def _store(size: int, register: int = VALUE) -> tuple[Move, ...]:
    return (Move("store", 0, _low(register, size), size),)


def _made(
    kind: str,
    text: str,
    moves: tuple[Move, ...],
    *,
    address: AddressForm,
    unit: int,
    access_class: AccessClass | None = None,
    preset: tuple[int, int] | None = None,
    results: tuple[tuple[int, int], ...] = (),
    before: tuple[str, ...] = (),
    direction: Direction | None = None,
    hint: int = 0,
) -> Encoding:
    """An encoding of a format; `preset` is a register's value where the address has no index."""
    stores = any(move.direction == "store" for move in moves)
    return Encoding(
        state=SHORT if kind in {"RX", "RS", "SI"} else LONG,
        text=text,
        section=NAME.findall(text)[0].upper(),
        access_class=access_class or CLASSES[unit],
        direction=direction or ("store" if stores else "load"),
        unit_bytes=unit,
        base=BASE,
        moves=moves,
        displacement=address.displacement,
        index_register=preset or address.index_register,
        results=results,
        hint_bytes=hint,
        before=before,
    )


def _each(
    kind: str,
    name: str,
    moves: tuple[Move, ...],
    unit: int,
    operand: str = f"%r{VALUE}",
    access_class: AccessClass | None = None,
    behind: str = "",
) -> Iterator[Encoding]:
    """An instruction at every address that its format can have."""
    for address in ADDRESSES[kind]:
        yield _made(
            kind,
            f"{name} {operand},{address.text}{behind}",
            moves,
            address=address,
            unit=unit,
            access_class=access_class,
        )


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
        yield from _each(kind, name, _load(size, VALUE, fills, is_signed=is_signed), size)
    high: list[tuple[str, int, int, bool]] = [
        ("lfh", 4, 0, False),
        ("lfhat", 4, 0, False),
        ("lhh", 2, 2, True),
        ("llhh", 2, 2, False),
        ("lbh", 1, 3, True),
        ("llch", 1, 3, False),
    ]
    for name, size, fills, is_signed in high:
        move = Move("load", 0, _high(VALUE) + fills, size, fills, is_signed)
        yield from _each("RXY", name, (move,), size)
    # The rightmost byte becomes zero.
    for name, size, fills in (("lzrf", 4, 0), ("lzrg", 8, 0), ("llzrgf", 4, 4)):
        moves = (Move("load", 0, _low(VALUE, size), size - 1, fills), Move("load", 0, _low(VALUE, 0), 0, 1))
        yield from _each("RXY", name, moves, size)


def _stores() -> Iterator[Encoding]:
    rows = [("RX", "st", 4), ("RXY", "sty", 4), ("RXY", "stg", 8), ("RX", "sth", 2), ("RXY", "sthy", 2)]
    for kind, name, size in (*rows, ("RX", "stc", 1), ("RXY", "stcy", 1)):
        yield from _each(kind, name, _store(size), size)
    for name, size in (("stfh", 4), ("sthh", 2), ("stch", 1)):
        yield from _each("RXY", name, (Move("store", 0, _high(VALUE) + 4 - size, size),), size)
    # A constant that a register, which it does not name, has too.
    for name, size in (("mvhhi", 2), ("mvhi", 4), ("mvghi", 8)):
        for address in ADDRESSES["RS"]:
            moves = _store(size, INDEX)
            yield _made("SIL", f"{name} {address.text},-77", moves, address=address, unit=size, preset=(INDEX, -77))
    for kind, name, addresses in (("SI", "mvi", "RS"), ("SIY", "mviy", "RSY")):
        for address in ADDRESSES[addresses]:
            moves = _store(1, INDEX)
            yield _made(kind, f"{name} {address.text},77", moves, address=address, unit=1, preset=(INDEX, 77))


def _reversed() -> Iterator[Encoding]:
    for letter, size in (("h", 2), ("", 4), ("g", 8)):
        for name, direction in directions(f"lrv{letter}", f"strv{letter}"):
            moves = tuple(Move(direction, i, _low(VALUE, 1) - i, 1) for i in range(size))
            yield from _each("RXY", name, moves, size)


def _on_condition() -> Iterator[Encoding]:
    """With the condition code 3, as a slot begins: its bit is the lowest one."""
    rows = [
        ("loc", "stoc", 4, _low(VALUE, 4)),
        ("locg", "stocg", 8, _low(VALUE, 8)),
        ("locfh", "stocfh", 4, _high(VALUE)),
    ]
    for load, store, size, register in rows:
        for name, direction in directions(load, store):
            yield from _each("RSY", name, (Move(direction, 0, register, size),), size, behind=",1")


def _multiples() -> Iterator[Encoding]:
    rows: list[tuple[str, str, int, bool]] = [("RS", "m", 4, False), ("RSY", "my", 4, False), ("RSY", "mg", 8, False)]
    for kind, letters, size, is_high in (*rows, ("RSY", "mh", 4, True)):
        for name, direction in directions(f"l{letters}", f"st{letters}"):
            if name == "stmh":  # See `unmade`.
                continue
            for count in (2, 3):
                moves = tuple(
                    Move(direction, size * i, _high(PAIR + i) if is_high else _low(PAIR + i, size), size)
                    for i in range(count)
                )
                operand = f"%r{PAIR},%r{PAIR + count - 1}"
                kind_of: AccessClass = "word" if is_high else "multi"
                yield from _each(kind, name, moves, size, operand, kind_of)
    for name, direction in directions("lpq", "stpq"):
        yield from _each("RXY", name, (Move(direction, 0, _high(PAIR), 16),), 16, f"%r{PAIR}")


def _floats() -> Iterator[Encoding]:
    for kind, letter in (("RX", ""), ("RXY", "y")):
        for name, access_class, size in (("e", "float", 4), ("d", "double", 8)):
            for each, direction in directions(f"l{name}{letter}", f"st{name}{letter}"):
                named: AccessClass = "float" if access_class == "float" else "double"
                yield from _each(kind, each, (Move(direction, 0, _vector(), size),), size, f"%f{VECTOR}", named)


def _masked() -> Iterator[Encoding]:
    """INSERT and STORE CHARACTERS UNDER MASK, which are of bytes."""
    for kind, letter, first in (("RS", "", 4), ("RSY", "y", 4), ("RSY", "h", 0)):
        for mask in (15, 7, 5, 3, 8):
            places = [_high(VALUE) + first + i for i in range(4) if mask & 8 >> i]
            for name, direction in directions(f"icm{letter}", f"stcm{letter}"):
                moves = tuple(Move(direction, i, place, 1) for i, place in enumerate(places))
                yield from _each(kind, name, moves, 1, f"%r{VALUE},{mask}")


def _identities() -> Iterator[Encoding]:
    """What calculates with an operand that gives what is in memory. It is the index, too, where there is one."""
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
            yield from _with_operand(
                kind, name, _load(size, VALUE, fills, is_signed=is_signed), size, (VALUE, identity)
            )
    # The carry of condition code 3 is one that they add, so that the operand is one less.
    for name, size in (("alc", 4), ("alcg", 8)):
        yield from _with_operand("RXY", name, _load(size), size, (VALUE, -1))
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
        moves = (*_load(size, odd), Move("load", 0, _low(PAIR, 0), 0, size, is_signed))
        yield from _with_operand(kind, name, moves, size, (odd, 1), f"%r{PAIR}")


def _with_operand(
    kind: str, name: str, moves: tuple[Move, ...], size: int, operand: tuple[int, int], text: str = f"%r{VALUE}"
) -> Iterator[Encoding]:
    register, value = operand
    for address in ADDRESSES[kind]:
        at = address
        if address.index_register:
            at = AddressForm(f"8(%r{register},%r{BASE})", 8 + value)
        yield _made(kind, f"{name} {text},{at.text}", moves, address=at, unit=size, preset=operand)


def _fetched(address: AddressForm, size: int, load: str) -> tuple[str, ...]:
    """Bring what is there to %r0."""
    return (f"lay %r14,{address.text}", f"mvc 160({size},%r15),0(%r14)", f"{load} %r0,160(%r15)")


def _additions() -> Iterator[Encoding]:
    """ADD IMMEDIATE to memory, of 0, so that it stays; a logical sum without a carry has the condition code 1."""
    for name, size, condition in (("asi", 4, None), ("agsi", 8, None), ("alsi", 4, 1), ("algsi", 8, 1)):
        for address in ADDRESSES["RSY"]:
            yield _made(
                "SIY",
                f"{name} {address.text},0",
                (Move("store", 0, 0, 0),),
                address=address,
                unit=size,
                results=((CONDITION, condition),) if condition else (),
                before=(f"mvi 184(%r15),{condition}",) if condition else (),
            )


def _comparisons() -> Iterator[Encoding]:
    """With what is there, fetched before: they are equal, and so differences are zero."""
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
    for kind, name, size, load, condition in rows:
        for address in ADDRESSES[kind]:
            before = _fetched(address, size, load) + ((f"mvi 184(%r15),{condition}",) if condition else ())
            yield _made(
                kind,
                f"{name} %r0,{address.text}",
                (),
                address=address,
                unit=size,
                results=((CONDITION, condition),),
                before=before,
            )
    for kind, name, load in (("RS", "clm", "l"), ("RSY", "clmy", "l"), ("RSY", "clmh", "lfh")):
        for address in ADDRESSES[kind]:
            yield _made(
                kind,
                f"{name} %r0,15,{address.text}",
                (),
                address=address,
                unit=1,
                results=((CONDITION, 0),),
                before=_fetched(address, 4, load),
            )


def _interlocked() -> Iterator[Encoding]:
    """They load what is there; the operand decides what they store."""
    for letter, size in (("", 4), ("g", 8)):
        load = _load(size)
        for name, operand, stores in (
            ("laa", 0, False),
            ("laal", 0, False),
            ("lan", 0, True),
            ("lan", -1, False),
            ("lao", -1, True),
            ("lao", 0, False),
            ("lax", 0, False),
        ):
            for address in ADDRESSES["RSY"]:
                # A register whose number says which of two rows of an instruction it is.
                operand_register = PAIR if stores else PAIR + 1
                moves = (*load, *(_store(size, operand_register) if stores else ()))
                yield _made(
                    "RSY",
                    f"{name}{letter} %r{VALUE},%r{operand_register},{address.text}",
                    moves,
                    address=address,
                    unit=size,
                    access_class="cas",
                    preset=(operand_register, operand),
                    results=((CONDITION, 0),) if name == "lan" and stores else (),
                    direction="store",
                )
    rows = [("RS", "cs", 4, "l"), ("RSY", "csy", 4, "l"), ("RSY", "csg", 8, "lg")]
    for kind, name, size, load_name in rows:
        for address in ADDRESSES[kind]:
            yield _made(
                kind,
                f"{name} %r0,%r{VALUE},{address.text}",
                _store(size),
                address=address,
                unit=size,
                access_class="cas",
                results=((CONDITION, 0),),
                before=_fetched(address, size, load_name),
            )
            yield _made(
                kind,
                f"{name} %r{PAIR},%r{VALUE},{address.text}",
                _load(size, PAIR),
                address=address,
                unit=size,
                access_class="cas",
                direction="store",
            )
    for kind, name, size, load_name in (("RS", "cds", 4, "lm"), ("RSY", "cdsy", 4, "lm"), ("RSY", "cdsg", 8, "lmg")):
        for address in ADDRESSES[kind]:
            stored = tuple(Move("store", size * i, _low(PAIR + 2 + i, size), size) for i in range(2))
            loaded = tuple(Move("load", size * i, _low(PAIR + i, size), size) for i in range(2))
            fetched = (
                f"lay %r14,{address.text}",
                f"mvc 160({2 * size},%r15),0(%r14)",
                f"{load_name} %r0,%r1,160(%r15)",
            )
            yield _made(
                kind,
                f"{name} %r0,%r{PAIR + 2},{address.text}",
                stored,
                address=address,
                unit=2 * size,
                access_class="cas",
                results=((CONDITION, 0),),
                before=fetched,
            )
            yield _made(
                kind,
                f"{name} %r{PAIR},%r{PAIR + 2},{address.text}",
                loaded,
                address=address,
                unit=2 * size,
                access_class="cas",
                direction="store",
            )


def _strings() -> Iterator[Encoding]:
    """Strings of bytes. The other operand is in the register file: the moved value, or the memory that is there."""
    here, there = f"{_high(VALUE)}(%r1)", f"{8 * MEMORY}(%r1)"
    for address in ADDRESSES["RS"]:
        displacement = address.text.partition("(")[0]
        for size in (2, 4, 8):
            operand = f"{displacement}({size},%r{BASE})"
            kept = f"{8 * MEMORY}({size},%r1)"
            rows: list[tuple[str, tuple[Move, ...], tuple[int, int] | None]] = [
                (f"mvc {operand},{here}", (Move("store", 0, _high(VALUE), size),), None),
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
                yield _made("SS", text, moves, address=address, unit=1, preset=preset, results=results)
            yield _made(
                "SS",
                f"clc {operand},160(%r15)",
                (),
                address=address,
                unit=1,
                results=((CONDITION, 0),),
                before=(f"mvc 160({size},%r15),{address.text}",),
            )


def _whole_vectors() -> Iterator[Encoding]:
    """The emulator moves doublewords where the architecture has 16 bytes of no alignment at all."""
    at, operand = _vector(), f"%v{VECTOR}"
    for name, direction in directions("vl", "vst"):
        for address in ADDRESSES["RX"]:
            moves = (Move(direction, 0, at, 16),)
            yield _made("VRX", f"{name} {operand},{address.text}", moves, address=address, unit=8)
    for name, direction in directions("vlm", "vstm"):
        for address in ADDRESSES["RS"]:
            moves = (Move(direction, 0, at, 48),)
            yield _made("VRS", f"{name} {operand},%v{VECTOR + 2},{address.text}", moves, address=address, unit=8)


def _elements() -> Iterator[Encoding]:
    """One element, as it is or with its bytes in the other order."""
    at = _vector()
    for letter, size in {"b": 1, "h": 2, "f": 4, "g": 8}.items():
        for element in (0, 16 // size - 1):
            for name, direction in directions(f"vle{letter}", f"vste{letter}"):
                yield from _of_element(name, (Move(direction, 0, at + size * element, size),), size, element)
            for name, direction in directions(f"vlebr{letter}", f"vstebr{letter}"):
                if size > 1:
                    yield from _of_element(name, _backward(direction, at + size * element, size), size, element)


def _copies() -> Iterator[Encoding]:
    """An element to all of a register, or to its left half with zeros around it; in both orders of bytes."""
    at, rest = _vector(), Move("load", 0, _vector() + 16, 0, 8)
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
    for address in ADDRESSES["RX"]:
        yield _made("VRX", f"{name} %v{VECTOR},{address.text}{behind}", moves, address=address, unit=size)


def _backward(direction: Direction, register: int, size: int, memory: int = 0) -> tuple[Move, ...]:
    """The bytes of an element in the other order."""
    return tuple(Move(direction, memory + i, register + size - 1 - i, 1) for i in range(size))


def _backward_vectors() -> Iterator[Encoding]:
    """Whole registers, with each element's bytes in the other order or with the elements in the other order."""
    at, operand = _vector(), f"%v{VECTOR}"
    for letter, size in {"h": 2, "f": 4, "g": 8, "q": 16}.items():
        for address in ADDRESSES["RX"]:
            for name, direction in directions("vlbr", "vstbr"):
                moves = tuple(move for i in range(0, 16, size) for move in _backward(direction, at + i, size, i))
                yield _made("VRX", f"{name}{letter} {operand},{address.text}", moves, address=address, unit=8)
            if size == 16:
                continue
            for name, direction in directions("vler", "vster"):
                moves = tuple(Move(direction, i, at + 16 - size - i, size) for i in range(0, 16, size))
                yield _made("VRX", f"{name}{letter} {operand},{address.text}", moves, address=address, unit=8)


def _parts_of_vectors() -> Iterator[Encoding]:
    """As many bytes as a register says, and elements whose offsets are in another vector."""
    at, operand = _vector(), f"%v{VECTOR}"
    for count in (11, 16):
        for address in ADDRESSES["RS"]:
            # Two registers, so that the text says how many bytes it is.
            register = VALUE if count == 16 else INDEX
            preset = (register, count - 1)
            rest = (Move("load", 0, at + 16, 0, 16 - count),) if count < 16 else ()
            for name, moves in (("vll", (Move("load", 0, at, count), *rest)), ("vstl", (Move("store", 0, at, count),))):
                text = f"{name} {operand},%r{register},{address.text}"
                yield _made("VRS", text, moves, address=address, unit=1, preset=preset)
    indexes = 3
    for letter, size, value in (("f", 4, INDEX_VALUE << 32), ("g", 8, INDEX_VALUE)):
        for address in ADDRESSES["RS"]:
            # The index is the first element of %v3.
            preset = (_vector(indexes) // 8, value)
            there = AddressForm(address.text, address.displacement + INDEX_VALUE)
            memory = f"{address.displacement}(%v{indexes},%r{BASE})"
            for name, direction in directions(f"vge{letter}", f"vsce{letter}"):
                moves = (Move(direction, 0, at, size),)
                yield _made("VRV", f"{name} {operand},{memory},0", moves, address=there, unit=size, preset=preset)


_FORMATS = r"RX_\w|RXY_\w|RXE|RXF|RS_\w|RSY_\w|RSL|S|SI|SIY|SIL|SS_\w|SSE|SSF|VRX|VRV|VRS_\w|VSI"
_ROW = r"^ *[CDEF]\(0x(?P<one>{first}\w)(?P<two>\w\w), *(?P<name>\w+, *(?P<format>\w+))"


def _fixed(bits: int) -> Callable[[re.Match[str]], tuple[int, int]]:
    """Where a format has its second byte of opcode (1 of 4 bits, 1, or the last one)."""

    def fixed(row: re.Match[str]) -> tuple[int, int]:
        one, two, form = int(row["one"], 16), int(row["two"], 16), row["format"]
        mask, value = 0xFF << (bits - 8), one << (bits - 8)
        if re.fullmatch(r"RI_\w|RIL_\w|SSF", form):
            return mask | 0xF << (bits - 16), value | two << (bits - 16)
        if re.fullmatch(r"S|RRE|RRD|RRF_\w|E|SIL|SSE", form):
            return mask | 0xFF << (bits - 16), value | two << (bits - 16)
        if re.fullmatch(r"RX_\w|RS_\w|RSI|SI|SS_\w|SMI|MII|I|RR_\w", form):
            return mask, value
        # What RXE and RXF do not use has to be zero for objdump.
        unused = {"RXE": 0xFF00, "RXF": 0xF00}.get(form, 0)
        return mask | unused | 0xFF, value | two

    return fixed


_ADDRESS_ALONE = (
    r"nop\w*|b\w*|j\w*|lay?|laey?|ex|ecag|pfd|s[lr]d?[al][gk]*|rllg?|srnm\w*|t[cd]\w+|v(lgv|lvg|erll)\w?|ves\w+|lcbb"
)
_PRIVILEGED = (
    r"csp|cspg|diag|iske|ipde|ipte|lctlg?|lpp|lpswe?|lra[gy]?|lurag?|mvc[psk]|ptlb|rrbe|servc|sck\w*|spt|spx|spka|sske|ssm"
    r"|sigp|stckc|stctl|stctg|stap|stidp|stpt|stfl|stpx|stsi|stnsm|stosm|stura|sturg|tb|tprot|\w*sch|rchp|sal|schm|siga"
    r"|stcps|stcrw|sacf?|lasp|mvc[ds]k|trace|tracg|stpt|msta|pr|pgin|qadtm|vsch|l?bear|stbear|lpswey|lptea|mc"
)
_STATE = "The processor's own state or clock, no datum; the emulator checks LAM, STAM and STFLE under every policy."
_NO_ACCESS = (
    r"B\w*|LAY?|LAEY?|LAA?EY?|EX|ECAG|PFD|S[LR][AL][GK]?|S[LR]D[AL]|S[LR][AL]G?K|RLLG?|SRNM\w*|TC[EDX]B|TD[CG][EDX]T"
    r"|VLGV|VLVG|VERLL|VES\w+|LCBB|SVC|CU\w*|J\w*|PTLB|[XCHR]SCH|RCHP|SAL|SCHM"
)
TABLE = EncodingTable(
    encodings=[
        *_loads(),
        *_stores(),
        *_reversed(),
        *_on_condition(),
        *_multiples(),
        *_floats(),
        *_masked(),
        *_identities(),
        *_additions(),
        *_comparisons(),
        *_interlocked(),
        *_strings(),
        *_whole_vectors(),
        *_elements(),
        *_copies(),
        *_backward_vectors(),
        *_parts_of_vectors(),
    ],
    preamble={"s390x": ".machine arch13"},
    syntax="",
    states={
        SHORT: SlotForm(
            "", "jg sweep_return", ("-m", "s390:64-bit", "-EB"), lambda word, _: word.to_bytes(4, "big"), bits=32
        ),
        LONG: SlotForm(
            "",
            "jg sweep_return",
            ("-m", "s390:64-bit", "-EB"),
            lambda word, _: word.to_bytes(6, "big"),
            bits=48,
            padding=b"\x07\x00" * 3,
        ),
    },
    assembly=FOLDER / "s390x.S",
    header=FOLDER / "s390x.h",
    names=rf"(?!(?:{_ADDRESS_ALONE}) )[a-z]\w* .*\(",
    decoder_names=rf"(?!(?:{_NO_ACCESS}),)\w+, *(?:{_FORMATS})",
    decoders=[
        DecoderTable(
            "target/s390x/tcg/insn-data.h.inc",
            SHORT,
            lambda word: word >> 30 in {1, 2},
            form=RowForm(_ROW.format(first="[4-9ab]"), _fixed(32)),
        ),
        DecoderTable(
            "target/s390x/tcg/insn-data.h.inc",
            LONG,
            lambda word: word >> 46 == 3,
            form=RowForm(_ROW.format(first="[c-f]"), _fixed(48)),
        ),
    ],
    unread=[
        Exempt(
            r"48 (PCISTB|SIC|MPCIFC|STPCIFC|TP), *\w+",
            "objdump knows it with zeros alone in fields that it does not use.",
        ),
    ],
    unassembled=[],
    unmade=[
        Exempt(r"(32|48) ([nox]iy?|cliy?|tmy?|ts) .*", "Of a single byte, for which no address is misaligned."),
        Exempt(
            r"(32|48) (clcl[eu]|mvcl[eu]|mvcin|mvcrl|mvcos|mv[noz]|pack|pk[au]|unpk[au]?|trtr?|tr) .*",
            "Strings of bytes or digits, which lie anywhere (5, boundary alignment). MVC, CLC, NC, OC and XC are made.",
        ),
        Exempt(r"(32|48) (cv[bd][yg]?|\w*p|zap|edm?k?|srp) .*", "Decimal numbers, which the memory here is none of."),
        Exempt(
            r"(32|48) (d|dlg?|dsgf?) .*",
            "Which dividend has a quotient to see depends on what is there. Canaries make some.",
        ),
        Exempt(
            r"(32|48) (?!l[de]y? |st[de]y? |v)\w+ .*%f.*",
            "It calculates with a number, and some offsets have none. Canaries make these.",
        ),
        Exempt(r"48 c[lhgf]*hsi .*", "It compares with a constant. The canaries make it."),
        Exempt(r"48 cl?g?t\w* .*", "It traps or does nothing: there is no effect to see."),
        Exempt(r"48 llgt(at)? .*", "It clears a bit of what it loads."),
        Exempt(r"48 (csst|ectg|lpdg?|lmd|plo) .*", "It makes several accesses at once, and no compiler writes it."),
        Exempt(r"48 vlbb .*", "How many bytes it loads depends on the address."),
        Exempt(r"(32|48) (l|st)(amy?|fpc|fas|fle|ck[ef]?) .*", _STATE),
        Exempt(rf"(32|48) ({_PRIVILEGED})\b.*", "Only the kernel may use it (10, control instructions)."),
        Exempt(
            r"48 stmh .*",
            "No compiler writes it. QEMU 10.0.13 has it wrong: it stores zeros, because it shifts the high half out in "
            "place of down (target/s390x/tcg/translate.c, op_stmh).",
        ),
    ],
)
