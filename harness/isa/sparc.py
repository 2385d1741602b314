"""SPARC: register windows, and integer pairs that V9 deprecates but 32-bit compilers write.

Every window is spilled at a fixed place, %fp and %i7 at 14 and 15 words above the stack pointer (SPARC ABI), so stacks
are walked without call-frame information.
"""

from __future__ import annotations

import capstone

from harness.isa.architecture import Architecture, InstructionSet, RegisterWindows, Variant


def _pair(code: bytes) -> str:
    """LDD and STD of integer registers, deprecated in V9 but written by GCC for 32-bit programs; capstone lacks them.

    SPARC V9 manual, A.27 and A.54: op 3; op3 0x03 and 0x07; rd, rs1, i, and rs2 or a signed 13-bit offset.
    """
    word = int.from_bytes(code[:4])
    op3 = word >> 19 & 0x3F
    if word >> 30 != 3 or op3 not in {0x03, 0x07}:
        return ""
    data, base = _register(word >> 25), _register(word >> 14)
    offset = (word & 0x1FFF ^ 0x1000) - 0x1000
    if word >> 13 & 1:
        address = f"[{base}{offset:+#x}]" if offset else f"[{base}]"
    else:
        index = _register(word)
        address = f"[{base}]" if index == "%g0" else f"[{base}+{index}]"
    return f"ldd {address}, {data}" if op3 == 0x03 else f"std {data}, {address}"


def _register(number: int) -> str:
    return f"%{'goli'[number >> 3 & 3]}{number & 7}"


def _call_target(instruction: int, address: int) -> int | None:
    """CALL is op 1 with a displacement of 30 bits in words (SPARC V9 manual, A.8)."""
    if instruction >> 30 != 1:
        return None
    displacement = (instruction & 0x3FFFFFFF) << 2
    forwards = displacement < 0x80000000
    return (address + displacement) & 0xFFFFFFFF if forwards else address + displacement - 0x100000000


def _windows(*, bias: int) -> RegisterWindows:
    return RegisterWindows(
        frame_pointer=30,  # %i6
        return_register=31,  # %i7
        leaf_return_register=15,  # %o7
        bias=bias,
        saved_frame_word=14,
        saved_return_word=15,
        call_target=_call_target,
    )


_V9 = InstructionSet((capstone.CS_ARCH_SPARC, capstone.CS_MODE_V9 | capstone.CS_MODE_BIG_ENDIAN), beyond_capstone=_pair)

SPARC = Architecture(
    isas=("sparc",),
    macros="sparc|sparc64|sparcv9",
    variants={
        # 64-bit stacks are biased (SPARC V9 ABI).
        "sparc64": Variant(8, True, _windows(bias=2047), _V9),
        "sparc32plus": Variant(4, True, _windows(bias=0), _V9),
    },
    # As linux-user/plumbline.c classifies the bits of instructions.
    accesses=[
        (r"(ld|st) .*%f\d.*", "float", 4),
        (r"(ldd|std) .*%f\d.*", "double", 8),
        (r"(ldsh|lduh|sth)a?\b.*", "half", 2),
        (r"(ldx|stx|ldd|std)a?\b.*", "dword", 8),
        (r"casxa?\b.*", "cas", 8),
        (r"casa?\b.*", "cas", 4),
        (r"swapa?\b.*", "swap", 4),
        (r"(ldsw|lduw|ld|st)a?\b.*", "word", 4),
    ],
)
