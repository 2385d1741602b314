"""Alpha."""

from __future__ import annotations

from harness.isa.architecture import FIRST_32, Architecture, CallFrames, InstructionSet, Variant

_EV6 = InstructionSet(objdump=("alpha-linux-gnu-objdump", "-m", "alpha:ev6"))

ALPHA = Architecture(
    isas=("alpha",),
    macros="alpha",
    variants={"alpha": Variant(8, False, CallFrames(26, 30, FIRST_32), _EV6)},
)
