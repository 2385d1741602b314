"""RISC-V, 64-bit, with compressed instructions."""

from __future__ import annotations

import capstone

from harness.isa.architecture import FIRST_32, Architecture, CallFrames, InstructionSet, Variant

_RV64C = InstructionSet(
    (capstone.CS_ARCH_RISCV, capstone.CS_MODE_RISCV64 | capstone.CS_MODE_RISCVC), instruction_bytes=0
)

RISCV = Architecture(
    isas=("riscv64",),
    macros="riscv",
    variants={"riscv64": Variant(8, False, CallFrames(1, 2, FIRST_32), _RV64C)},
)
