"""LoongArch, 64-bit, with vectors of 128 and 256 bits. LLVM's tools read it: capstone 5 does not know it."""

from __future__ import annotations

from harness.isa.architecture import FIRST_32, AccessNotation, Architecture, CallFrames, InstructionSet, Variant

_LA64 = InstructionSet(numbers=("llvm-mc-19", "--disassemble", "--triple=loongarch64", "--mattr=+lsx,+lasx"))

_NOTATION = AccessNotation(
    accesses=(
        r"(?:ld|st)(?:x|ptr|gt|le)?\.(?:h|w|d)u? |f(?:ld|st)(?:x|gt|le)?\.[sd] |(?:ll|sc)(?:acq|rel)?\.[wdq] "
        r"|am\w+\.[hwd]u? |x?v(?:ld|st)x? |x?v(?:ldrepl|stelm)\.[hwd] "
    ),
    alike=[
        (r"\$(?:zero|ra|tp|sp|fp|[ast]\d|r\d+)\b", "r"),
        (r"\$f[ast]?\d+", "f"),
        (r"\$([vx])r\d+", r"\1"),
        (r"(?<=, )-?\d+", "#"),
    ],
)

LOONGARCH = Architecture(
    isas=("loongarch64",),
    macros=r"loongarch\w*",
    variants={"loongarch64": Variant(8, False, CallFrames(1, 3, FIRST_32), _LA64)},
    notation=_NOTATION,
)
