"""PA-RISC, 32-bit."""

from __future__ import annotations

from harness.isa.architecture import FIRST_32, Architecture, CallFrames, InstructionSet, Variant

_PA11 = InstructionSet(objdump=("hppa-linux-gnu-objdump", "-m", "hppa1.1", "-EB"))

HPPA = Architecture(
    isas=("hppa",),
    macros="hppa",
    # The low two bits of a return address hold the privilege level.
    variants={"hppa": Variant(4, True, CallFrames(2, 30, FIRST_32, flag_bits=3), _PA11, stack_grows_upward=True)},
)
