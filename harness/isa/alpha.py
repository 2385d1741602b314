"""Alpha."""

from __future__ import annotations

from harness.isa.architecture import FIRST_32, AccessNotation, Architecture, CallFrames, InstructionSet, Variant

_EV6 = InstructionSet(objdump=("alpha-linux-gnu-objdump", "-m", "alpha:ev6"))

_NOTATION = AccessNotation(
    accesses=r"(?!ldah? |ldbu |stb )(?:ld|st)\w+ .*\(",
    alike=[
        (r"\$f\d+", "f"),
        (r"\b(?:v0|t\d+|s\d|fp|a\d|ra|at|gp|sp|zero)\b", "r"),
        (r"(?<=,)-?\d*\(", "#("),
    ],
)

ALPHA = Architecture(
    isas=("alpha",),
    macros="alpha",
    variants={"alpha": Variant(8, False, CallFrames(26, 30, FIRST_32), _EV6)},
    notation=_NOTATION,
)
