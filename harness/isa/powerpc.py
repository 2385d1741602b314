"""PowerPC: big-endian in both word sizes, and little-endian in 64 bits."""

from __future__ import annotations

import capstone

from harness.isa.architecture import FIRST_32, AccessNotation, Architecture, CallFrames, InstructionSet, Variant

# The link register is 65 to DWARF and 67 to the gdb stub.
_FRAMES = CallFrames(65, 1, {**FIRST_32, 65: 67})


def _instructions(mode: int) -> InstructionSet:
    return InstructionSet((capstone.CS_ARCH_PPC, mode))


_NOTATION = AccessNotation(
    # LVSL and LVSR make a permutation of an address.
    accesses=r"(?!lb|stb|lis? |la |lvs[lr] )(?:l|st)\w+\.? .*(?:\(|,r)",
    alike=[
        (r"\b(r|f|v|vs)\d+\b", r"\1"),
        (r"(?<=,)-?\d+\((?:r|0)\)", "#(r)"),
        # A field of 0 is not a register.
        (r",0,r$", ",r,r"),
    ],
)

# Linux arch/powerpc/kernel/traps.c, ppc_emulated, with CONFIG_PPC_EMULATED_STATS.
_COUNTING_FILE = "/sys/kernel/debug/powerpc/emulated_warnings/unaligned"

POWERPC = Architecture(
    isas=("powerpc",),
    macros="ppc|powerpc|POWERPC",
    variants={"ppc": Variant(4, True, _FRAMES, _instructions(capstone.CS_MODE_32 | capstone.CS_MODE_BIG_ENDIAN))},
    accesses=[
        (r"(lh[az]u?x?|sthu?x?|lhbrx|sthbrx) .*", "half", 2),
        (r"(lwzu?x?|stwu?x?|lwbrx|stwbrx) .*", "word", 4),
        (r"(l|st)fsu?x? .*|stfiwx .*", "float", 4),
        (r"(l|st)fdu?x? .*", "double", 8),
        (r"(l|st)mw .*", "multi", 4),
        (r"(lwarx|stwcx\.) .*", "linked", 4),
    ],
    stores="st",
    notation=_NOTATION,
    counting_file=_COUNTING_FILE,
)

POWERPC64 = Architecture(
    isas=("powerpc64",),
    macros="ppc64|powerpc64",
    variants={
        "ppc64": Variant(8, True, _FRAMES, _instructions(capstone.CS_MODE_64 | capstone.CS_MODE_BIG_ENDIAN)),
        "ppc64le": Variant(
            8, False, _FRAMES, _instructions(capstone.CS_MODE_64 | capstone.CS_MODE_LITTLE_ENDIAN), meson_family="ppc64"
        ),
    },
    # The others succeed at any address.
    accesses=[
        (r"(lharx|sthcx\.) .*", "linked", 2),
        (r"(lwarx|stwcx\.) .*", "linked", 4),
        (r"(ldarx|stdcx\.) .*", "linked", 8),
        (r"(lqarx|stqcx\.) .*", "linked", 16),
    ],
    stores="st",
    notation=_NOTATION,
    counting_file=_COUNTING_FILE,
)
