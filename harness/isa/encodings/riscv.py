"""Loads and stores of RV64GC: integers, atomic ones, floating point, and their compressed forms.

Sections are those of The RISC-V Instruction Set Manual, volume I, version 20191213. Offsets and registers are samples;
all opcodes are made, and all orderings of atomic ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.isa.encodings.encoding import (
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
    from collections.abc import Iterator

    from harness.core.target_model import AccessClass
    from harness.isa.encodings.encoding import Encoding

FOLDER = Path(__file__).parent
BASE, VALUE, OTHER = 10, 12, 13
"""Numbers of a0, which is the base, of a2, which is moved, and of a3, which is the result of what moves twice.

t5 and t6 are free for preceding instructions, and so are 16 bytes at sp.
"""
DOUBLE, SINGLE = 10, 11
"""Numbers of fa0 and fa1. The register file contains 8 bytes of fa0, and the 4 bytes of fa1 that FLW writes below its
ones.
"""
OFFSETS = (0, 8, -8, 2040, -2048)
COMPRESSED_OFFSETS = (0, 8, 56)


def _integer(register: int) -> int:
    return 8 * register


def _float(register: int) -> int:
    return 256 + 8 * register


def _load(size: int, *, is_signed: bool = True, register: int = VALUE) -> Move:
    return Move("load", 0, _integer(register), size, 8 - size, is_signed)


def _at(one: Opcode, address: AddressForm, state: str = "RVG") -> Encoding:
    return one.at(address, f"{one.name} {one.operand}, {address.text}", base=BASE, state=state)


CLASSES: dict[int, AccessClass] = {1: "other", 2: "half", 4: "word", 8: "dword"}
LETTERS = {"b": 1, "h": 2, "w": 4, "d": 8}


def _plain() -> Iterator[Opcode]:
    for letter, size in LETTERS.items():
        yield Opcode(f"l{letter}", "a2", "2.6, 5.3", CLASSES[size], "load", size, (_load(size),))
        if size < 8:
            unsigned = _load(size, is_signed=False)
            yield Opcode(f"l{letter}u", "a2", "2.6, 5.3", CLASSES[size], "load", size, (unsigned,))
        store = Move("store", 0, _integer(VALUE), size)
        yield Opcode(f"s{letter}", "a2", "2.6, 5.3", CLASSES[size], "store", size, (store,))
    rows: list[tuple[str, str, str, AccessClass, int, int]] = [
        ("w", "fa1", "11.5", "float", 4, SINGLE),
        ("d", "fa0", "12.3", "double", 8, DOUBLE),
    ]
    for letter, operand, section, access_class, size, register in rows:
        for name, direction in directions(f"fl{letter}", f"fs{letter}"):
            move = Move(direction, 0, _float(register), size)
            yield Opcode(name, operand, section, access_class, direction, size, (move,))


def _compressed(plain: list[Opcode]) -> Iterator[Encoding]:
    for one in plain:
        if one.name in {"lw", "ld", "sw", "sd", "fld", "fsd"}:
            moved = one._replace(name=f"c.{one.name}", section="16.3")
            yield from (_at(moved, AddressForm(f"{by}(a0)", by), "RVC") for by in COMPRESSED_OFFSETS)


def _linked() -> Iterator[Encoding]:
    """LR, SC after its load, and SC without it, which nevertheless requires alignment (8.2)."""
    address = AddressForm("(a0)")
    for letter, size in (("w", 4), ("d", 8)):
        for order in ("", ".aq", ".aqrl"):
            yield _at(Opcode(f"lr.{letter}{order}", "a2", "8.2", "linked", "load", size, (_load(size),)), address)
        store = Move("store", 0, _integer(VALUE), size)
        for order in ("", ".rl", ".aqrl"):
            one = Opcode(f"sc.{letter}{order}", "a3, a2", "8.2", "linked", "store", size, (store,))
            paired = _at(one, address._replace(before=(f"lr.{letter} t5, (a0)",)))
            yield paired._replace(results=((OTHER, 0),))
            # The code of an unspecified failure is 1.
            alone = _at(one, address._replace(before=(f"lr.{letter} t5, (sp)", f"sc.{letter} t5, t5, (sp)")))
            yield alone._replace(moves=(), results=((OTHER, 1),))


def _atomic() -> Iterator[Encoding]:
    """What each makes of memory is a2, for an operand that is made so, or for one that the operation keeps as it is."""
    highest = {4: (1 << 31) - 1, 8: (1 << 63) - 1}
    for letter, size in (("w", 4), ("d", 8)):
        # Sums and differences by bits take what memory has, which is fetched by bytes.
        fetched = ["lbu t5, 0(a0)"]
        for i in range(1, size):
            fetched += [f"lbu t6, {i}(a0)", f"slli t6, t6, {8 * i}", "or t5, t5, t6"]
        kept = {"and": 0, "or": -1, "minu": 0, "maxu": -1, "min": -highest[size] - 1, "max": highest[size]}
        rows: list[tuple[str, str, tuple[str, ...], int | None]] = [
            ("swap", "a2", (), None),
            ("add", "t6", (*fetched, "sub t6, a2, t5"), None),
            ("xor", "t6", (*fetched, "xor t6, a2, t5"), None),
            *((name, "a2", (), value) for name, value in kept.items()),
        ]
        moves = (_load(size, register=OTHER), Move("store", 0, _integer(VALUE), size))
        for name, operand, before, value in rows:
            index = None if value is None else (VALUE, value)
            for order in ("", ".aq", ".rl", ".aqrl"):
                one = Opcode(f"amo{name}.{letter}{order}", f"a3, {operand}", "8.4", "cas", "store", size, moves)
                yield _at(one, AddressForm("(a0)", before=before, index_register=index))


_PLAIN = list(_plain())
_LATER = "the U54 has RV64GC alone."

TABLE = EncodingTable(
    encodings=[
        *(_at(one, AddressForm(f"{by}(a0)", by)) for one in _PLAIN for by in OFFSETS),
        *_linked(),
        *_atomic(),
        *_compressed(_PLAIN),
    ],
    preamble={"riscv64": ""},
    # Linker relaxation and compression would replace instructions.
    syntax=".option norelax",
    states={
        "RVG": SlotForm(
            ".option norvc", "j sweep_return", ("-m", "riscv:rv64"), lambda word, _: word.to_bytes(4, "little")
        ),
        "RVC": SlotForm(
            ".option rvc", "j sweep_return", ("-m", "riscv:rv64"), lambda word, _: word.to_bytes(2, "little"), bits=16
        ),
    },
    assembly=FOLDER / "riscv.S",
    header=FOLDER / "riscv.h",
    names=r"(c\.)?f?[ls][bhwdq]u?(sp)? |(lr|sc|amo\w+)\.|v[ls]\w+\.v ",
    decoder_names=r"(c_)?f?[ls][bhwdq]u?|(lr|sc|amo\w+)_[wdqbh]|hl?[ls]?vx?_\w+|v(le|se|lse|sse|lxei|sxei|lm|sm|l\dre|s\dr)\w*",
    decoders=[
        # Instructions longer than 32 bits begin with five ones (1.5).
        DecoderTable("target/riscv/insn32.decode", "RVG", lambda word: word & 3 == 3 and word & 0x1F != 0x1F),
        DecoderTable("target/riscv/insn16.decode", "RVC", lambda word: word & 3 != 3),
    ],
    unread=[
        Exempt(r"RVG v[ls]\w+", f"Vectors: {_LATER}"),
        Exempt(r"RVG h[ls]vx?_\w+", f"A hypervisor's accesses (volume II, 5): {_LATER}"),
        Exempt(r"RVG f[ls]h|RVG amocas_\w|RVG amo\w+_[bh]", f"Zfh, Zacas and Zabha: {_LATER}"),
        Exempt(r"RVC c_(l[bh]u?|s[bh])", f"Zcb: {_LATER}"),
        Exempt(r"RVG (ldu|[ls]q|amo\w+_q|(lr|sc)_q)", "RV128 (volume I, 7), which no CPU has."),
    ],
    unassembled=[],
    unmade=[
        Exempt(
            r"RVC c?\.?f?[ls][wd]sp .*|RVC f?[ls][wd] \w+, ?\d+\(sp\)",
            "A signal's frame lies at SP, which is no base of a slot.",
        ),
    ],
)
