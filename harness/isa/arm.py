"""32-bit ARM: two instruction sets, and a kernel whose treatment of misaligned accesses can be set."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Literal

import capstone

from harness.isa.architecture import (
    FIRST_16,
    AccessNotation,
    AlignmentSwitch,
    Architecture,
    CallFrames,
    InstructionSet,
    Variant,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ARM = InstructionSet((capstone.CS_ARCH_ARM, capstone.CS_MODE_ARM | capstone.CS_MODE_LITTLE_ENDIAN))
# A symbol of Thumb code has its lowest bit set (ELF for the Arm Architecture, 5.5.3).
_THUMB = InstructionSet(
    (capstone.CS_ARCH_ARM, capstone.CS_MODE_THUMB | capstone.CS_MODE_LITTLE_ENDIAN),
    instruction_bytes=0,
    symbol_flag_bits=1,
)
_CPSR, _THUMB_BIT = 25, 1 << 5
# The lowest bit of a return address selects Thumb.
_FRAMES = CallFrames(14, 13, FIRST_16, flag_bits=1)
_CONDITION = r"(eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le|al)?"


def _in_state(order: Literal["little", "big"], registers: Sequence[str]) -> InstructionSet:
    """Thumb where the CPSR's T bit says so. `order`: that of a register's bytes, as of the program's data."""
    text = registers[_CPSR] if len(registers) > _CPSR else ""
    return _THUMB if text and int.from_bytes(bytes.fromhex(text), order) & _THUMB_BIT else _ARM


def _vectors(found: re.Match[str]) -> str:
    """A list of vector registers as `{2 d[#]}`: how many, and whether their lanes, one or all. VLDM counts none."""
    text, kind = found[0], found[1]
    if re.match(r"\S+ v(ldm|stm|push|pop)", found.string):
        return f"{{{kind}}}"
    numbers = [int(number) for number in re.findall(rf"{kind}(\d+)", text)]
    count = numbers[-1] - numbers[0] + 1 if "-" in text else len(numbers)
    return f"{{{count} {kind}{'[]' if '[]' in text else '[#]' if '[' in text else ''}}}"


def _register(name: str) -> Callable[[re.Match[str]], str]:
    return lambda found: re.sub(rf"\b{name}\b", "r", found[0])


_NOTATION = AccessNotation(
    accesses=(
        r"(?:ldr|str|lda|stl)(?!(?:ex|s)?b)|swp(?!b)|ldm|stm|push|pop|ldc|stc|rfe|srs"
        r"|v(?:ld|st)[rm1-4]|vpush|vpop"
    ),
    alike=[
        (r"^(\S+ [a-z\d]+?)(?:eq|ne|cs|cc|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)(?=[ .])", r"\1"),
        (r"\{([sd])\d+[^}]*\}", _vectors),
        (r"\b([sd])\d+\b", r"\1"),
        (r"\b(?:r\d+|sl|fp|ip|lr)\b", "r"),
        # SP is a register like others, but in Thumb's instructions of 16 bits. So is PC in A32, and where it is loaded.
        (r"^(?:A32|T32) .*", _register("sp")),
        (r"^A32 .*", _register("pc")),
        (r"^(\S+ \S+ )pc,", r"\1r,"),
        (r"\{(?:r|pc)\}", "{one}"),
        (r"\{(?:r|sp|pc)\b[^}]*\}", "{registers}"),
        # The lowest byte of a negative offset is a separate encoding where positive ones have 12 bits.
        (r"^(T32 (?:ldr|str)s?h?\.w r, \[\w+, #-)\d+\]$", r"\1]"),
        (r"#-?\d+", "#"),
        (r"-r\b", "r"),
        (r"(\[r, r), \w+ #\]|(\[r, r), rrx\]", r"\1\2]"),
        (r"(\], r), .*", r"\1"),
        (r"^(\S+ v?(?:ldr|str).*\[\w+)\]$", r"\1, #]"),
        (r" :(?=\d+\])", ":"),
        (r"^(A32|T32) push(\S*) \{one\}", r"\1 str\2 r, [r, #]!"),
        (r"^(A32|T32) pop(\S*) \{one\}", r"\1 ldr\2 r, [r], #"),
        (r"^(A32|T32) (v?)push(?:\.w)? ", r"\1 \2stmdb r!, "),
        (r"^(A32|T32) (v?)pop(?:\.w)? ", r"\1 \2ldmia r!, "),
        (r"^(\S+ )(?:ldm|ldmfd) ", r"\1ldmia "),
        (r"^(\S+ )stm ", r"\1stmia "),
        (r"^(\S+ )stmfd ", r"\1stmdb "),
    ],
    states={(8,): "A32", (4,): "T16", (4, 4): "T32"},
)

ARM = Architecture(
    isas=("arm",),
    macros=r"arm|thumb|ARM_\w+",
    unwinding_sections=(".ARM.exidx", ".ARM.extab"),
    # In BE8 (ARM DDI 0406C, A3.3) instructions stay little-endian.
    variants={
        "arm": Variant(4, False, _FRAMES, _ARM, partial(_in_state, "little")),
        "armeb": Variant(4, True, _FRAMES, _ARM, partial(_in_state, "big"), meson_family="arm"),
    },
    # As linux-user/plumbline.c classifies the bits of instructions.
    accesses=[
        (rf"(ldr|str)s?h{_CONDITION}t?\b.*", "half", 2),
        (rf"(ldr|str)d{_CONDITION}\b.*", "dword", 8),
        (rf"(ldm|stm)(ia|ib|da|db|fd|ea|fa|ed)?{_CONDITION}\b.*|(push|pop){_CONDITION}\b.*", "multi", 4),
        (rf"(vldr|vstr){_CONDITION}(\.\d+)? d.*", "vfp", 8),
        (r"(vldr|vstr|vldm|vstm|vpush|vpop)\w*\b.*", "vfp", 4),
        (r"v(ld|st)[1-4]\.8 .*", "neon", 1),
        (r"v(ld|st)[1-4]\.16 .*", "neon", 2),
        (r"v(ld|st)[1-4]\.32 .*", "neon", 4),
        (r"v(ld|st)[1-4].*", "neon", 8),
        (rf"(ld|st)rexh{_CONDITION}\b.*", "exclusive", 2),
        (rf"(ld|st)rexd{_CONDITION}\b.*", "exclusive", 8),
        (rf"(ld|st)rex{_CONDITION}\b.*", "exclusive", 4),
        (rf"swp{_CONDITION}\b.*", "swap", 4),
        (rf"(ldr|str){_CONDITION}t?\b.*", "word", 4),
    ],
    notation=_NOTATION,
    # /proc/cpu/alignment (Linux arch/arm/mm/alignment.c).
    alignment_switch=AlignmentSwitch(kernel="linux-arm-2", policies="linux-arm-"),
)
