"""Loads and stores of LA64: integers, floating point, atomic ones, those with a bound, and vectors (LSX and LASX).

Sections are those of the LoongArch Reference Manual, volume 1, version 1.10. Vectors are in volume 2, which is not
published: what they move is read from their names in the toolchain conventions, and from GCC's manual ("LoongArch SX
Vector Intrinsics", "LoongArch ASX Vector Intrinsics"). Offsets, registers and lanes are samples; all opcodes are made.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.isa.encodings.encoding import (
    OFFSETS,
    AddressForm,
    DecoderTable,
    EncodingTable,
    Exempt,
    Move,
    Opcode,
    SlotForm,
    directions,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.core.target_model import AccessClass
    from harness.isa.encodings.encoding import Direction, Encoding

FOLDER = Path(__file__).parent
BASE, VALUE, OTHER, INDEX = 4, 6, 7, 8
"""Numbers of a0, which is the base, of a2, which is moved, of a3, which is the result of what moves twice, and of a4,
which is an index or a bound, as a5 after it is an index. t7, t8 and 16 bytes at sp are free for preceding
instructions.
"""
DOUBLE, SINGLE, VECTOR, WIDE = 10, 11, 12, 13
"""Numbers of registers. The register file contains the bytes of f10, f11 and vr12 that FLD.D, FLD.S and VLD define, and
all of xr13.
"""
SHORT_OFFSETS = (0, 8, -8, 2040, -2048)
INDICES = ((INDEX, "$a4", 24), (INDEX + 1, "$a5", -24))
BELOW, ABOVE = 8, 1 << 62
"""Bounds of every address, and no address is still one with either added."""
CLASSES: dict[int, AccessClass] = {1: "other", 2: "half", 4: "word", 8: "dword"}
LETTERS = {"b": 1, "h": 2, "w": 4, "d": 8}


def _integer(register: int) -> int:
    return 8 * register


def _vector(register: int) -> int:
    return 256 + 32 * register


def _load(size: int, *, is_signed: bool = True, register: int = VALUE) -> Move:
    return Move("load", 0, _integer(register), size, 8 - size, is_signed)


def _store(size: int) -> Move:
    return Move("store", 0, _integer(VALUE), size)


def _at(one: Opcode, address: AddressForm) -> Encoding:
    return one.at(address, f"{one.name} {one.operand}, {address.text}", base=BASE)


def _displaced(one: Opcode, offsets: Sequence[int]) -> Iterator[Encoding]:
    yield from (_at(one, AddressForm(f"$a0, {by}", by)) for by in offsets)


def _indexed(one: Opcode) -> Iterator[Encoding]:
    for register, name, by in INDICES:
        yield _at(one, AddressForm(f"$a0, {name}", by, index_register=(register, by)))


def _bounded(one: Opcode, bound: int) -> Encoding:
    return _at(one, AddressForm("$a0, $a4", index_register=(INDEX, bound)))


def _integers() -> Iterator[tuple[str, str, AccessClass, Direction, int, Move]]:
    """The part of a name before its point and that behind it, and what it moves."""
    for letter, size in LETTERS.items():
        yield "ld", letter, CLASSES[size], "load", size, _load(size)
        yield "st", letter, CLASSES[size], "store", size, _store(size)
        if size < 8:
            yield "ld", f"{letter}u", CLASSES[size], "load", size, _load(size, is_signed=False)


def _plain() -> Iterator[Encoding]:
    for verb, letters, access_class, direction, size, move in _integers():
        one = Opcode(f"{verb}.{letters}", "$a2", "2.2.5.1", access_class, direction, size, (move,))
        yield from _displaced(one, SHORT_OFFSETS)
        yield from _indexed(one._replace(name=f"{verb}x.{letters}", section="2.2.5.2"))
        if letters in {"w", "d"}:
            yield from _displaced(one._replace(name=f"{verb}ptr.{letters}", section="2.2.5.3"), OFFSETS)
        if not letters.endswith("u"):
            bounded = one._replace(section="2.2.6.1", access_class="other")
            yield _bounded(bounded._replace(name=f"{verb}gt.{letters}"), BELOW)
            yield _bounded(bounded._replace(name=f"{verb}le.{letters}"), ABOVE)


def _floating() -> Iterator[Encoding]:
    rows: list[tuple[str, AccessClass, int, int]] = [("s", "float", 4, SINGLE), ("d", "double", 8, DOUBLE)]
    for letter, access_class, size, register in rows:
        for verb, direction in directions("fld", "fst"):
            move = Move(direction, 0, _vector(register), size)
            name = f"{verb}.{letter}"
            one = Opcode(name, f"$f{register}", "3.2.6.1", access_class, direction, size, (move,))
            yield from _displaced(one, SHORT_OFFSETS)
            yield from _indexed(one._replace(name=f"{verb}x.{letter}", section="3.2.6.2"))
            bounded = one._replace(section="3.2.7.1", access_class="other")
            yield _bounded(bounded._replace(name=f"{verb}gt.{letter}"), BELOW)
            yield _bounded(bounded._replace(name=f"{verb}le.{letter}"), ABOVE)


def _linked() -> Iterator[Encoding]:
    """LL, SC after its load, and SC without it, which nevertheless requires alignment."""
    for letter, size in (("w", 4), ("d", 8)):
        yield from _displaced(Opcode(f"ll.{letter}", "$a2", "2.2.7.4", "linked", "load", size, (_load(size),)), OFFSETS)
        one = Opcode(f"sc.{letter}", "$a2", "2.2.7.4", "linked", "store", size, (_store(size),))
        for by in OFFSETS:
            place = AddressForm(f"$a0, {by}", by)
            paired = _at(one, place._replace(before=(f"ll.{letter} $t7, $a0, {by}",)))
            yield paired._replace(results=((VALUE, 1),))
            alone = _at(one, place._replace(before=(f"ll.{letter} $t7, $sp, 0", f"sc.{letter} $t7, $sp, 0")))
            yield alone._replace(moves=(), results=((VALUE, 0),))


def _atomic() -> Iterator[Encoding]:
    """What each makes of memory is a2, for an operand that is made so, or for one that the operation keeps as it is."""
    for letter, size in (("w", 4), ("d", 8)):
        # Sums and differences by bits take what memory has, which is fetched by bytes.
        fetched = ["ld.bu $t7, $a0, 0"]
        for i in range(1, size):
            fetched += [f"ld.bu $t8, $a0, {i}", f"slli.d $t8, $t8, {8 * i}", "or $t7, $t7, $t8"]
        highest = (1 << 8 * size - 1) - 1
        rows: list[tuple[str, str, str, tuple[str, ...], int | None]] = [
            ("swap", letter, "$a2", (), None),
            ("add", letter, "$t8", (*fetched, "sub.d $t8, $a2, $t7"), None),
            ("xor", letter, "$t8", (*fetched, "xor $t8, $a2, $t7"), None),
            ("and", letter, "$a2", (), 0),
            ("or", letter, "$a2", (), -1),
            ("min", letter, "$a2", (), -highest - 1),
            ("max", letter, "$a2", (), highest),
            ("min", f"{letter}u", "$a2", (), 0),
            ("max", f"{letter}u", "$a2", (), -1),
        ]
        moves = (_load(size, register=OTHER), _store(size))
        for name, letters, operand, before, value in rows:
            index = None if value is None else (VALUE, value)
            for barrier in ("", "_db"):
                one = Opcode(f"am{name}{barrier}.{letters}", f"$a3, {operand}", "2.2.7.1", "cas", "store", size, moves)
                yield _at(one, AddressForm("$a0", before=before, index_register=index))


def _vectors(prefix: str, width: int, name: str, register: int) -> Iterator[Encoding]:
    """Whole vectors, one element to all lanes, and one lane."""
    section = "volume 2"
    for verb, direction in directions("ld", "st"):
        move = Move(direction, 0, _vector(register), width)
        one = Opcode(f"{prefix}{verb}", name, section, "other", direction, width, (move,))
        yield from _displaced(one, SHORT_OFFSETS)
        yield from _indexed(one._replace(name=f"{prefix}{verb}x"))
    for letter, size in LETTERS.items():
        copies = tuple(Move("load", 0, _vector(register) + at, size) for at in range(0, width, size))
        one = Opcode(f"{prefix}ldrepl.{letter}", name, section, "other", "load", size, copies)
        yield from _displaced(one, SHORT_OFFSETS)
        for lane in (0, width // size - 1):
            move = Move("store", 0, _vector(register) + size * lane, size)
            one = Opcode(f"{prefix}stelm.{letter}", name, section, "other", "store", size, (move,))
            for by in (0, size, -size, 127 * size, -128 * size):
                yield _at(one, AddressForm(f"$a0, {by}, {lane}", by))


TABLE = EncodingTable(
    encodings=[
        *_plain(),
        *_floating(),
        *_linked(),
        *_atomic(),
        *_vectors("v", 16, f"$vr{VECTOR}", VECTOR),
        *_vectors("xv", 32, f"$xr{WIDE}", WIDE),
    ],
    preamble={"loongarch64": ""},
    syntax="",
    states={
        "": SlotForm(
            "",
            "b sweep_return",
            (),
            lambda word, _: word.to_bytes(4, "little"),
            object_format="elf64-loongarch",
        )
    },
    assembly=FOLDER / "loongarch.S",
    header=FOLDER / "loongarch.h",
    names=(
        r"f?(ld|st)(x|ptr|gt|le)?\.[bhwds]u? |(ll|sc)(acq|rel)?\.[wdq] |am(swap|add|and|or|xor|max|min|cas)\w*\.\w+ "
        r"|x?v(ld|st)x? |x?v(ldrepl|stelm)\.[bhwd] "
    ),
    decoder_names=(
        r"f?(ld|st)(x|ptr|gt|le)?_[bhwds]u?|(ll|sc)_[wd]|am(swap|add|and|or|xor|max|min)\w*|x?v(ld|st)x?"
        r"|x?v(ldrepl|stelm)_[bhwd]"
    ),
    decoders=[DecoderTable("target/loongarch/insns.decode", "")],
    unread=[],
    unassembled=[],
    unmade=[
        Exempt(
            r" (amcas(_db)?\.[bhwd]|am(swap|add)(_db)?\.[bh]|llacq\.[wd]|screl\.[wd]|sc\.q) .*",
            "2.2.7.2, 2.2.7.3, 2.2.7.5 and 2.2.7.6, of CPUs from the LA664 on: the LA464 has none of them.",
        ),
    ],
    lists_bytes=True,
)
