"""Loads and stores of core registers: one or two, lists of them, swaps, and exclusive accesses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.isa.encodings.arm.addressing import (
    ALL_TARGETS,
    BASE,
    BEFORE_V7,
    BY_IMMEDIATE,
    INDEX,
    INDEX_VALUE,
    PLAIN,
    SECOND,
    SHIFTS,
    STATUS,
    V6,
    V7,
    VALUE,
    by_register,
    in_each_mode,
    offset,
    word,
)
from harness.isa.encodings.encoding import AddressForm, Encoding, Move, Opcode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.core.target_model import AccessClass
    from harness.isa.encodings.encoding import Direction


def _opcode(name: str, section: str, access_class: AccessClass, size: int, *, is_signed: bool = False) -> Opcode:
    """An instruction that moves one register, or two."""
    direction: Direction = "load" if name.startswith("ld") else "store"
    if size == 8:
        moves = tuple(Move(direction, 4 * i, word(VALUE + i), 4) for i in range(2))
        return Opcode(name, "r2, r3", section, access_class, direction, size, moves)
    extension = 4 - size if direction == "load" else 0
    move = Move(direction, 0, word(VALUE), size, extension, is_signed)
    return Opcode(name, "r2", section, access_class, direction, size, (move,))


WORDS_AND_BYTES = [
    _opcode("ldr", "A8.8.62, A8.8.63, A8.8.65, A8.8.66", "word", 4),
    _opcode("str", "A8.8.203 to A8.8.205", "word", 4),
    _opcode("ldrb", "A8.8.67, A8.8.68, A8.8.70", "other", 1),
    _opcode("strb", "A8.8.206 to A8.8.208", "other", 1),
]
HALVES = [
    _opcode("ldrh", "A8.8.79, A8.8.80, A8.8.82", "half", 2),
    _opcode("strh", "A8.8.216 to A8.8.218", "half", 2),
    _opcode("ldrsb", "A8.8.84, A8.8.86", "other", 1, is_signed=True),
    _opcode("ldrsh", "A8.8.88, A8.8.90", "half", 2, is_signed=True),
]
DOUBLEWORDS = [
    _opcode("ldrd", "A8.8.72, A8.8.74", "dword", 8),
    _opcode("strd", "A8.8.210, A8.8.211", "dword", 8),
]


def _unprivileged(one: Opcode) -> Opcode:
    sections = {
        "ldr": "A8.8.92", "str": "A8.8.220", "ldrb": "A8.8.71", "strb": "A8.8.209", "ldrh": "A8.8.83",
        "strh": "A8.8.219", "ldrsb": "A8.8.87", "ldrsh": "A8.8.91",
    }  # fmt: skip
    return one._replace(name=f"{one.name}t", section=sections[one.name])


def _a32_singles() -> Iterator[Encoding]:
    shifted, plain = list(by_register(list(SHIFTS))), list(by_register([""]))
    after = [mode for mode in BY_IMMEDIATE if "]," in mode.text]
    for one in WORDS_AND_BYTES:
        yield from in_each_mode("A32", one, [*BY_IMMEDIATE, *shifted])
        unprivileged = [*after, *by_register(list(SHIFTS), post_indexed_alone=True)]
        yield from in_each_mode("A32", _unprivileged(one), unprivileged)
    for one in (*HALVES, *DOUBLEWORDS):
        yield from in_each_mode("A32", one, [*BY_IMMEDIATE, *plain])
    for one in HALVES:
        unprivileged = [*after, *by_register([""], post_indexed_alone=True)]
        yield from in_each_mode("A32", _unprivileged(one), unprivileged, targets=V7)


def _thumb_singles() -> Iterator[Encoding]:
    indexed = [
        AddressForm(f"[r4, r5, lsl #{amount}]", INDEX_VALUE << amount, 0, (INDEX, INDEX_VALUE)) for amount in (0, 2)
    ]
    for one in (*WORDS_AND_BYTES, *HALVES):
        # Without a choice of width: no instruction of 16 bits has a negative offset, and LLVM takes no `.w` there.
        yield from in_each_mode("T32", one, [offset(-1)], "", V7)
        chosen = [mode for mode in BY_IMMEDIATE if mode != offset(-1)]
        yield from in_each_mode("T32", one, [*chosen, *indexed], ".w", V7)
        yield from in_each_mode("T32", _unprivileged(one), [offset(1)], "", V7)
        narrow = [AddressForm("[r4, r5]", INDEX_VALUE, 0, (INDEX, INDEX_VALUE))]
        # No instruction of 16 bits sign-extends from an immediate offset (A6.2.4).
        yield from in_each_mode("T16", one, narrow if one.moves[0].is_signed else [offset(1), *narrow], ".n", V7)
    for one in DOUBLEWORDS:
        yield from in_each_mode("T32", one, BY_IMMEDIATE, "", V7)


# Lists of registers. The last one holds the base.
SHORT, LONG, WITH_BASE = (3,), (0, 1, 2, 3, *range(5, 13), 14), (3, 4)
LISTS: list[tuple[int, ...]] = [SHORT, (2, 3), LONG]
ORDERS = {"ia": (0, 0), "ib": (4, 0), "da": (4, -4), "db": (0, -4)}
"""How far the first register is beyond the base, and by how many bytes a register more moves it."""


def _block(
    state: str, name: str, order: str, registers: tuple[int, ...], mark: str, targets: tuple[str, ...]
) -> Encoding:
    direction: Direction = "load" if name == "ldm" else "store"
    begin, each = ORDERS[order]
    bytes_moved = 4 * len(registers)
    suffix = ".w" if state == "T32" else ".n" if state == "T16" else ""
    names = ", ".join("lr" if one == 14 else f"r{one}" for one in registers)
    return Encoding(
        state=state,
        text=f"{name}{order}{suffix} r4{mark}, {{{names}}}",
        section="A8.8.57 to A8.8.61" if name == "ldm" else "A8.8.199 to A8.8.202",
        access_class="multi",
        direction=direction,
        unit_bytes=4,
        base=BASE,
        moves=tuple(Move(direction, 4 * i, word(one), 4) for i, one in enumerate(registers)),
        displacement=begin + each * len(registers),
        writeback=(-bytes_moved if order.startswith("d") else bytes_moved) if mark else 0,
        targets=targets,
    )


def _blocks() -> Iterator[Encoding]:
    for name in ("ldm", "stm"):
        for order in ORDERS:
            for mark in ("", "!"):
                for registers in [*LISTS, *([WITH_BASE] if not mark else [])]:
                    yield _block("A32", name, order, registers, mark, ALL_TARGETS)
                    if order in {"ia", "db"} and registers != SHORT:
                        yield _block("T32", name, order, registers, mark, V7)
        yield _block("T16", name, "ia", (2, 3), "!", V7)
    # Without write-back where the base is in the list (A8.8.58, encoding T1).
    yield _block("T16", "ldm", "ia", WITH_BASE, "", V7)


def _swaps() -> Iterator[Encoding]:
    for name, size in (("swp", 4), ("swpb", 1)):
        yield Encoding(
            state="A32",
            text=f"{name} r2, r3, [r4]",
            section="A8.8.229",
            access_class="swap" if size == 4 else "other",
            direction="store",
            unit_bytes=size,
            base=BASE,
            moves=(Move("load", 0, word(VALUE), size, 4 - size), Move("store", 0, word(SECOND), size)),
            targets=BEFORE_V7,
        )


def _exclusives() -> Iterator[Encoding]:
    """LDREX, STREX after its load, and STREX alone, which fails (A3.4.1) after it has checked the alignment."""
    for state, with_offset in (("A32", False), ("T32", True)):
        for letter, size in (("", 4), ("b", 1), ("h", 2), ("d", 8)):
            targets = V7 if state == "T32" else V6
            sizes = [4, 4] if size == 8 else [size]
            loads = tuple(Move("load", 4 * i, word(VALUE + i), part, 4 - part) for i, part in enumerate(sizes))
            others = tuple(move._replace(register=move.register + word(6)) for move in loads)
            stores = tuple(Move("store", 4 * i, word(VALUE + i), part) for i, part in enumerate(sizes))
            values, kept = ("r2, r3", "r8, r9") if size == 8 else ("r2", "r8")
            for mode in [PLAIN, *([offset(1)] if with_offset and not letter else [])]:
                load = Encoding(
                    state=state,
                    text=f"ldrex{letter} {values}, {mode.text}",
                    section="A8.8.75 to A8.8.78",
                    access_class="exclusive" if size > 1 else "other",
                    direction="load",
                    unit_bytes=size,
                    base=BASE,
                    moves=loads,
                    displacement=mode.displacement,
                    targets=targets,
                )
                store = load._replace(
                    text=f"strex{letter} r6, {values}, {mode.text}", section="A8.8.212 to A8.8.215", direction="store"
                )
                yield load
                yield store._replace(moves=(), results=((STATUS, 1),), before=("clrex",))
                first = f"ldrex{letter} {kept}, {mode.text}"
                yield store._replace(moves=(*others, *stores), results=((STATUS, 0),), before=(first,))


def core_registers() -> Iterator[Encoding]:
    """Everything that loads or stores core registers."""
    yield from _a32_singles()
    yield from _thumb_singles()
    yield from _blocks()
    yield from _swaps()
    yield from _exclusives()
