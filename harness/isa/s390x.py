"""z/Architecture: its specification exceptions are SIGILL, and frames are beyond a register save area."""

from __future__ import annotations

import signal

import capstone

from harness.isa.architecture import AccessNotation, Architecture, CallFrames, InstructionSet, Variant

# The stub has PSW first. The floating point registers, where a leaf may keep r14 and r15, follow the access registers
# and FPC. Their DWARF numbers go by evens and odds: f0 f2 f4 f6 f1 f3 f5 f7 f8 f10 and so on.
_FLOATS = [*range(0, 8, 2), *range(1, 8, 2), *range(8, 16, 2), *range(9, 16, 2)]
_NUMBERS = {number: number + 2 for number in range(16)} | {
    16 + place: 35 + number for place, number in enumerate(_FLOATS)
}

# What has an operand like an address but makes no access, as LA, shifts and branches, or one of bytes and strings of
# bytes, as ICM, MVC and CLC.
_OTHERS = (
    r"lay?|b|bc|bas|bct|bctg|bxh|bxle|ex|ecag|pfd|(?:s[lr][al]|s[lr]d[al])[gk]?|rllg?|srnm"
    r"|icy?|icmh?y?|stcy?|stcmh?y?|cliy?|clmh?y?|mviy?|tmy?|[nox]iy?|ll?g?[bc]|ts"
    r"|mvc|clc|[nox]c|tr|trt|mvcle|clcle|svc|mvn|mvz|srp|unpk|pack"
)

_NOTATION = AccessNotation(
    accesses=rf"(?!(?:{_OTHERS}) )(?:\w+ .*[(]|(?!larl|exrl)\w+rl %r\d+,[\da-f]+$|(?:l|lg|st|stg) %r\d+,\d+$)",
    alike=[
        (r"%([rfa])\d+", r"\1"),
        (r"^(\w+rl r,)[\da-f]+$", r"\1literal"),
        # A field of 0 is not a register, neither as an index nor as a base.
        (r"-?\d+\((?:r|r,r|0,r)\)|(?<=r,)\d+$", "#(r)"),
        (r"\),-?\d+$", "),#"),
        # The condition is a field of the instruction.
        (r"^((?:loc|stoc)g?)(?:n?[ehlo]|n?[hl]e|n?lh) ", r"\1cc "),
    ],
)

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
    accesses=[
        (r"(cs|csy|la[nox]|laal?) .*", "cas", 4),
        (r"(csg|cds|cdsy|la[nox]g|laalg|laag) .*", "cas", 8),
        (r"cdsg .*", "cas", 16),
        (r"(lpq|stpq) .*", "other", 16),
    ],
    stores=r"cd?s|la|st",
    notation=_NOTATION,
    # Linux arch/s390/kernel/traps.c, specification_exception().
    misaligned_signal=signal.Signals.SIGILL,
)
