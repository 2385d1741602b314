"""Loads and stores of SPARC V9, and of V8+, which is the same in 32-bit programs.

Sections are those of The SPARC Architecture Manual V9, appendix A, but for UltraSPARC's own (UltraSPARC IIi User's
Manual, 13.5). Immediate fields, registers and address-space identifiers are samples; all opcodes are made, by a
register, two, a register and an offset, and with the identifier in the instruction and in %asi.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.isa.encodings.encoding import (
    AddressForm,
    DecoderTable,
    Encoding,
    EncodingTable,
    Exempt,
    Move,
    Opcode,
    SlotForm,
    directions,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.core.target_model import AccessClass
    from harness.isa.encodings.encoding import Direction

FOLDER = Path(__file__).parent
VALUE, SECOND, BASE, INDEX = 10, 11, 12, 13
"""Numbers in the register file of %o2 and %o3, which are moved, and of %o4 and %o5, which are the address."""
IMMEDIATE, INDEX_VALUE, ONES = 8, 24, -1
PRIMARY, PRIMARY_LITTLE, BYTE, HALF, BLOCK = 0x80, 0x88, 0xD0, 0xD2, 0xF0
"""Address-space identifiers: the program's own, in either order of bytes; parts of floating-point registers; blocks."""


def _integer(register: int, size: int = 8) -> int:
    """The position of an integer register's lowest bytes."""
    return 8 * register + 8 - size


def _float(number: int) -> int:
    return 128 + 4 * number


def _load(name: str, access_class: AccessClass, size: int, *, is_signed: bool = False) -> Opcode:
    move = Move("load", 0, _integer(VALUE, size), size, 8 - size, is_signed)
    return Opcode(name, "%o2", "A.28", access_class, "load", size, (move,))


def _store(name: str, access_class: AccessClass, size: int) -> Opcode:
    move = Move("store", 0, _integer(VALUE, size), size)
    return Opcode(name, "%o2", "A.54", access_class, "store", size, (move,))


def _pair(direction: Direction) -> tuple[Move, ...]:
    extension = 4 if direction == "load" else 0
    return tuple(Move(direction, 4 * i, _integer(VALUE + i, 4), 4, extension) for i in range(2))


# Name in the assembler, that of the alternate space apart from the `a` that is added.
INTEGERS = [
    _load("ldub", "other", 1),
    _load("ldsb", "other", 1, is_signed=True),
    _load("lduh", "half", 2),
    _load("ldsh", "half", 2, is_signed=True),
    _load("lduw", "word", 4),
    _load("ldsw", "word", 4, is_signed=True),
    _load("ldx", "dword", 8),
    Opcode("ldd", "%o2", "A.28", "dword", "load", 8, _pair("load")),
    _store("stb", "other", 1),
    _store("sth", "half", 2),
    _store("stw", "word", 4),
    _store("stx", "dword", 8),
    Opcode("std", "%o2", "A.54", "dword", "store", 8, _pair("store")),
    Opcode(
        "swap",
        "%o2",
        "A.57",
        "swap",
        "store",
        4,
        (Move("load", 0, _integer(VALUE, 4), 4, 4), Move("store", 0, _integer(VALUE, 4), 4)),
    ),
]
FLOATS = [
    Opcode("ld", "%f3", "A.25", "float", "load", 4, (Move("load", 0, _float(3), 4),)),
    Opcode("ldd", "%f34", "A.25", "double", "load", 8, (Move("load", 0, _float(34), 8),)),
    Opcode("ldq", "%f4", "A.25", "double", "load", 8, (Move("load", 0, _float(4), 16),)),
    Opcode("st", "%f3", "A.52", "float", "store", 4, (Move("store", 0, _float(3), 4),)),
    Opcode("std", "%f34", "A.52", "double", "store", 8, (Move("store", 0, _float(34), 8),)),
    Opcode("stq", "%f4", "A.52", "double", "store", 8, (Move("store", 0, _float(4), 16),)),
]


def _addresses(identifier: int | None = None) -> list[AddressForm]:
    """The forms of an address, in the program's own space or in one that the instruction or %asi names."""
    index = (INDEX, INDEX_VALUE)
    if identifier is None:
        return [
            AddressForm("[%o4]"),
            AddressForm("[%o4 + %o5]", INDEX_VALUE, index_register=index),
            AddressForm(f"[%o4 + {IMMEDIATE}]", IMMEDIATE),
            AddressForm(f"[%o4 - {IMMEDIATE}]", -IMMEDIATE),
        ]
    register = (f"wr %g0, {identifier:#x}, %asi",)
    return [
        AddressForm(f"[%o4] {identifier:#x}"),
        AddressForm(f"[%o4 + %o5] {identifier:#x}", INDEX_VALUE, index_register=index),
        AddressForm(f"[%o4 + {IMMEDIATE}] %asi", IMMEDIATE, before=register),
    ]


def _encoding(one: Opcode, name: str, address: AddressForm, hint: int = 0) -> Encoding:
    operands = [one.operand, address.text]
    first, second = operands if one.direction == "store" and one.name not in {"swap", "ldstub"} else reversed(operands)
    return one.at(address, f"{name} {first}, {second}", base=BASE, hint_bytes=hint)


def _reversed(one: Opcode) -> Opcode:
    """The same in the other byte order: each register's bytes reversed."""
    moves: list[Move] = []
    for move in one.moves:
        for i in range(move.size):
            last = i == move.size - 1
            register = move.register + move.size - 1 - i
            extension = move.extension if last else 0
            moves.append(Move(move.direction, move.memory + i, register, 1, extension, move.is_signed))
    return one._replace(moves=tuple(moves))


def _plain() -> Iterator[Encoding]:
    for one in (*INTEGERS, *FLOATS):
        for address in _addresses():
            yield _encoding(one, one.name, address)
        for address in _addresses(PRIMARY):
            yield _encoding(one, f"{one.name}a", address)
    for one in INTEGERS:
        if one.name != "swap":
            for address in _addresses(PRIMARY_LITTLE):
                yield _encoding(_reversed(one), f"{one.name}a", address)


def _test_and_set() -> Iterator[Encoding]:
    # What it stores is all ones: so is the index, here.
    moves = (Move("load", 0, _integer(VALUE, 1), 1, 7), Move("store", 0, _integer(INDEX, 1), 1))
    one = Opcode("ldstub", "%o2", "A.29", "other", "store", 1, moves)
    for name, text in (("ldstub", "[%o4 + %o5]"), ("ldstuba", f"[%o4 + %o5] {PRIMARY:#x}")):
        yield _encoding(one, name, AddressForm(text, ONES, index_register=(INDEX, ONES)))
    at_once = AddressForm("[%o4 + 8] %asi", 8, index_register=(INDEX, ONES), before=(f"wr %g0, {PRIMARY:#x}, %asi",))
    yield _encoding(one, "ldstuba", at_once)


def _compare_and_swap() -> Iterator[Encoding]:
    """With a value that differs from memory, and with the value in memory, which is first loaded byte by byte."""
    for name, size in (("casa", 4), ("casxa", 8)):
        loaded = Move("load", 0, _integer(SECOND, size), size, 8 - size)
        fetched = ["ldub [%o4], %l6"]
        for i in range(1, size):
            fetched += ["sllx %l6, 8, %l6", f"ldub [%o4 + {i}], %l7", "or %l6, %l7, %l6"]
        for space, before in ((f"{PRIMARY:#x}", ()), ("%asi", (f"wr %g0, {PRIMARY:#x}, %asi",))):
            for compared, setup, moves in (
                ("%o2", (), (loaded,)),
                ("%l6", tuple(fetched), (loaded, Move("store", 0, _integer(SECOND, size), size))),
            ):
                yield Encoding(
                    state="",
                    text=f"{name} [%o4] {space}, {compared}, %o3",
                    section="A.9",
                    access_class="cas",
                    direction="store",
                    unit_bytes=size,
                    base=BASE,
                    moves=moves,
                    before=(*before, *setup),
                )


def _parts_and_blocks() -> Iterator[Encoding]:
    """UltraSPARC's accesses of bytes and halfwords in floating-point registers, and of 64 bytes at once."""
    for size, identifier in ((1, BYTE), (2, HALF)):
        at = _float(34) + 8 - size
        for name, direction in directions("ldda", "stda"):
            move = Move(direction, 0, at, size, 8 - size if direction == "load" else 0)
            one = Opcode(name, "%f34", "UltraSPARC 13.5.2", "double", direction, size, (move,))
            for address in _addresses(identifier):
                yield _encoding(one, name, address)
    for name, direction in directions("ldda", "stda"):
        move = Move(direction, 0, _float(16), 64)
        one = Opcode(name, "%f16", "UltraSPARC 13.5.3", "double", direction, 8, (move,))
        for address in _addresses(BLOCK):
            yield _encoding(one, name, address, 64)


_FSR = "The state register is not in the register file: the canaries ldx-fsr, stx-fsr, ld-fsr and st-fsr make these."

TABLE = EncodingTable(
    encodings=[*_plain(), *_test_and_set(), *_compare_and_swap(), *_parts_and_blocks()],
    preamble={"sparc32plus": "", "sparc64": ""},
    syntax="",
    states={
        "": SlotForm(
            "",
            "ba sweep_return\nnop",
            ("-m", "sparc:v9m8", "-EB"),
            lambda word, _: word.to_bytes(4, "big"),
            # The names of UltraSPARC's address spaces.
            assembler=("-Wa,-Av9v",),
        )
    },
    assembly=FOLDER / "sparc.S",
    header=FOLDER / "sparc.h",
    names=r"(?!stbar|prefetch)(ld|st|swap|cas)|clr[xhb]? *\[",
    decoder_names=r"(LD|ST(?!BAR)|SWAP|CAS)\w*",
    decoders=[DecoderTable("target/sparc/insns.decode", "", lambda word: word >> 30 == 3)],
    unread=[
        Exempt(r" stqa %f4, .* 0x80", "objdump 2.40 knows STQFA with %asi alone, and prints `unknown`."),
    ],
    unassembled=[],
    unmade=[
        Exempt(r" (ld|ldx|st|stx) (%fsr, )?\[.*\](, %fsr)?", _FSR),
        Exempt(r" ldx \[.*\], %efsr", "VIS 3 (Oracle SPARC Architecture 2011): no target's CPU has it."),
    ],
)
