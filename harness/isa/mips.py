"""MIPS, in both byte orders and word sizes."""

from __future__ import annotations

import capstone

from harness.isa.architecture import (
    FIRST_32,
    AccessNotation,
    AlignmentSwitch,
    Architecture,
    CallFrames,
    InstructionSet,
    Variant,
)

# The lowest bit of a return address selects MIPS16.
_FRAMES = CallFrames(31, 29, FIRST_32, flag_bits=1)


def _instructions(mode: int) -> InstructionSet:
    return InstructionSet((capstone.CS_ARCH_MIPS, mode))


_NOTATION = AccessNotation(
    accesses=r"(?!lbu?x? |sb |lui|cache|pref|synci|jalr)\w+ .*\(",
    alike=[
        (r"\$f\d+", "f"),
        (r"\b(?:zero|at|v[01]|a\d|t\d|s\d|k[01]|gp|sp|ra)\b", "r"),
        (r"(?<= )-?\d+\(|(?<=,)-?\d+\(", "#("),
    ],
)

MIPS = Architecture(
    isas=("mips",),
    macros="mips|mips64",
    # MIPS' 64-bit ELF Object File Specification: r_info has its own fields, whatever the order of bytes.
    symbol_first="EM_MIPS",
    variants={
        "mips": Variant(4, True, _FRAMES, _instructions(capstone.CS_MODE_MIPS32 | capstone.CS_MODE_BIG_ENDIAN)),
        "mipsel": Variant(
            4,
            False,
            _FRAMES,
            _instructions(capstone.CS_MODE_MIPS32 | capstone.CS_MODE_LITTLE_ENDIAN),
            meson_family="mips",
        ),
        "mips64": Variant(8, True, _FRAMES, _instructions(capstone.CS_MODE_MIPS64 | capstone.CS_MODE_BIG_ENDIAN)),
        "mips64el": Variant(
            8,
            False,
            _FRAMES,
            _instructions(capstone.CS_MODE_MIPS64 | capstone.CS_MODE_LITTLE_ENDIAN),
            meson_family="mips64",
        ),
    },
    accesses=[
        (r"(lhu?|sh) .*", "half", 2),
        (r"(lwu?|sw) .*", "word", 4),
        (r"(ld|sd) .*", "dword", 8),
        (r"[ls]wx?c1 .*", "float", 4),
        (r"[ls]dx?c1 .*", "double", 8),
        (r"(ll|sc) .*", "linked", 4),
        (r"(lld|scd) .*", "linked", 8),
    ],
    stores=r"s[hwdc]",
    # Linux arch/mips/kernel/unaligned.c, do_ade(): force_sig(SIGBUS).
    kernel_signal="unaddressed",
    # Linux arch/mips/kernel/unaligned.c, debugfs_unaligned(): mips/unaligned_action. SIGBUS is 4 on ARM, and 1 here.
    alignment_switch=AlignmentSwitch(
        kernel="linux-mips",
        policies="linux-mips",
        file="/sys/kernel/debug/mips/unaligned_action",
        own_names=[("signal", "linux-mips-nofixade"), ("fixup", "linux-mips"), ("warn", "linux-mips-show")],
    ),
    # The same file, unaligned_instructions.
    counting_file="/sys/kernel/debug/mips/unaligned_instructions",
    notation=_NOTATION,
)
