"""How the emulator's table of instructions has those of z/Architecture: by opcode and format."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.isa.encodings.encoding import RowForm

if TYPE_CHECKING:
    from collections.abc import Callable

_ROW = r"^ *[CDEF]\(0x(?P<one>{first}\w)(?P<two>\w\w), *(?P<name>\w+, *(?P<format>\w+))"


def _fixed(bits: int) -> Callable[[re.Match[str]], tuple[int, int]]:
    """Where a format has its second byte of opcode (1 of 4 bits, 1, or the last one)."""

    def fixed(row: re.Match[str]) -> tuple[int, int]:
        one, two, form = int(row["one"], 16), int(row["two"], 16), row["format"]
        mask, value = 0xFF << (bits - 8), one << (bits - 8)
        if re.fullmatch(r"RI_\w|RIL_\w|SSF", form):
            return mask | 0xF << (bits - 16), value | two << (bits - 16)
        if re.fullmatch(r"S|RRE|RRD|RRF_\w|E|SIL|SSE", form):
            return mask | 0xFF << (bits - 16), value | two << (bits - 16)
        if re.fullmatch(r"RX_\w|RS_\w|RSI|SI|SS_\w|SMI|MII|I|RR_\w", form):
            return mask, value
        # objdump requires zeros in the fields that RXE and RXF do not use.
        unused = {"RXE": 0xFF00, "RXF": 0xF00}.get(form, 0)
        return mask | unused | 0xFF, value | two

    return fixed


def row_form(bits: int, first: str) -> RowForm:
    """How target/s390x/tcg/insn-data.h.inc has its rows, for instructions of a length. `first`: a class of characters
    that the first hexadecimal digit is one of.
    """
    return RowForm(_ROW.format(first=first), _fixed(bits))
