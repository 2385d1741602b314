"""The table of 32-bit ARM: its states, and how it is compared with the emulator's decoder, objdump and gas."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.isa.encodings.arm.core_registers import core_registers
from harness.isa.encodings.arm.neon import neon
from harness.isa.encodings.arm.vfp import vfp
from harness.isa.encodings.encoding import DecoderTable, EncodingTable, Exempt, RegisterRow, SlotForm

if TYPE_CHECKING:
    from harness.core.target_model import Endianness

FOLDER = Path(__file__).parent


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
        *core_registers(),
        *vfp(),
        *neon(),
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
    rows=(RegisterRow(0, 4), RegisterRow(64, 8)),
)
