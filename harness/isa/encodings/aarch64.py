"""Loads and stores of AArch64 as ARMv8.0 has them: general, of pairs, ordered, exclusive, and of Advanced SIMD.

Sections are those of ARM DDI 0487, C3.2. Immediate fields, registers and lanes are samples; opcodes, extensions of an
index, write-back, sizes and arrangements are all made.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.isa.encodings.encoding import (
    AddressForm,
    DecoderTable,
    EncodingTable,
    Exempt,
    Move,
    Opcode,
    RegisterRow,
    SlotForm,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.core.target_model import AccessClass
    from harness.isa.encodings.encoding import Direction, Encoding

FOLDER = Path(__file__).parent
VALUE, SECOND, BASE, INDEX, STATUS = 2, 3, 4, 5, 6
"""X2 and x3 or v2 and v3 are moved, x4 and x5 are the address, w6 shows whether a store took place."""
SCALED, UNSCALED, INDEX_VALUE = 32, 7, 24
GARBAGE = 1 << 32
"""The bits above a 32-bit index."""


def _integer(register: int) -> int:
    return 8 * register


def _vector(register: int) -> int:
    return 256 + 16 * register


def _general() -> Iterator[Opcode]:
    """What moves a register, or a part of it. The name lacks what the addressing mode puts into it: `ld{}sb`."""
    classes: dict[int, AccessClass] = {1: "other", 2: "half", 4: "word", 8: "dword"}
    for size, letters in ((1, "b"), (2, "h"), (4, ""), (8, "")):
        register = "x2" if size == 8 else "w2"
        load = Move("load", 0, _integer(VALUE), size, 8 - size)
        yield Opcode(f"ld{{}}{letters}", register, "", classes[size], "load", size, (load,))
        store = Move("store", 0, _integer(VALUE), size)
        yield Opcode(f"st{{}}{letters}", register, "", classes[size], "store", size, (store,))
        if size < 8:
            signed = load._replace(is_signed=True)
            yield Opcode(f"ld{{}}s{letters or 'w'}", "x2", "", classes[size], "load", size, (signed,))
        if size < 4:
            # A sign-extended word, whose upper half is cleared.
            moves = (signed._replace(extension=4 - size), Move("load", 0, _integer(VALUE) + 4, 0, 4))
            yield Opcode(f"ld{{}}s{letters}", "w2", "", classes[size], "load", size, moves)
    for size, register in ((1, "b2"), (2, "h2"), (4, "s2"), (8, "d2"), (16, "q2")):
        load = Move("load", 0, _vector(VALUE), size, 16 - size)
        yield Opcode("ld{}", register, "", "neon", "load", size, (load,))
        yield Opcode("st{}", register, "", "neon", "store", size, (Move("store", 0, _vector(VALUE), size),))


def _indexed(size: int) -> Iterator[AddressForm]:
    shift = size.bit_length() - 1
    for amount in (0, shift) if shift else (0,):
        scale = 1 << amount
        shifted = f" #{amount}" if amount else ""
        plain = f", lsl{shifted}" if amount else ""
        yield AddressForm(f"[x4, x5{plain}]", INDEX_VALUE * scale, 0, (INDEX, INDEX_VALUE))
        yield AddressForm(f"[x4, w5, uxtw{shifted}]", INDEX_VALUE * scale, 0, (INDEX, GARBAGE + INDEX_VALUE))
        yield AddressForm(f"[x4, w5, sxtw{shifted}]", -INDEX_VALUE * scale, 0, (INDEX, GARBAGE - INDEX_VALUE))
        yield AddressForm(f"[x4, x5, sxtx{shifted}]", -INDEX_VALUE * scale, 0, (INDEX, -INDEX_VALUE))


def _singles() -> Iterator[Encoding]:
    for one in _general():
        for address in (
            AddressForm("[x4]"),
            AddressForm(f"[x4, #{SCALED}]", SCALED),
            *(AddressForm(f"[x4, #{by}]!", by, by) for by in (UNSCALED, -UNSCALED)),
            *(AddressForm(f"[x4], #{by}", 0, by) for by in (UNSCALED, -UNSCALED)),
            *_indexed(one.unit_bytes),
        ):
            yield _single(one, "r", address, "C3.2.1")
        yield _single(one, "ur", AddressForm(f"[x4, #-{UNSCALED}]", -UNSCALED), "C3.2.2")
        if one.access_class != "neon":
            yield _single(one, "tr", AddressForm(f"[x4, #-{UNSCALED}]", -UNSCALED), "C3.2.5")


def _single(one: Opcode, infix: str, address: AddressForm, section: str) -> Encoding:
    text = f"{one.name.format(infix)} {one.operand}, {address.text}"
    return one._replace(section=section).at(address, text, base=BASE)


def _pairs() -> Iterator[Encoding]:
    addresses = [
        AddressForm("[x4]"),
        *(AddressForm(f"[x4, #{by}]", by) for by in (SCALED, -SCALED)),
        *(AddressForm(f"[x4, #{by}]!", by, by) for by in (SCALED, -SCALED)),
        *(AddressForm(f"[x4], #{by}", 0, by) for by in (SCALED, -SCALED)),
    ]
    for letter, size, whole, at in (
        ("w", 4, 8, _integer),
        ("x", 8, 8, _integer),
        ("s", 4, 16, _vector),
        ("d", 8, 16, _vector),
        ("q", 16, 16, _vector),
    ):
        loads = tuple(Move("load", i * size, at(VALUE + i), size, whole - size) for i in range(2))
        stores = tuple(Move("store", i * size, at(VALUE + i), size) for i in range(2))
        registers = f"{letter}2, {letter}3"
        for name, moves in (("ldp", loads), ("stp", stores)):
            for address in addresses:
                yield _pair(f"{name} {registers}, {address.text}", size, moves, address, "C3.2.3")
        for name, moves in (("ldnp", loads), ("stnp", stores)):
            for address in addresses[:3]:
                yield _pair(f"{name} {registers}, {address.text}", size, moves, address, "C3.2.4")
    signed = tuple(Move("load", i * 4, _integer(VALUE + i), 4, 4, True) for i in range(2))
    for address in addresses:
        yield _pair(f"ldpsw x2, x3, {address.text}", 4, signed, address, "C3.2.3")


def _pair(text: str, size: int, moves: tuple[Move, ...], address: AddressForm, section: str) -> Encoding:
    return Opcode("", "", section, "pair", moves[0].direction, size, moves).at(address, text, base=BASE)


def _ordered() -> Iterator[Encoding]:
    """Exclusive and ordered accesses. A store without its load fails after it has checked the alignment (B2.9.5)."""
    for size, letters, register, kept in (
        (1, "b", "w2", "w8"),
        (2, "h", "w2", "w8"),
        (4, "", "w2", "w8"),
        (8, "", "x2", "x8"),
    ):
        load = Move("load", 0, _integer(VALUE), size, 8 - size)
        store = Move("store", 0, _integer(VALUE), size)
        acquire: AccessClass = "acquire" if size > 1 else "other"
        for name, moves in (("ldar", load), ("stlr", store)):
            yield _at_base(f"{name}{letters} {register}, [x4]", "C3.2.7", acquire, size, (moves,))
        for name in ("ldxr", "ldaxr"):
            yield _at_base(f"{name}{letters} {register}, [x4]", "C3.2.6", _exclusive(size), size, (load,))
        first = f"ldxr{letters} {kept}, [x4]"
        for name in ("stxr", "stlxr"):
            text = f"{name}{letters} w6, {register}, [x4]"
            yield from _conditional(text, size, (store,), (load._replace(register=_integer(8)),), first)
    for letter, size in (("w", 4), ("x", 8)):
        loads = tuple(Move("load", i * size, _integer(VALUE + i), size, 8 - size) for i in range(2))
        stores = tuple(Move("store", i * size, _integer(VALUE + i), size) for i in range(2))
        others = tuple(move._replace(register=move.register + _integer(6)) for move in loads)
        for name in ("ldxp", "ldaxp"):
            yield _at_base(f"{name} {letter}2, {letter}3, [x4]", "C3.2.6", "exclusive", 2 * size, loads)
        first = f"ldxp {letter}8, {letter}9, [x4]"
        for name in ("stxp", "stlxp"):
            text = f"{name} w6, {letter}2, {letter}3, [x4]"
            yield from _conditional(text, 2 * size, stores, others, first)


def _exclusive(size: int) -> AccessClass:
    return "exclusive" if size > 1 else "other"


def _conditional(
    text: str, size: int, stores: tuple[Move, ...], loads: tuple[Move, ...], first: str
) -> Iterator[Encoding]:
    store = _at_base(text, "C3.2.6", _exclusive(size), size, stores)
    yield store._replace(moves=(), results=((STATUS, 1),), before=("clrex",))
    yield store._replace(moves=(*loads, *stores), results=((STATUS, 0),), before=(first,))


def _at_base(text: str, section: str, access_class: AccessClass, size: int, moves: tuple[Move, ...]) -> Encoding:
    one = Opcode("", "", section, access_class, moves[0].direction, size, moves)
    return one.at(AddressForm("[x4]"), text, base=BASE)


class _VectorStructures(NamedTuple):
    """A form of LD1 to LD4: structures of so many elements, in registers."""

    name: str
    registers: str
    size: int
    loads: tuple[Move, ...]
    is_load_alone: bool = False

    def moves(self, direction: Direction) -> tuple[Move, ...]:
        if direction == "load":
            return self.loads
        return tuple(move._replace(direction="store", extension=0) for move in self.loads)


def _list(count: int, arrangement: str, lane: str = "") -> str:
    return "{" + ", ".join(f"v{i}.{arrangement}" for i in range(count)) + "}" + lane


def _multiple() -> Iterator[_VectorStructures]:
    for letter, size in (("b", 1), ("h", 2), ("s", 4), ("d", 8)):
        for width in (8, 16):
            lanes = width // size
            arrangement = f"{lanes}{letter}"
            for elements, groups in ((1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (3, 1), (4, 1)):
                if elements > 1 and arrangement == "1d":
                    continue
                moves, at = [], 0
                for group in range(groups):
                    for lane in range(lanes):
                        for element in range(elements):
                            extension = 16 - width if lane == lanes - 1 else 0
                            register = _vector(element + group) + lane * size
                            moves.append(Move("load", at, register, size, extension))
                            at += size
                yield _VectorStructures(str(elements), _list(elements * groups, arrangement), size, tuple(moves))


def _single_lanes() -> Iterator[_VectorStructures]:
    for letter, size in (("b", 1), ("h", 2), ("s", 4), ("d", 8)):
        for elements in (1, 2, 3, 4):
            for lane in (0, 16 // size - 1):
                moves = tuple(Move("load", i * size, _vector(i) + lane * size, size) for i in range(elements))
                yield _VectorStructures(str(elements), _list(elements, letter, f"[{lane}]"), size, moves)
            for width in (8, 16):
                lanes = width // size
                moves = tuple(
                    Move("load", i * size, _vector(i) + at * size, size, 16 - width if at == lanes - 1 else 0)
                    for i in range(elements)
                    for at in range(lanes)
                )
                yield _VectorStructures(
                    f"{elements}r", _list(elements, f"{lanes}{letter}"), size, moves, is_load_alone=True
                )


def _structures() -> Iterator[Encoding]:
    for one in (*_multiple(), *_single_lanes()):
        total = max(move.memory + move.size for move in one.loads)
        for address in (
            AddressForm("[x4]"),
            AddressForm(f"[x4], #{total}", 0, total),
            AddressForm("[x4], x5", 0, INDEX_VALUE, (INDEX, INDEX_VALUE)),
        ):
            directions: tuple[Direction, ...] = ("load",) if one.is_load_alone else ("load", "store")
            for direction in directions:
                name = "ld" if direction == "load" else "st"
                text = f"{name}{one.name} {one.registers}, {address.text}"
                moved = Opcode("", "", "C3.2.10", "neon", direction, one.size, one.moves(direction))
                yield moved.at(address, text, base=BASE)


OLDER = "Cortex-A53, the only CPU of targets, has ARMv8.0."

TABLE = EncodingTable(
    encodings=[*_singles(), *_pairs(), *_ordered(), *_structures()],
    preamble={"aarch64": ".arch armv8-a"},
    syntax="",
    states={
        "": SlotForm("", "b sweep_return", ("-m", "aarch64"), lambda word, _: word.to_bytes(4, "little")),
    },
    assembly=FOLDER / "aarch64.S",
    header=FOLDER / "aarch64.h",
    names=r"ld|st(?!g?\b)|swp|cas",
    decoder_names=r"(LD|ST(?!G$)|SWP|CAS)\w*",
    decoders=[DecoderTable("target/arm/tcg/a64.decode", "")],
    unread=[],
    unassembled=[],
    unmade=[
        Exempt(r" ldr(sw)? \w+, [\da-fx]+", "Literals lie at multiples of 4 from PC, which is one (C3.2.9)."),
        Exempt(
            r" (swp|ld(add|clr|eor|set|[su]max|[su]min)|st(add|clr|eor|set|[su]max|[su]min)|casp?)(al?|l)?[bh]? .*",
            f"FEAT_LSE of ARMv8.1: {OLDER}",
        ),
        Exempt(r" (ldlar|stllr)[bh]? .*", f"FEAT_LOR of ARMv8.1: {OLDER}"),
        Exempt(r" (ldapu?r|stlur)(s?[bh]|sw)? .*", f"FEAT_LRCPC of ARMv8.3 and ARMv8.4: {OLDER}"),
        Exempt(r" ldra[ab] .*", f"FEAT_PAuth of ARMv8.3: {OLDER}"),
        Exempt(r" (ld|st)(gm?|z?g|zgm|2g|z2g|gp) .*", f"FEAT_MTE of ARMv8.5: {OLDER}"),
        Exempt(r" (ld|st)64b(v0?)? .*", f"FEAT_LS64 of ARMv8.7: {OLDER}"),
        Exempt(
            r" .*(\bz[at]?\d*|\bp\d+)[.,/\[].*",
            "Scalable vectors and matrices, whose decoders are tables of their own: no target's CPU has them.",
        ),
    ],
    rows=(RegisterRow(0, 8), RegisterRow(256, 16)),
)
