"""64-bit ARM."""

from __future__ import annotations

import re

import capstone

from harness.isa.architecture import FIRST_32, Architecture, CallFrames, InstructionSet, Variant

_A64 = InstructionSet((capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN))


def _operand_bytes(instruction: str) -> int:
    """Of several registers the last one before the address is moved."""
    moved = re.findall(r"\b([wx])\d+", instruction.partition("[")[0])
    return 8 if moved and moved[-1] == "x" else 4


AARCH64 = Architecture(
    isas=("aarch64",),
    macros="arm64|aarch64",
    variants={"aarch64": Variant(8, False, CallFrames(30, 31, FIRST_32), _A64)},
    # As linux-user/plumbline.c classifies the bits of instructions.
    accesses=[
        # What plain accesses may do everywhere fails through a stack pointer that is misaligned.
        (r"\w+ .*\[sp\b.*", "stack", 16),
        (r"(ld|st)l?a?xp\b.*", "exclusive", 16),
        (r"(ld|st)l?a?xr\b.*", "exclusive", 0),
        (r"(ldar|stlr|ldapr)h\b.*", "acquire", 2),
        (r"(ldar|stlr|ldapr)\b.*", "acquire", 0),
        (r"(cas|swp|ldadd|ldset|ldclr|ldeor)\w*\b.*", "cas", 0),
    ],
    operand_bytes=_operand_bytes,
    # The self test looks for a bug of the host's kernel, and the emulator makes it find one.
    ignored_warnings=("ARM64-COW-BUG",),
)
