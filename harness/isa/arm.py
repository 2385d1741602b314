"""32-bit ARM: two instruction sets, and a kernel whose treatment of misaligned accesses can be set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import capstone

from harness.isa.architecture import FIRST_16, AlignmentSwitch, Architecture, CallFrames, InstructionSet, Variant

if TYPE_CHECKING:
    from collections.abc import Sequence

_ARM = InstructionSet((capstone.CS_ARCH_ARM, capstone.CS_MODE_ARM | capstone.CS_MODE_LITTLE_ENDIAN))
# A symbol of Thumb code has its lowest bit set (ELF for the Arm Architecture, 5.5.3).
_THUMB = InstructionSet(
    (capstone.CS_ARCH_ARM, capstone.CS_MODE_THUMB | capstone.CS_MODE_LITTLE_ENDIAN),
    instruction_bytes=0,
    symbol_flag_bits=1,
)
_CPSR, _THUMB_BIT = 25, 1 << 5
_CONDITION = r"(eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le|al)?"


def _in_state(registers: Sequence[str]) -> InstructionSet:
    """Thumb where the CPSR's T bit says so."""
    text = registers[_CPSR] if len(registers) > _CPSR else ""
    return _THUMB if text and int.from_bytes(bytes.fromhex(text), "little") & _THUMB_BIT else _ARM


ARM = Architecture(
    isas=("arm",),
    macros=r"arm|thumb|ARM_\w+",
    # The lowest bit of a return address selects Thumb.
    variants={"arm": Variant(4, False, CallFrames(14, 13, FIRST_16, flag_bits=1), _ARM, _in_state)},
    # As linux-user/plumbline.c classifies the bits of instructions.
    accesses=[
        (rf"(ldr|str)s?h{_CONDITION}t?\b.*", "half", 2),
        (rf"(ldr|str)d{_CONDITION}\b.*", "dword", 8),
        (rf"(ldm|stm)(ia|ib|da|db|fd|ea|fa|ed)?{_CONDITION}\b.*|(push|pop){_CONDITION}\b.*", "multi", 4),
        (rf"(vldr|vstr){_CONDITION}(\.\d+)? d.*", "vfp", 8),
        (r"(vldr|vstr|vldm|vstm|vpush|vpop)\w*\b.*", "vfp", 4),
        (r"v(ld|st)[1-4]\.8 .*", "neon", 1),
        (r"v(ld|st)[1-4]\.16 .*", "neon", 2),
        (r"v(ld|st)[1-4]\.32 .*", "neon", 4),
        (r"v(ld|st)[1-4].*", "neon", 8),
        (rf"(ld|st)rexh{_CONDITION}\b.*", "exclusive", 2),
        (rf"(ld|st)rexd{_CONDITION}\b.*", "exclusive", 8),
        (rf"(ld|st)rex{_CONDITION}\b.*", "exclusive", 4),
        (rf"swp{_CONDITION}\b.*", "swap", 4),
        (rf"(ldr|str){_CONDITION}t?\b.*", "word", 4),
    ],
    # /proc/cpu/alignment (Linux arch/arm/mm/alignment.c).
    alignment_switch=AlignmentSwitch(kernel="linux-arm-2", policies="linux-arm-"),
)
