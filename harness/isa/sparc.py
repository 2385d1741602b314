"""SPARC: register windows, and integer pairs that V9 deprecates but 32-bit compilers write.

Every window is spilled at a fixed place, %fp and %i7 at 14 and 15 words above the stack pointer (SPARC ABI), so stacks
are walked without call-frame information.
"""

from __future__ import annotations

import capstone

from harness.isa import branches
from harness.isa.architecture import (
    AccessNotation,
    Architecture,
    ExactRelocation,
    InstructionSet,
    RegisterWindows,
    Variant,
)

_INTEGER_PAIRS = {0x03: "ldd", 0x07: "std"}
_LOADS_IN_A_SPACE = {
    0x10: "lduwa",
    0x12: "lduha",
    0x13: "ldda",
    0x18: "ldswa",
    0x1A: "ldsha",
    0x1B: "ldxa",
    0x33: "ldda",
}
_IN_A_SPACE = _LOADS_IN_A_SPACE | {0x14: "sta", 0x16: "stha", 0x17: "stda", 0x1E: "stxa", 0x37: "stda"}
_OF_THE_STATE = {0x21: "ld", 0x25: "st"}
"""Accesses to the floating-point state register. An access to all its 64 bits has a 1 in the register field."""
_FLOATING = 0x20
"""The bit of op3 that marks accesses of floating-point registers."""


def _beyond_capstone(code: bytes) -> str:
    """LDD and STD of integer registers, deprecated in V9 but written by GCC for 32-bit programs; accesses in an address
    space, and those of FSR.

    SPARC V9 manual, A.26 to A.29, A.53 to A.55: op 3; op3; rd, rs1, i, and rs2 with an address space, or an offset of
    13 bits with a sign.
    """
    word = int.from_bytes(code[:4])
    op3 = word >> 19 & 0x3F
    if word >> 30 != 3:
        return ""
    if op3 in _INTEGER_PAIRS:
        return _in_order(_INTEGER_PAIRS[op3], _address(word), _register(word >> 25))
    if op3 in _OF_THE_STATE:
        return _in_order(_OF_THE_STATE[op3] + "x" * (word >> 25 & 1), _address(word), "%fsr")
    if op3 in _IN_A_SPACE:
        space = "%asi" if word >> 13 & 1 else f"{word >> 5 & 0xFF:#x}"
        # The lowest bit is the highest of a double's number (5.1.4.1).
        double = f"%f{(word >> 25 & 1) << 5 | word >> 25 & 0x1E}"
        data = double if op3 & _FLOATING else _register(word >> 25)
        return _in_order(_IN_A_SPACE[op3], f"{_address(word)} {space}", data)
    return ""


def _in_order(name: str, place: str, data: str) -> str:
    return f"{name} {place}, {data}" if name.startswith("ld") else f"{name} {data}, {place}"


def _address(word: int) -> str:
    base = _register(word >> 14)
    offset = (word & 0x1FFF ^ 0x1000) - 0x1000
    if word >> 13 & 1:
        return f"[{base}{offset:+#x}]" if offset else f"[{base}]"
    index = _register(word)
    return f"[{base}]" if index == "%g0" else f"[{base}+{index}]"


def _register(number: int) -> str:
    return f"%{'goli'[number >> 3 & 3]}{number & 7}"


def _call_target(instruction: int, address: int) -> int | None:
    """CALL is op 1 with a displacement of 30 bits in words (SPARC V9 manual, A.8)."""
    if instruction >> 30 != 1:
        return None
    displacement = ((instruction & 0x3FFFFFFF) << 2 ^ 0x80000000) - 0x80000000
    # The program counter of 32-bit programs wraps.
    return address + displacement & (0xFFFFFFFF if address <= 0xFFFFFFFF else (1 << 64) - 1)


def _opens_window(instruction: int) -> bool:
    """SAVE is op 2 with op3 3C (SPARC V9 manual, A.45)."""
    return instruction >> 30 == 2 and instruction >> 19 & 0x3F == 0x3C


def _windows(*, bias: int) -> RegisterWindows:
    return RegisterWindows(
        frame_pointer=30,  # %i6
        return_register=31,  # %i7
        leaf_return_register=15,  # %o7
        bias=bias,
        saved_frame_word=14,
        saved_return_word=15,
        call_target=_call_target,
        opens_window=_opens_window,
    )


_V9 = InstructionSet(
    (capstone.CS_ARCH_SPARC, capstone.CS_MODE_V9 | capstone.CS_MODE_BIG_ENDIAN), beyond_capstone=_beyond_capstone
)

_NOTATION = AccessNotation(
    accesses=r"(?!prefetch|flush|jmp|call|ld[us]b|stb|ldstub|clrb)\w+ .*\[",
    alike=[
        (r"^clr(x|h|)\b(.*)", lambda found: f"st{found[1]} %g0,{found[2]}"),
        # What binutils 2.40 calls LDD and STD of integers for V8+.
        (r"^(ld|st)tw\b", r"\1d"),
        (r"%[goli]\d|%[sf]p", "r"),
        (r"%f\d+", "f"),
        (r"\[ (?:r [+-] )?-?(?:0x[\da-f]+|\d+) \]", "[ r + # ]"),
        # Without an offset, the index is %g0; the space in %asi goes with offsets only.
        (r"\[ r \] %asi", "[ r + # ] %asi"),
        (r"^((?!cas).*)\[ r \]", r"\1[ r + r ]"),
    ],
)

_ELF_NAMES = ("EM_SPARC", "EM_SPARC32PLUS", "EM_SPARCV9")

_BRANCHES = branches.in_words(
    branches.WordBranch(0xC0000000, 0x40000000, 30),
    branches.WordBranch(0xC1C00000, 0x00400000, 19),
    branches.WordBranch(0xC1C00000, 0x00800000, 22),
)
"""CALL, BPcc and Bicc (SPARC V9 manual, A.8, A.7 and A.6)."""

SPARC = Architecture(
    isas=("sparc",),
    macros="sparc|sparc64|sparcv9",
    # R_SPARC_PC10 and R_SPARC_PC22 of <elf.h>, in what GCC makes of a switch: _GLOBAL_OFFSET_TABLE_-(TABLE-.).
    table_relocations=dict.fromkeys(_ELF_NAMES, (16, 17)),
    # R_SPARC_HI22, LO10, HH22, HM10, LM22, and R_SPARC_GOTDATA_HIX22 to R_SPARC_GOTDATA_OP.
    exact_relocations=dict.fromkeys(_ELF_NAMES, tuple(map(ExactRelocation, (9, 12, 34, 35, 36, 80, 81, 82, 83, 84)))),
    branches=dict.fromkeys(_ELF_NAMES, _BRANCHES),
    variants={
        # 64-bit stacks are biased (SPARC V9 ABI).
        "sparc64": Variant(8, True, _windows(bias=2047), _V9),
        # Programs that are compiled for V8 (EM_SPARC), and for V8+ (EM_SPARC32PLUS).
        "sparc32plus": Variant(4, True, _windows(bias=0), _V9, meson_family="sparc", elf_machines=(2, 18)),
    },
    # As linux-user/plumbline.c classifies the bits of instructions.
    accesses=[
        (r"(ld|st) .*%f\d.*", "float", 4),
        (r"(ldd|std|ldq|stq)a? .*%f\d.*", "double", 8),
        (r"(ldsh|lduh|sth)a?\b.*", "half", 2),
        (r"(ldx|stx|ldd|std)a?\b.*", "dword", 8),
        (r"casxa?\b.*", "cas", 8),
        (r"casa?\b.*", "cas", 4),
        (r"swapa?\b.*", "swap", 4),
        (r"(ldsw|lduw|ld|st)a?\b.*", "word", 4),
    ],
    notation=_NOTATION,
)
