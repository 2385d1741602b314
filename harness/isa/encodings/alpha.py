"""Loads and stores of Alpha: of an EV67, with bytes and halfwords.

Sections are those of the Alpha Architecture Handbook, version 4. Offsets and registers are samples; all opcodes are
made.
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
    RowForm,
    SlotForm,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.core.target_model import AccessClass
    from harness.isa.encodings.encoding import Direction, Encoding

FOLDER = Path(__file__).parent
VALUE, BASE = 1, 4
"""$1 is moved, $4 is the base. $25, $27 and 8 bytes at $30 are free for preceding instructions."""
FLOATS: dict[str, tuple[AccessClass, int, int]] = {
    "s": ("float", 4, 10),
    "t": ("double", 8, 11),
    "g": ("double", 8, 13),
}
"""The last letter of a name -> class, bytes, register: the register file has what that format stores of it (4.8)."""


def _integer(register: int) -> int:
    return 8 * register


def _float(register: int) -> int:
    return 256 + 8 * register


def _all_offsets(one: Opcode, *, truncates: bool = False) -> Iterator[Encoding]:
    for by in OFFSETS:
        yield one.at(AddressForm("", by), f"{one.name} {one.operand}, {by}(${BASE})", base=BASE, truncates=truncates)


def _integers() -> Iterator[Encoding]:
    rows: list[tuple[str, str, AccessClass, int, bool]] = [
        ("ldbu", "4.2.2", "other", 1, False),
        ("ldwu", "4.2.2", "half", 2, False),
        ("ldl", "4.2.2", "word", 4, True),
        ("ldq", "4.2.2", "dword", 8, False),
        ("stb", "4.2.6", "other", 1, False),
        ("stw", "4.2.6", "half", 2, False),
        ("stl", "4.2.6", "word", 4, False),
        ("stq", "4.2.6", "dword", 8, False),
    ]
    for name, section, access_class, size, is_signed in rows:
        direction: Direction = "load" if name.startswith("ld") else "store"
        move = Move(direction, 0, _integer(VALUE), size, 8 - size if direction == "load" else 0, is_signed)
        yield from _all_offsets(Opcode(name, f"${VALUE}", section, access_class, direction, size, (move,)))
    for name, section, direction in _directions("ldq_u", "4.2.3", "stq_u", "4.2.7"):
        move = Move(direction, 0, _integer(VALUE), 8)
        one = Opcode(name, f"${VALUE}", section, "dword", direction, 8, (move,))
        yield from _all_offsets(one, truncates=True)


def _floats() -> Iterator[Encoding]:
    for letter, (access_class, size, register) in FLOATS.items():
        for name, section, direction in _directions(f"ld{letter}", "4.8", f"st{letter}", "4.8"):
            move = Move(direction, 0, _float(register), size)
            yield from _all_offsets(Opcode(name, f"$f{register}", section, access_class, direction, size, (move,)))


def _linked() -> Iterator[Encoding]:
    """Load locked, a store after it, and a store without it, which fails after it has checked the alignment."""
    for letter, size in (("l", 4), ("q", 8)):
        load, store = f"ld{letter}_l", f"st{letter}_c"
        loaded = Move("load", 0, _integer(VALUE), size, 8 - size, True)
        yield from _all_offsets(Opcode(load, f"${VALUE}", "4.2.4", "linked", "load", size, (loaded,)))
        stored = Move("store", 0, _integer(VALUE), size)
        one = Opcode(store, f"${VALUE}", "4.2.5", "linked", "store", size, (stored,))
        for each in _all_offsets(one):
            paired = f"{load} $25, {each.displacement}(${BASE})"
            yield each._replace(before=(paired,), results=((VALUE, 1),))
            alone = (f"{load} $25, 0($30)", f"{store} $25, 0($30)")
            yield each._replace(before=alone, moves=(), results=((VALUE, 0),))


def _directions(load: str, of_load: str, store: str, of_store: str) -> list[tuple[str, str, Direction]]:
    return [(load, of_load, "load"), (store, of_store, "store")]


_NAMES = (
    *("v0", "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "s0", "s1", "s2", "s3", "s4", "s5", "fp"),
    *("a0", "a1", "a2", "a3", "a4", "a5", "t8", "t9", "t10", "t11", "ra", "t12", "at", "gp", "sp", "zero"),
)
"""Names of the integer registers, as objdump prints them."""

TABLE = EncodingTable(
    encodings=[*_integers(), *_floats(), *_linked()],
    preamble={"alpha": ".set noat\n.set noreorder\n.set nomacro"},
    syntax="",
    states={
        "": SlotForm(
            "",
            "br $31, sweep_return",
            ("-m", "alpha:ev6", "-EL"),
            lambda word, _: word.to_bytes(4, "little"),
            assembler=("-mcpu=ev67", *(f"-D{name}=${number}" for number, name in enumerate(_NAMES))),
        )
    },
    assembly=FOLDER / "alpha.S",
    header=FOLDER / "alpha.h",
    names=r"(ld|st)([bw]u?|[lq](_[ulc])?|[fgst])\b",
    decoder_names=r"LD(?!AH?$)\w+|ST\w+",
    decoders=[
        DecoderTable(
            "target/alpha/translate.c",
            "",
            form=RowForm(
                r"^    case 0x(?P<code>\w\w):\n +/\* (?P<name>\w+) \*/",
                lambda row: (0x3F << 26, int(row["code"], 16) << 26),
            ),
        )
    ],
    unread=[],
    unassembled=[],
    unmade=[
        Exempt(
            r" (ld|st)f .*",
            "VAX' F floating, which no compiler writes. QEMU 10.0.13 has it wrong: STF stores its address in place of "
            "its register (target/alpha/translate.c, gen_stf), and LDF takes bits of the fraction for the sign and the "
            "exponent (vax_helper.c, memory_to_f).",
        ),
    ],
    lists_bytes=True,
)
