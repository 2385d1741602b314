"""Motorola 68000. It pushes return addresses, so only call-frame information shows where a caller is."""

from __future__ import annotations

import capstone

from harness.isa.architecture import FIRST_16, Architecture, CallFrames, InstructionSet, Variant

_68040 = InstructionSet(
    (capstone.CS_ARCH_M68K, capstone.CS_MODE_M68K_040 | capstone.CS_MODE_BIG_ENDIAN), instruction_bytes=0
)

M68K = Architecture(
    isas=("m68k",),
    macros="m68k|mc68000",
    variants={"m68k": Variant(4, True, CallFrames(24, 15, FIRST_16), _68040)},
)
