"""Loads and stores of MIPS32 and MIPS64, Release 2, in both byte orders.

Sections are the instructions' names in volume II of MIPS Architecture for Programmers: MD00086 for MIPS32, MD00087 for
MIPS64. Offsets and registers are samples; all opcodes are made.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.core.target_model import Endianness
from harness.isa.encodings.encoding import (
    OFFSETS,
    AddressForm,
    DecoderTable,
    Encoding,
    EncodingTable,
    Exempt,
    Move,
    Opcode,
    RowForm,
    SlotForm,
    directions,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from harness.core.target_model import AccessClass
    from harness.isa.encodings.encoding import Direction

FOLDER = Path(__file__).parent
VALUE, BASE, INDEX, NEGATIVE_INDEX = 2, 4, 5, 6
"""$2 is moved, $4 is the base, $5 and $6 are the index. $25 and the word at $29 are free for preceding instructions."""
DOUBLE, SINGLE = 2, 4
"""The floating-point registers: $f2 has 8 bytes in the register file. Of $f4 it has 4: LWC1 leaves the rest open."""
INDEX_VALUE = 24


class _MipsTarget(NamedTuple):
    """A target, and where its registers are in the register file."""

    target: str
    word_bytes: int
    is_big: bool

    def integer(self, register: int, size: int) -> int:
        """The position of an integer register's lowest bytes."""
        return self.word_bytes * register + (self.word_bytes - size if self.is_big else 0)

    def float(self, register: int) -> int:
        """The position of a floating-point register. 32-bit programs have only those with even numbers."""
        return 32 * self.word_bytes + 8 * (register if self.word_bytes == 8 else register // 2)

    def moved(self, direction: Direction, size: int, *, is_signed: bool = True) -> Move:
        """All of what an instruction moves between $2 and memory."""
        extension = self.word_bytes - size if direction == "load" else 0
        return Move(direction, 0, self.integer(VALUE, size), size, extension, is_signed)

    def at(
        self, one: Opcode, address: AddressForm, *, results: tuple[tuple[int, int], ...] = (), truncates: bool = False
    ) -> Encoding:
        text = f"{one.name} {one.operand}, {address.text}"
        found = one.at(address, text, base=BASE, truncates=truncates, targets=(self.target,))
        return found._replace(results=results)


MACHINES = [
    _MipsTarget("mips", 4, True),
    _MipsTarget("mipsel", 4, False),
    _MipsTarget("mips64", 8, True),
    _MipsTarget("mips64el", 8, False),
]
CLASSES: dict[int, AccessClass] = {1: "other", 2: "half", 4: "word", 8: "dword"}
# Name -> bytes; the loads of the second table fill the rest of the register with zeros.
SIGNED, UNSIGNED = {"lb": 1, "lh": 2, "lw": 4}, {"lbu": 1, "lhu": 2}
STORES = {"sb": 1, "sh": 2, "sw": 4}
DOUBLES = {"ld": 8, "sd": 8}


def _opcode(name: str, access_class: AccessClass, size: int, move: Move, operand: str = f"${VALUE}") -> Opcode:
    return Opcode(name, operand, name.upper(), access_class, move.direction, size, (move,))


def _offset(by: int) -> AddressForm:
    return AddressForm(f"{by}(${BASE})", by)


def _integers(machine: _MipsTarget) -> Iterator[Encoding]:
    is_wide = machine.word_bytes == 8
    for name, size in {**SIGNED, **UNSIGNED, **({"lwu": 4, "ld": 8} if is_wide else {})}.items():
        one = _opcode(name, CLASSES[size], size, machine.moved("load", size, is_signed=name in SIGNED))
        yield from (machine.at(one, _offset(by)) for by in OFFSETS)
    for name, size in {**STORES, **({"sd": 8} if is_wide else {})}.items():
        one = _opcode(name, CLASSES[size], size, machine.moved("store", size))
        yield from (machine.at(one, _offset(by)) for by in OFFSETS)


def _floats(machine: _MipsTarget) -> Iterator[Encoding]:
    kinds: list[tuple[str, str, AccessClass, int, int]] = [
        ("lwc1", "swc1", "float", 4, SINGLE),
        ("ldc1", "sdc1", "double", 8, DOUBLE),
    ]
    indexed = [
        AddressForm(f"${INDEX}(${BASE})", INDEX_VALUE, index_register=(INDEX, INDEX_VALUE)),
        AddressForm(f"${NEGATIVE_INDEX}(${BASE})", -INDEX_VALUE, index_register=(NEGATIVE_INDEX, -INDEX_VALUE)),
    ]
    for load, store, access_class, size, register in kinds:
        for name, direction in directions(load, store):
            move, operand = Move(direction, 0, machine.float(register), size), f"$f{register}"
            yield from (machine.at(_opcode(name, access_class, size, move, operand), _offset(by)) for by in OFFSETS)
            by_register = _opcode(name.replace("c1", "xc1"), access_class, size, move, operand)
            yield from (machine.at(by_register, address) for address in indexed)
    for name, direction in directions("luxc1", "suxc1"):
        one = _opcode(name, "double", 8, Move(direction, 0, machine.float(DOUBLE), 8), f"$f{DOUBLE}")
        yield from (machine.at(one, address, truncates=True) for address in indexed)


def _linked(machine: _MipsTarget) -> Iterator[Encoding]:
    """LL, SC after its load, and SC without it: there the manual leaves open whether it stores, not what it demands.

    The emulator's processors fail it, as they fail every one whose address is not that of the load.
    """
    sizes = [("ll", "sc", 4), *([("lld", "scd", 8)] if machine.word_bytes == 8 else [])]
    for load, store, size in sizes:
        for by in OFFSETS[:3]:
            address = _offset(by)
            yield machine.at(_opcode(load, "linked", size, machine.moved("load", size)), address)
            one = _opcode(store, "linked", size, machine.moved("store", size))
            paired = address._replace(before=(f"{load} $25, {address.text}",))
            yield machine.at(one, paired, results=((VALUE, 1),))
            alone = address._replace(before=(f"{load} $25, 0($29)", f"{store} $25, 0($29)"))
            yield machine.at(one._replace(moves=()), alone, results=((VALUE, 0),))


def _parts(machine: _MipsTarget) -> Iterator[Encoding]:
    """The two parts of a word at any address, in either order: what one of them does depends on the address."""
    kinds = [("lw", 4), ("sw", 4), *([("ld", 8), ("sd", 8)] if machine.word_bytes == 8 else [])]
    for name, size in kinds:
        for by in OFFSETS[:3]:
            ends = (by, by + size - 1) if machine.is_big else (by + size - 1, by)
            left, right = (f"{name}{part} ${VALUE}, {end}(${BASE})" for part, end in zip("lr", ends, strict=True))
            direction: Direction = "load" if name.startswith("l") else "store"
            one = Opcode("", "", f"{name.upper()}L, {name.upper()}R", "other", direction, 1, ())
            one = one._replace(moves=(machine.moved(direction, size),))
            for first, second in ((left, right), (right, left)):
                address = AddressForm("", by, before=(first,))
                yield one.at(address, second, base=BASE, targets=(machine.target,))


def _fixed(row: re.Match[str]) -> tuple[int, int]:
    if row["major"]:
        return 0x3F << 26, int(row["major"], 16) << 26
    group, minor = row["group"], int(row["minor"], 16)
    # Fields that must be zero, which this decoder ignores: an unused register, and the bit after EVA's offsets.
    zeros = 0x1F << (11 if minor < 8 else 6) if group == "CP3" else 1 << 6
    return 0x3F << 26 | 0x3F | zeros, {"CP3": 0x13, "SPECIAL3": 0x1F}[group] << 26 | minor


_LATER = "no target's CPU has it."

TABLE = EncodingTable(
    encodings=[
        encoding for machine in MACHINES for form in (_integers, _floats, _linked, _parts) for encoding in form(machine)
    ],
    preamble={machine.target: ".set noreorder\n.set noat\n.set nomacro" for machine in MACHINES},
    syntax="",
    states={
        "": SlotForm(
            "",
            "b sweep_return\nnop",
            ("-m", "mips:isa64r2", "-EB"),
            lambda word, order: word.to_bytes(4, "big" if order is Endianness.BIG else "little"),
            # Debian's for mipsel puts a SYNC before each LL.
            assembler=("-Wa,-mno-fix-loongson3-llsc",),
        )
    },
    assembly=FOLDER / "mips.S",
    header=FOLDER / "mips.h",
    names=(
        r"(?!lui|li |lsa|ldi)"
        r"([ls][bhwd]u?|[ls][wd][lr]|[ls]ld?|scd?|[ls][wdu]x?c[123]|l[bhwd]u?x|[ls][bhw]e|l[bh]u?e|[ls]w[lr]e|lle|sce)\b"
    ),
    decoder_names=r"OPC_([LS][BHWD]|L[BHW]U|[LS][WD][LR]|LLD?|SCD?|[LS][WD]C[12]|[LS][WDU]XC1|[LS]\w+E)",
    decoders=[
        DecoderTable(
            "target/mips/tcg/translate.c",
            "",
            form=RowForm(
                r"\b(?P<name>(?!OPC_(?:CP3|SPECIAL3)\b)\w+) *= *"
                r"(?:\(0x(?P<major>\w\w) << 26\)|0x(?P<minor>\w\w) *\| *OPC_(?P<group>CP3|SPECIAL3)),",
                _fixed,
            ),
        )
    ],
    unread=[],
    unassembled=[],
    unmade=[
        Exempt(
            r" ([ls][bhw]e|l[bh]u?e|[ls]w[lr]e|lle|sce) .*",
            f"Of a user's memory, by the kernel (EVA of Release 3): {_LATER}",
        ),
        Exempt(r" [ls][wd]c[23] .*", f"A second coprocessor (MD00086, LWC2): {_LATER}"),
    ],
    registers=("-M", "reg-names=numeric"),
)
