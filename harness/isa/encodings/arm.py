"""Loads and stores of 32-bit ARM: A32, T32 and T16, with VFP and NEON.

Sections are those of ARM DDI 0406C; ARM DDI 0100I has the same for ARMv5 and ARMv6. Immediate fields, shift amounts,
registers and lanes are samples; opcodes, signs, kinds of shift, write-back, sizes, spacings and hints are all made.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

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
    from collections.abc import Iterator, Sequence

    from harness.core.target_model import AccessClass, Endianness
    from harness.isa.encodings.encoding import Direction

FOLDER = Path(__file__).parent
VALUE, SECOND, BASE, INDEX, STATUS = 2, 3, 4, 5, 6
"""The registers of every instruction: r2 and r3 are moved, r4 and r5 are the address, r6 says whether STREX stored."""
IMMEDIATE, INDEX_VALUE = 8, 12
ALL_TARGETS, V6, V7 = ("*",), ("armv6", "armv7"), ("armv7",)
BEFORE_V7 = ("armv5", "armv6")


def _word(register: int) -> int:
    return 4 * register


def _double(register: int) -> int:
    return 64 + 8 * register


_PLAIN = AddressForm("[r4]")


def _offset(sign: int) -> AddressForm:
    return AddressForm(f"[r4, #{sign * IMMEDIATE}]", sign * IMMEDIATE)


def _pre_indexed(sign: int) -> AddressForm:
    return AddressForm(f"[r4, #{sign * IMMEDIATE}]!", sign * IMMEDIATE, sign * IMMEDIATE)


def _post_indexed(sign: int) -> AddressForm:
    return AddressForm(f"[r4], #{sign * IMMEDIATE}", 0, sign * IMMEDIATE)


BY_IMMEDIATE = [_PLAIN, *(mode(sign) for mode in (_offset, _pre_indexed, _post_indexed) for sign in (1, -1))]

# Kind of shift -> what r5 holds, and what is left of it (A8.4.3). The carry is clear.
SHIFTS = {
    "": (INDEX_VALUE, INDEX_VALUE),
    ", lsl #2": (INDEX_VALUE, INDEX_VALUE * 4),
    ", lsr #1": (INDEX_VALUE, INDEX_VALUE // 2),
    ", asr #1": (-INDEX_VALUE, -INDEX_VALUE // 2),
    ", ror #30": (0xC0000000, 3),
    ", rrx": (INDEX_VALUE, INDEX_VALUE // 2),
}


def _by_register(shifts: Sequence[str], *, post_indexed_alone: bool = False) -> Iterator[AddressForm]:
    for shift in shifts:
        held, effect = SHIFTS[shift]
        for sign, mark in ((1, ""), (-1, "-")):
            index = (INDEX, held)
            if not post_indexed_alone:
                yield AddressForm(f"[r4, {mark}r5{shift}]", sign * effect, 0, index)
                yield AddressForm(f"[r4, {mark}r5{shift}]!", sign * effect, sign * effect, index)
            yield AddressForm(f"[r4], {mark}r5{shift}", 0, sign * effect, index)


def _opcode(name: str, section: str, access_class: AccessClass, size: int, *, is_signed: bool = False) -> Opcode:
    """An instruction that moves one register, or two."""
    direction: Direction = "load" if name.startswith("ld") else "store"
    if size == 8:
        moves = tuple(Move(direction, 4 * i, _word(VALUE + i), 4) for i in range(2))
        return Opcode(name, "r2, r3", section, access_class, direction, size, moves)
    extension = 4 - size if direction == "load" else 0
    move = Move(direction, 0, _word(VALUE), size, extension, is_signed)
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


def _single(
    state: str,
    one: Opcode,
    modes: Sequence[AddressForm],
    suffix: str = "",
    targets: tuple[str, ...] = ALL_TARGETS,
) -> Iterator[Encoding]:
    for mode in modes:
        text = f"{one.name}{suffix} {one.operand}, {mode.text}"
        yield one.at(mode, text, base=BASE, state=state, targets=targets)


def _a32_singles() -> Iterator[Encoding]:
    shifted, plain = list(_by_register(list(SHIFTS))), list(_by_register([""]))
    after = [mode for mode in BY_IMMEDIATE if "]," in mode.text]
    for one in WORDS_AND_BYTES:
        yield from _single("A32", one, [*BY_IMMEDIATE, *shifted])
        unprivileged = [*after, *_by_register(list(SHIFTS), post_indexed_alone=True)]
        yield from _single("A32", _unprivileged(one), unprivileged)
    for one in (*HALVES, *DOUBLEWORDS):
        yield from _single("A32", one, [*BY_IMMEDIATE, *plain])
    for one in HALVES:
        unprivileged = [*after, *_by_register([""], post_indexed_alone=True)]
        yield from _single("A32", _unprivileged(one), unprivileged, targets=V7)


def _thumb_singles() -> Iterator[Encoding]:
    indexed = [
        AddressForm(f"[r4, r5, lsl #{amount}]", INDEX_VALUE << amount, 0, (INDEX, INDEX_VALUE)) for amount in (0, 2)
    ]
    for one in (*WORDS_AND_BYTES, *HALVES):
        yield from _single("T32", one, [*BY_IMMEDIATE, *indexed], ".w", V7)
        yield from _single("T32", _unprivileged(one), [_offset(1)], "", V7)
        narrow = [AddressForm("[r4, r5]", INDEX_VALUE, 0, (INDEX, INDEX_VALUE))]
        # No instruction of 16 bits sign-extends from an immediate offset (A6.2.4).
        yield from _single("T16", one, narrow if one.moves[0].is_signed else [_offset(1), *narrow], ".n", V7)
    for one in DOUBLEWORDS:
        yield from _single("T32", one, BY_IMMEDIATE, "", V7)


# Lists of registers. The last one holds the base.
SHORT, LONG, WITH_BASE = (3,), (0, 1, 2, 3, *range(5, 13), 14), (3, 4)
LISTS: list[tuple[int, ...]] = [SHORT, (2, 3), LONG]
ORDERS = {"ia": (0, 0), "ib": (4, 0), "da": (4, -4), "db": (0, -4)}
"""How far the first register lies beyond the base, and by how many bytes a register more moves it."""


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
        moves=tuple(Move(direction, 4 * i, _word(one), 4) for i, one in enumerate(registers)),
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
            moves=(Move("load", 0, _word(VALUE), size, 4 - size), Move("store", 0, _word(SECOND), size)),
            targets=BEFORE_V7,
        )


def _exclusives() -> Iterator[Encoding]:
    """LDREX, STREX after its load, and STREX alone, which fails (A3.4.1) after it has looked at the alignment."""
    for state, with_offset in (("A32", False), ("T32", True)):
        for letter, size in (("", 4), ("b", 1), ("h", 2), ("d", 8)):
            targets = V7 if state == "T32" else V6
            sizes = [4, 4] if size == 8 else [size]
            loads = tuple(Move("load", 4 * i, _word(VALUE + i), part, 4 - part) for i, part in enumerate(sizes))
            others = tuple(move._replace(register=move.register + _word(6)) for move in loads)
            stores = tuple(Move("store", 4 * i, _word(VALUE + i), part) for i, part in enumerate(sizes))
            values, kept = ("r2, r3", "r8, r9") if size == 8 else ("r2", "r8")
            for mode in [_PLAIN, *([_offset(1)] if with_offset and not letter else [])]:
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


def _vfp() -> Iterator[Encoding]:
    for state, targets in (("A32", ALL_TARGETS), ("T32", V7)):
        for name, direction in directions("vldr", "vstr"):
            for register, offset, size in (("s1", 68, 4), ("d1", 72, 8)):
                section, move = "A8.8.333" if direction == "load" else "A8.8.413", Move(direction, 0, offset, size)
                one = Opcode(name, register, section, "vfp", direction, size, (move,))
                yield from _single(state, one, (_PLAIN, _offset(1), _offset(-1)), "", targets)
        for order, mark in (("ia", ""), ("ia", "!"), ("db", "!")):
            for name, direction in directions("vldm", "vstm"):
                for registers, each, count in VFP_LISTS:
                    text = f"{name}{order} r4{mark}, {{{registers}}}"
                    yield _vfp_block(state, text, direction, order, mark, each, count, 0, targets)
            # With a word more, which is not moved (A8.8.332: FLDMX, FSTMX).
            for name, direction in directions("fldm", "fstm"):
                text = f"{name}{order}x r4{mark}, {{d1-d3}}"
                yield _vfp_block(state, text, direction, order, mark, 8, 3, 4, targets)


VFP_LISTS = [("s1", 4, 1), ("s1-s3", 4, 3), ("s1-s15", 4, 15), ("d1", 8, 1), ("d1-d3", 8, 3), ("d1-d15", 8, 15)]
"""Registers, the bytes of each, and how many there are."""


def _vfp_block(
    state: str,
    text: str,
    direction: Direction,
    order: str,
    mark: str,
    each: int,
    count: int,
    more: int,
    targets: tuple[str, ...],
) -> Encoding:
    total = each * count + more
    return Encoding(
        state=state,
        text=text,
        section="A8.8.332" if direction == "load" else "A8.8.412",
        access_class="vfp",
        direction=direction,
        unit_bytes=4,
        base=BASE,
        moves=tuple(Move(direction, each * i, 64 + each * (1 + i), each) for i in range(count)),
        displacement=-total if order == "db" else 0,
        writeback=(-total if order == "db" else total) if mark else 0,
        targets=targets,
    )


def _lists(first: int, spacing: int, count: int, lane: str = "") -> str:
    return "{" + ", ".join(f"d{first + spacing * i}{lane}" for i in range(count)) + "}"


class _NeonStructures(NamedTuple):
    """A form of VLD1 to VLD4: structures of so many elements, in registers."""

    elements: int
    bits: int
    registers: str
    moves: tuple[Move, ...]
    hints: tuple[int, ...]
    section: str
    is_load_alone: bool = False


# Elements of a structure, groups of such registers, spacing -> what may be hinted, in bits (A8.8.320, 323, 326, 329).
MULTIPLE = {
    (1, 1, 1): (64,),
    (1, 2, 1): (64, 128),
    (1, 3, 1): (64,),
    (1, 4, 1): (64, 128, 256),
    (2, 1, 1): (64, 128),
    (2, 1, 2): (64, 128),
    (2, 2, 2): (64, 128, 256),
    (3, 1, 1): (64,),
    (3, 1, 2): (64,),
    (4, 1, 1): (64, 128, 256),
    (4, 1, 2): (64, 128, 256),
}
# Elements, bits of one -> the same for one lane, and for all lanes (A8.8.321 and 322, 324, 325, 327, 328, 330, 331).
LANE_HINTS = {
    (1, 16): (16,),
    (1, 32): (32,),
    (2, 8): (16,),
    (2, 16): (32,),
    (2, 32): (64,),
    (4, 8): (32,),
    (4, 16): (64,),
    (4, 32): (64, 128),
}
_MULTIPLE_SECTIONS = {
    1: "A8.8.320, A8.8.404",
    2: "A8.8.323, A8.8.406",
    3: "A8.8.326, A8.8.408",
    4: "A8.8.329, A8.8.410",
}
_LANE_SECTIONS = {1: "A8.8.321, A8.8.405", 2: "A8.8.324, A8.8.407", 3: "A8.8.327, A8.8.409", 4: "A8.8.330, A8.8.411"}
_ALL_LANES_SECTIONS = {1: "A8.8.322", 2: "A8.8.325", 3: "A8.8.328", 4: "A8.8.331"}


def _multiple() -> Iterator[_NeonStructures]:
    for (elements, groups, spacing), hints in MULTIPLE.items():
        for bits in (8, 16, 32, 64) if elements == 1 else (8, 16, 32):
            size, moves, at = bits // 8, [], 0
            for group in range(groups):
                for lane in range(8 // size):
                    for element in range(elements):
                        register = element * spacing + group
                        moves.append(Move("load", at, _double(register) + lane * size, size))
                        at += size
            # Of two pairs, the registers of each lie two apart, and together they are four in a row.
            in_a_row = groups > 1
            text = _lists(0, 1 if in_a_row else spacing, elements * groups)
            yield _NeonStructures(elements, bits, text, tuple(moves), hints, _MULTIPLE_SECTIONS[elements])


def _one_lane() -> Iterator[_NeonStructures]:
    for elements in (1, 2, 3, 4):
        for bits in (8, 16, 32):
            size = bits // 8
            for spacing in (1, 2) if elements > 1 and bits > 8 else (1,):
                for lane in (0, 8 // size - 1):
                    moves = tuple(
                        Move("load", i * size, _double(spacing * i) + lane * size, size) for i in range(elements)
                    )
                    text = _lists(0, spacing, elements, f"[{lane}]")
                    hints = LANE_HINTS.get((elements, bits), ())
                    yield _NeonStructures(elements, bits, text, moves, hints, _LANE_SECTIONS[elements])


def _all_lanes() -> Iterator[_NeonStructures]:
    for elements in (1, 2, 3, 4):
        for bits in (8, 16, 32):
            size = bits // 8
            # VLD1 fills one register or two with the same element; the others have a spacing.
            for form in (1, 2):
                count, spacing = (form, 1) if elements == 1 else (elements, form)
                moves = tuple(
                    Move("load", 0 if elements == 1 else i * size, _double(spacing * i) + lane * size, size)
                    for i in range(count)
                    for lane in range(8 // size)
                )
                text = _lists(0, spacing, count, "[]")
                hints = LANE_HINTS.get((elements, bits), ())
                yield _NeonStructures(
                    elements, bits, text, moves, hints, _ALL_LANES_SECTIONS[elements], is_load_alone=True
                )


def _neon() -> Iterator[Encoding]:
    for one in [*_multiple(), *_one_lane(), *_all_lanes()]:
        total = max(move.memory + move.size for move in one.moves)
        modes = [("", 0, None), ("!", total, None), (", r5", INDEX_VALUE, (INDEX, INDEX_VALUE))]
        for state in ("A32", "T32"):
            for name, direction in directions("vld", "vst")[: 1 if one.is_load_alone else 2]:
                for hint in (0, *one.hints):
                    for mark, writeback, index in modes:
                        hinted = f":{hint}" if hint else ""
                        yield Encoding(
                            state=state,
                            text=f"{name}{one.elements}.{one.bits} {one.registers}, [r4{hinted}]{mark}",
                            section=one.section,
                            access_class="neon",
                            direction=direction,
                            unit_bytes=one.bits // 8,
                            base=BASE,
                            moves=tuple(move._replace(direction=direction) for move in one.moves),
                            index_register=index,
                            writeback=writeback,
                            hint_bytes=hint // 8,
                            targets=V7,
                        )


def _is_conditional(word: int) -> bool:
    return word >> 28 != 0xF


def _is_vfp(word: int) -> bool:
    return word >> 28 == 0xE and word >> 25 & 7 == 6


def _half_words(word: int, _: Endianness) -> bytes:
    return (word >> 16).to_bytes(2, "little") + (word & 0xFFFF).to_bytes(2, "little")


# From Thumb, BX PC goes on in A32 behind the word of the BX.
_FROM_THUMB = ".balign 4\nbx pc\nnop\n.arm\nb sweep_return"
_THUMB = ("-m", "arm", "-M", "force-thumb")

TABLE = EncodingTable(
    encodings=[
        *_a32_singles(),
        *_thumb_singles(),
        *_blocks(),
        *_swaps(),
        *_exclusives(),
        *_vfp(),
        *_neon(),
    ],
    preamble={
        "armv5": ".arch armv5te\n.fpu vfpv2\n.set DOUBLES, 16",
        "armv6": ".arch armv6k\n.fpu vfpv2\n.set DOUBLES, 16",
        "armv7": ".arch armv7-a\n.fpu neon-vfpv4\n.set DOUBLES, 32",
    },
    syntax=".syntax unified",
    states={
        "A32": SlotForm(".arm", "b sweep_return", ("-m", "arm"), lambda word, _: word.to_bytes(4, "little")),
        "T32": SlotForm(".thumb", _FROM_THUMB, _THUMB, _half_words, address_bits=1),
        "T16": SlotForm(
            ".thumb", _FROM_THUMB, _THUMB, lambda word, _: word.to_bytes(2, "little"), bits=16, address_bits=1
        ),
    },
    assembly=FOLDER / "arm.S",
    header=FOLDER / "arm.h",
    names=r"(ldr|str|lda|stl|ldm|stm|swp|push|pop|ldc|stc|rfe|srs|tb[bh])|v(ld|st|push|pop|lldm|lstm)|fldm|fstm",
    decoder_names=r"(LDR|STR|LDM|STM|SWP|LDA|STL|TBB|TBH)\w*|RFE|SRS|V(LDR|LDM|LD_|LDST)\w*",
    decoders=[
        DecoderTable("target/arm/tcg/a32.decode", "A32", _is_conditional),
        DecoderTable("target/arm/tcg/a32-uncond.decode", "A32", lambda word: not _is_conditional(word)),
        DecoderTable("target/arm/tcg/neon-ls.decode", "A32", lambda word: word >> 24 == 0xF4),
        DecoderTable("target/arm/tcg/vfp.decode", "A32", _is_conditional),
        # T32 has NEON's loads and stores at 0xf9, A32 at 0xf4 (A7.7).
        DecoderTable("target/arm/tcg/neon-ls.decode", "T32", lambda word: word >> 24 == 0xF9, flipped=0x0D000000),
        DecoderTable("target/arm/tcg/t32.decode", "T32", lambda word: word >> 27 >= 0x1D),
        DecoderTable("target/arm/tcg/vfp.decode", "T32", _is_vfp),
        # From 0xe800 on, 16 bits are the first half of an instruction of T32.
        DecoderTable("target/arm/tcg/t16.decode", "T16", lambda word: word >> 11 < 0x1D),
    ],
    unread=[],
    unassembled=[
        Exempt(
            r"(A32|T32) vld\d\.\d+ \{d0\[\]-d\d\[\]\}.*",
            "gas 2.40 takes the range that objdump prints of these for one of whole registers: VLD1 of {d0-d1}.",
        ),
    ],
    unmade=[
        Exempt(r"(A32|T32) (lda|stl)\S* .*", "ARMv8-A alone (ARM DDI 0487, F5.1): no target's CPU has them."),
        Exempt(r"(A32|T32) v(ldr|str)\w*\.16 .*", "Half precision of ARMv8.2-A (ARM DDI 0487, A2.2.1)."),
        Exempt(
            r"(A32|T32) (ldc|stc)2?l?\w* .*", "No target's CPU has other coprocessors with memory (A8.8.55, A8.8.198)."
        ),
        Exempt(r"(A32|T32) (rfe|srs)\S* .*", "UNPREDICTABLE in User mode (B9.3.13, B9.3.16)."),
        Exempt(
            r"T32 tb[bh] .*",
            "A table lies in code beside its branch, which goes where the loaded value says (A8.8.236).",
        ),
        Exempt(
            r"T32 ldrs?[bh]?t?(\.w)? \w+, \[pc, #-?\d+\]",
            "Literals: the base is PC, which is no register of a slot (A8.8.64).",
        ),
        Exempt(r"T16 (ldr|str) r\d, \[sp(, #\d+)?\]", "The two low bits of SP are zero in Thumb (A6.1.3)."),
        Exempt(r"T16 (push|pop) .*", "The two low bits of SP are zero in Thumb (A6.1.3)."),
        Exempt(r"T16 ldr r\d, \[pc, #\d+\]", "Literals: the base is PC, which is no register of a slot (A8.8.64)."),
    ],
)
