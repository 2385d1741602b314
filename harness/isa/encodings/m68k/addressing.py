"""Addressing modes of a 68040: 2.2 of the manual; and the registers that they use."""

from __future__ import annotations

from typing import NamedTuple

from harness.isa.encodings.encoding import AddressForm

VALUE, OTHER, INDEX, BASE, TARGET = 2, 3, 4, 8, 11
"""%d2 and %d3 are moved, %d4 is the index, %a0 the base; %a3 is what address registers are loaded by."""
INDEX_VALUE = 8


class Mode(NamedTuple):
    """An addressing mode: 2.2."""

    address: AddressForm
    words: int
    """Words behind those of the opcode."""
    is_automatic: bool = False
    """Whether it changes the base."""
    is_read_only: bool = False
    """Whether only loads have it."""


def modes(size: int, index: tuple[int, int]) -> list[Mode]:
    """Every mode, for so many bytes; `index` is the number of the index register and what it holds."""
    number, value = index
    long, word = f"%d{number}.l", f"%d{number}.w"
    short = (value & 0xFFFF ^ 0x8000) - 0x8000
    own = f"%a5,{long}"
    return [
        Mode(AddressForm("(%a0)"), 0),
        Mode(AddressForm("(%a0)+", writeback=size), 0, is_automatic=True),
        Mode(AddressForm("-(%a0)", -size, writeback=-size), 0, is_automatic=True),
        Mode(AddressForm("8(%a0)", 8), 1),
        Mode(AddressForm("0x7ff0(%a0)", 0x7FF0), 1),
        Mode(AddressForm("-0x8000(%a0)", -0x8000), 1),
        Mode(AddressForm(f"(8,%a0,{long})", 8 + value), 1),
        Mode(AddressForm(f"(-128,%a0,{word}*4)", -128 + 4 * short), 1),
        Mode(AddressForm(f"(127,%a0,{long}*8)", 127 + 8 * value), 1),
        # The base may stand in the place of the index.
        Mode(AddressForm("(0x1234,%za1,%a0.l)", 0x1234), 2),
        Mode(AddressForm(f"(0x1234,%a0,{long}*2)", 0x1234 + 2 * value), 2),
        Mode(AddressForm("(0x12345678,%a0)", 0x12345678), 3),
        Mode(AddressForm(f"(-0x12345678,%a0,{word})", -0x12345678 + short), 3),
        # The register file holds the base, so that it is where a pointer lies.
        Mode(AddressForm("([32,%a5])"), 2),
        Mode(AddressForm("([32,%a5],0x1234)", 0x1234), 3),
        Mode(AddressForm(f"([32,%a5],{long}*4,0x1234)", 0x1234 + 4 * value), 3),
        Mode(AddressForm(f"([{32 - value:#x},{own}],-8)", -8), 3),
        Mode(AddressForm(f"([{32 - 2 * value:#x},{own}*2])"), 2),
        Mode(AddressForm("(%zpc,%a0.l)"), 1, is_read_only=True),
        Mode(AddressForm("(0x1234,%zpc,%a0.l)", 0x1234), 2, is_read_only=True),
    ]


def is_control(mode: Mode) -> bool:
    """Whether it leaves the base as it is."""
    return not mode.is_automatic


def goes_up(mode: Mode) -> bool:
    """What loads several registers has it."""
    return not mode.address.text.startswith("-(")


def goes_down(mode: Mode) -> bool:
    """What stores several registers has it."""
    return not mode.address.text.endswith("+")
