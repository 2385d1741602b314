"""Registers and addressing modes of the loads and stores of 32-bit ARM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.isa.encodings.encoding import AddressForm

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.isa.encodings.encoding import Encoding, Opcode

VALUE, SECOND, BASE, INDEX, STATUS = 2, 3, 4, 5, 6
"""The registers of every instruction: r2 and r3 are moved, r4 and r5 are the address, r6 says whether STREX stored."""
IMMEDIATE, INDEX_VALUE = 8, 12
ALL_TARGETS, V6, V7 = ("*",), ("armv6", "armv7"), ("armv7",)
BEFORE_V7 = ("armv5", "armv6")


def word(register: int) -> int:
    """Where a core register is in the register file."""
    return 4 * register


def double(register: int) -> int:
    """The position of a register of 64 bits of VFP and NEON."""
    return 64 + 8 * register


PLAIN = AddressForm("[r4]")


def offset(sign: int) -> AddressForm:
    """An immediate offset, above the base or below it."""
    return AddressForm(f"[r4, #{sign * IMMEDIATE}]", sign * IMMEDIATE)


def _pre_indexed(sign: int) -> AddressForm:
    return AddressForm(f"[r4, #{sign * IMMEDIATE}]!", sign * IMMEDIATE, sign * IMMEDIATE)


def _post_indexed(sign: int) -> AddressForm:
    return AddressForm(f"[r4], #{sign * IMMEDIATE}", 0, sign * IMMEDIATE)


BY_IMMEDIATE = [PLAIN, *(mode(sign) for mode in (offset, _pre_indexed, _post_indexed) for sign in (1, -1))]
# Kind of shift -> what r5 holds, and what is left of it (A8.4.3). The carry is clear.
SHIFTS = {
    "": (INDEX_VALUE, INDEX_VALUE),
    ", lsl #2": (INDEX_VALUE, INDEX_VALUE * 4),
    ", lsr #1": (INDEX_VALUE, INDEX_VALUE // 2),
    ", asr #1": (-INDEX_VALUE, -INDEX_VALUE // 2),
    ", ror #30": (0xC0000000, 3),
    ", rrx": (INDEX_VALUE, INDEX_VALUE // 2),
}


def by_register(shifts: Sequence[str], *, post_indexed_alone: bool = False) -> Iterator[AddressForm]:
    """An offset in a register that is shifted in each of these ways, above the base and below it."""
    for shift in shifts:
        held, effect = SHIFTS[shift]
        for sign, mark in ((1, ""), (-1, "-")):
            index = (INDEX, held)
            if not post_indexed_alone:
                yield AddressForm(f"[r4, {mark}r5{shift}]", sign * effect, 0, index)
                yield AddressForm(f"[r4, {mark}r5{shift}]!", sign * effect, sign * effect, index)
            yield AddressForm(f"[r4], {mark}r5{shift}", 0, sign * effect, index)


def in_each_mode(
    state: str,
    one: Opcode,
    modes: Sequence[AddressForm],
    suffix: str = "",
    targets: tuple[str, ...] = ALL_TARGETS,
) -> Iterator[Encoding]:
    """An instruction in each of these modes. `suffix`: `.w` or `.n`, for a width that the assembler has to choose."""
    for mode in modes:
        text = f"{one.name}{suffix} {one.operand}, {mode.text}"
        yield one.at(mode, text, base=BASE, state=state, targets=targets)
