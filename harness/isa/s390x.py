"""z/Architecture: its specification exceptions are SIGILL, and frames lie beyond a register save area."""

from __future__ import annotations

import signal

import capstone

from harness.isa.architecture import Architecture, CallFrames, InstructionSet, Variant

# The stub has PSW first. The floating point registers, where a leaf may keep r14 and r15, follow the access registers
# and FPC. Their DWARF numbers go by evens and odds: f0 f2 f4 f6 f1 f3 f5 f7 f8 f10 and so on.
_FLOATS = [*range(0, 8, 2), *range(1, 8, 2), *range(8, 16, 2), *range(9, 16, 2)]
_NUMBERS = {number: number + 2 for number in range(16)} | {
    16 + place: 35 + number for place, number in enumerate(_FLOATS)
}

S390X = Architecture(
    isas=("s390x",),
    macros="s390|s390x",
    variants={
        "s390x": Variant(
            8,
            True,
            # 160 bytes: the register save area of the ABI.
            CallFrames(14, 15, _NUMBERS, frame_offset=160),
            InstructionSet((capstone.CS_ARCH_SYSZ, capstone.CS_MODE_BIG_ENDIAN), instruction_bytes=0),
        )
    },
    # Linux arch/s390/kernel/traps.c, specification_exception().
    misaligned_signal=signal.Signals.SIGILL,
)
