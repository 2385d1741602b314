"""PowerPC, big-endian, in both word sizes."""

from __future__ import annotations

import capstone

from harness.isa.architecture import FIRST_32, Architecture, CallFrames, InstructionSet, Variant

# The link register is 65 to DWARF and 67 to the gdb stub.
_FRAMES = CallFrames(65, 1, {**FIRST_32, 65: 67})


def _instructions(mode: int) -> InstructionSet:
    return InstructionSet((capstone.CS_ARCH_PPC, mode | capstone.CS_MODE_BIG_ENDIAN))


POWERPC = Architecture(
    isas=("powerpc", "powerpc64"),
    macros="ppc|ppc64|powerpc|powerpc64|POWERPC",
    variants={
        "ppc": Variant(4, True, _FRAMES, _instructions(capstone.CS_MODE_32)),
        "ppc64": Variant(8, True, _FRAMES, _instructions(capstone.CS_MODE_64)),
    },
)
