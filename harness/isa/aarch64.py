"""64-bit ARM."""

from __future__ import annotations

import re

import capstone

from harness.isa import branches
from harness.isa.architecture import (
    FIRST_32,
    AccessNotation,
    Architecture,
    CallFrames,
    ExactRelocation,
    InstructionSet,
    Variant,
)

_A64 = InstructionSet((capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN))
_FRAMES = CallFrames(30, 31, FIRST_32)


def _operand_bytes(instruction: str) -> int:
    """The size of a general register that an instruction moves: of the last one before the address."""
    moved = re.findall(r"\b([wx])\d+", instruction.partition("[")[0])
    return 8 if moved and moved[-1] == "x" else 4


def _vectors(found: re.Match[str]) -> str:
    """A list of vector registers as `{2 v.16b}`."""
    numbers = [int(number) for number in re.findall(r"v(\d+)", found[0])]
    count = (numbers[-1] - numbers[0]) % 32 + 1 if "-" in found[0] else len(numbers)
    return f"{{{count} v.{found[1]}}}"


_NOTATION = AccessNotation(
    # Names that end in b, and b registers, mean bytes.
    accesses=r"(?!r?prfu?m|\S*b |\w+ b\d)\S+ (?:[^\[]+, |\{[^}]*\}(?:\[\d+\])?, )\[|ldr(?:sw)? \w+, [\da-f]+$",
    alike=[
        (r"\{v\d+\.(\w+)[^}]*\}", _vectors),
        (r"\}\[\d+\]", "}[#]"),
        (r"\b(?:x\d+|xzr|sp)\b", "x"),
        (r"\b(?:w\d+|wzr)\b", "w"),
        (r"\b([hsdq])\d+\b", r"\1"),
        (r"#-?(?:0x)?[\da-f]+\b", "#"),
        (r"(\[x, [xw]), \w+(?: #)?\]", r"\1]"),
        (r"^((?:ld|st)(?:[uxt]?r|n?p|[uxt]?rs?h|[uxt]?rsw|psw) .*\[x)\]$", r"\1, #]"),
        (r"^(ldr\w* \w, )[\da-f]+$", r"\1literal"),
    ],
)

AARCH64 = Architecture(
    isas=("aarch64",),
    macros="arm64|aarch64",
    # The byte order is that of data: instructions are always little-endian (ARM DDI 0487, B2: instruction endianness).
    variants={
        "aarch64": Variant(8, False, _FRAMES, _A64),
        "aarch64_be": Variant(8, True, _FRAMES, _A64, meson_family="aarch64"),
    },
    # As linux-user/plumbline.c classifies the bits of instructions.
    accesses=[
        # Plain accesses may be at any address, but fail if they go through a misaligned stack pointer.
        (r"\w+ .*\[sp\b.*", "stack", 16),
        (r"(ld|st)l?a?xp\b.*", "exclusive", 16),
        (r"(ld|st)l?a?xrh\b.*", "exclusive", 2),
        (r"(ld|st)l?a?xr\b.*", "exclusive", 0),
        (r"(ldar|stlr|ldapr)h\b.*", "acquire", 2),
        (r"(ldar|stlr|ldapr)\b.*", "acquire", 0),
        (r"(cas|swp|ldadd|ldset|ldclr|ldeor)\w*\b.*", "cas", 0),
    ],
    notation=_NOTATION,
    operand_bytes=_operand_bytes,
    # The self-test looks for a bug in the host's kernel. Under the emulator it reports one that does not exist.
    # R_AARCH64_ADR_PREL_PG_HI21, R_AARCH64_ADD_ABS_LO12_NC.
    exact_relocations={"EM_AARCH64": (ExactRelocation(275), ExactRelocation(277))},
    # B and BL (ARM DDI 0487, C6.2). Instructions are little-endian (B2.6.2).
    branches={"EM_AARCH64": branches.in_words(branches.WordBranch(0x7C000000, 0x14000000, 26), always="<")},
    ignored_warnings=("ARM64-COW-BUG",),
)
