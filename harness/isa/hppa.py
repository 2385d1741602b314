"""PA-RISC, 32-bit."""

from __future__ import annotations

from harness.isa.architecture import FIRST_32, AccessNotation, Architecture, CallFrames, InstructionSet, Variant

_PA11 = InstructionSet(objdump=("hppa-linux-gnu-objdump", "-m", "hppa1.1", "-EB"))

_NOTATION = AccessNotation(
    # STBY stores bytes.
    accesses=r"(?!ldb|stb|ldil|ldo|ldsid)f?(?:ld|st)\w+(?:,\w+)* .*\(",
    alike=[
        (r"\b(?:fr\d+R?|fpe\d|fpsr)\b", "f"),
        (r"\b(?:r\d+|rp|[sd]p|ret[01]|arg[0-3])\b", "r"),
        # Displacements, in hexadecimal: a short form has 5 bits.
        (r"(?<=[ ,])(?:-?[\da-f]|-10)\(", "#5("),
        (r"(?<=[ ,])-?[\da-f]{2,}\(", "#("),
        (r"\(sr\d,", "(sr,"),
    ],
)

HPPA = Architecture(
    isas=("hppa",),
    macros="hppa",
    # The low two bits of a return address hold the privilege level.
    variants={
        "hppa": Variant(
            4, True, CallFrames(2, 30, FIRST_32, flag_bits=3), _PA11, stack_grows_upward=True, meson_family="parisc"
        )
    },
    notation=_NOTATION,
)
