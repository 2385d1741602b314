"""MIPS, in both byte orders and word sizes."""

from __future__ import annotations

import capstone

from harness.isa.architecture import FIRST_32, AccessNotation, Architecture, CallFrames, InstructionSet, Variant

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
    notation=_NOTATION,
)
