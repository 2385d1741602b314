"""RISC-V, 64-bit, with compressed instructions."""

from __future__ import annotations

import capstone

from harness.isa.architecture import FIRST_32, AccessNotation, Architecture, CallFrames, InstructionSet, Variant

_RV64C = InstructionSet(
    (capstone.CS_ARCH_RISCV, capstone.CS_MODE_RISCV64 | capstone.CS_MODE_RISCVC), instruction_bytes=0
)

_NOTATION = AccessNotation(
    accesses=r"(?!lbu? |sb |jalr|jr )\w\S* .*\(",
    alike=[
        (r"\b(?:zero|ra|gp|tp|t\d|s\d+|a\d)\b", "r"),
        # SP is a register like others, but where compressed accesses have it for their address.
        (r"\bsp\b(?!\))", "r"),
        (r"^(RVG .*)\(sp\)", r"\1(r)"),
        (r"\bf[tsa]\d+\b", "f"),
        (r"(?<=,)-?\d+\(", "#("),
    ],
    states={(4,): "RVC", (8,): "RVG"},
)

RISCV = Architecture(
    isas=("riscv64",),
    macros="riscv",
    variants={"riscv64": Variant(8, False, CallFrames(1, 2, FIRST_32), _RV64C)},
    notation=_NOTATION,
)
