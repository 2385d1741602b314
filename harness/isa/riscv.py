"""RISC-V, 64-bit, with compressed instructions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import capstone

from harness.isa.architecture import FIRST_32, AccessNotation, Architecture, CallFrames, InstructionSet, Variant

if TYPE_CHECKING:
    from collections.abc import Sequence

_RV64C = InstructionSet(
    (capstone.CS_ARCH_RISCV, capstone.CS_MODE_RISCV64 | capstone.CS_MODE_RISCVC), instruction_bytes=0
)

_NOTATION = AccessNotation(
    accesses=r"(?!lbu? |sb |jalr|jr )\w\S* .*\(",
    alike=[
        (r"\b(?:zero|ra|gp|tp|t\d|s\d+|a\d)\b", "r"),
        # SP is a register like others, but where compressed accesses have it for their address.
        (r"\bsp\b(?!\))", "r"),
        (r"^(RVG .*)\(sp\)", r"\1(r)"),
        (r"\bf[tsa]\d+\b", "f"),
        (r"(?<=,)-?\d+\(", "#("),
    ],
    states={(4,): "RVC", (8,): "RVG"},
)

_PLACE = re.compile(r"(-?(?:0x)?[\da-f]*)\((\w+)\)$")
_NAMES = [
    *("zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1"),
    *(f"a{number}" for number in range(8)),
    *(f"s{number}" for number in range(2, 12)),
    *(f"t{number}" for number in range(3, 7)),
]
"""The registers by their numbers, as the gdb stub has them."""


def _data_address(instruction: str, registers: Sequence[str], si_addr: int) -> int:
    """Linux puts the instruction's address into si_addr (arch/riscv/kernel/traps.c, do_trap_load_misaligned() and
    do_trap_store_misaligned()). Every access is at a register plus a constant.
    """
    place = _PLACE.search(instruction)
    if place is None:
        return si_addr
    base = int.from_bytes(bytes.fromhex(registers[_NAMES.index(place[2])]), "little")
    return base + int(place[1] or "0", 0) & 0xFFFFFFFFFFFFFFFF


RISCV = Architecture(
    isas=("riscv64",),
    macros="riscv",
    variants={"riscv64": Variant(8, False, CallFrames(1, 2, FIRST_32), _RV64C)},
    accesses=[
        (r"(lhu?|sh) .*", "half", 2),
        (r"(lwu?|sw|c\.lw|c\.sw|c\.lwsp|c\.swsp) .*", "word", 4),
        (r"(ld|sd|c\.ld|c\.sd|c\.ldsp|c\.sdsp) .*", "dword", 8),
        (r"(flw|fsw) .*", "float", 4),
        (r"(fld|fsd|c\.fld|c\.fsd|c\.fldsp|c\.fsdsp) .*", "double", 8),
        (r"(lr|sc)\.w.*", "linked", 4),
        (r"(lr|sc)\.d.*", "linked", 8),
        (r"amo\w+\.w.*", "cas", 4),
        (r"amo\w+\.d.*", "cas", 8),
    ],
    stores=r"(c\.)?f?s[hwdc]|amo",
    data_address=_data_address,
    kernel_signal="at-pc",
    notation=_NOTATION,
)
