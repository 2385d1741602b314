"""How the emulator's decoder of 68000s has its instructions, by row and by the addressing mode of their operands.

Addressing modes are those of the M68000 Family Programmer's Reference Manual, 2.1 and 2.2. Which words an instruction
has is in its chapters 4 and 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from harness.isa.encodings.encoding import RowForm

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator


class Operand(NamedTuple):
    """An addressing mode in the code of an instruction."""

    name: str
    mask: int
    """A mask for the six bits of mode and register."""
    value: int
    words: int
    extension: tuple[int, int] = (0, 0)
    """Mask and value of the first word behind the opcode's."""


def _full(register: str, mode: tuple[int, int]) -> Iterator[Operand]:
    """Modes with a word that gives the widths of the base and the outer displacement after it: none, 16 or 32 bits."""
    for base, base_words in ((1, 0), (2, 1), (3, 2)):
        for outer, outer_words in ((0, 0), (1, 0), (2, 1), (3, 2)):
            words = 1 + base_words + outer_words
            yield Operand(f"(full,{register})", *mode, words, (0x133, 0x100 | base << 4 | outer))


def _operands(immediate_words: int) -> list[Operand]:
    return [
        Operand("Dn", 0o70, 0o00, 0),
        Operand("An", 0o70, 0o10, 0),
        Operand("(An)", 0o70, 0o20, 0),
        Operand("(An)+", 0o70, 0o30, 0),
        Operand("-(An)", 0o70, 0o40, 0),
        Operand("(d16,An)", 0o70, 0o50, 1),
        Operand("(d8,An,Xn)", 0o70, 0o60, 1, (0x100, 0)),
        *_full("An", (0o70, 0o60)),
        Operand("short", 0o77, 0o70, 1),
        Operand("long", 0o77, 0o71, 2),
        Operand("relative", 0o77, 0o72, 1),
        Operand("relative indexed", 0o77, 0o73, 1, (0x100, 0)),
        *_full("PC", (0o77, 0o73)),
        Operand("immediate", 0o77, 0o74, immediate_words),
    ]


_FEATURES = "M68K|CAS|MOVEP|CHK2|LONG_MULDIV|BITFIELD|FPU|M68040|BRAL|BCCL|RTD|BKPT|TRAPCC"
_ROW = (
    r"^ *(?:BASE|INSN)\((?P<name>\w+), *(?P<value>[\da-f]{4}), *(?P<mask>[\da-f]{4})"
    rf"(?:, *(?:{_FEATURES}))?\);"
)
_OF_MEMORY = {
    **dict.fromkeys(["cmpm", "addx_mem", "subx_mem", "abcd_mem", "sbcd_mem", "unlk"], 0),
    **dict.fromkeys(["movep", "move16_reg", "link"], 1),
    **dict.fromkeys(["cas2w", "cas2l", "move16_mem", "linkl"], 2),
}
"""Rows without an operand of their own choice, and how many words follow the first."""
_ONE_WORD_MORE = {
    *("bitop_im", "chk2", "cas", "movem", "mull", "divl", "bfext_mem", "bfins_mem", "bfop_mem", "fscc"),
}
"""Rows with an operand behind a second word."""
_WITH_OPERAND = {
    *("bitop_reg", "chk", "negx", "clr", "neg", "not", "tst", "tas", "nbcd", "pea", "move_from_ccr", "move_to_ccr"),
    *("addsubq", "scc", "or", "divw", "addsub", "suba", "cmp", "cmpa", "eor", "and", "mulw", "adda", "shift_mem"),
    "rotate_mem",
}
"""Rows with an operand behind the first."""
_EXTENSIONS = {
    **dict.fromkeys(("mull", "divl"), (0x83F8, 0)),
    **dict.fromkeys(("bfext_mem", "bfins_mem"), (0x8820, 0)),
    "bfop_mem": (0xF820, 0),
    "cas": (0xFE38, 0),
    "chk2": (0x0FFF, 0x0800),
    "fscc": (0xFFC0, 0),
    "move16_reg": (0x8FFF, 0x8000),
    **dict.fromkeys(("cas2w", "cas2l"), (0x0E380E38, 0)),
}
"""Mask and value of what has to stand in the words behind the first: bits of no field, and bit fields by numbers."""
_FLOAT_FORMS = [
    *((f"load {letter}", (0xFC00, 0x4000 | number << 10)) for number, letter in enumerate("lsxpwdb")),
    *((f"store {letter}", (0xFC7F, 0x6000 | number << 10)) for number, letter in enumerate("lsxpwdb")),
    ("load control", (0xE3FF, 0x8000)),
    ("store control", (0xE3FF, 0xA000)),
    *((f"load several {way}", (0xFF00, 0xC000 | way << 11)) for way in (0, 2)),
    *((f"store several {way}", (0xFF00, 0xE000 | way << 11)) for way in (0, 2)),
    *((f"load as listed {way}", (0xFF8F, 0xC000 | way << 11)) for way in (1, 3)),
    *((f"store as listed {way}", (0xFF8F, 0xE000 | way << 11)) for way in (1, 3)),
]
"""Mask and value of the second word, by what is done with the operand (5, FMOVE and FMOVEM). A list of registers counts
down (0) or up (2), or is in a register (1, 3)."""
_SIMPLE = {"(An)", "(An)+", "-(An)", "(d16,An)"}


class _Rows:
    """How the rows of the decoder are divided into the forms of their operands, for instructions of a length."""

    def __init__(self, bits: int) -> None:
        self.bits, self.words, self.top = bits, bits // 16, bits - 16

    def fixed(self, row: re.Match[str]) -> tuple[int, int]:
        return int(row["mask"], 16) << self.top, int(row["value"], 16) << self.top

    def divided(self, name: str, mask: int, value: int) -> Iterator[tuple[str, int, int]]:
        """A row by the forms of its operands. Those of other lengths are left out."""
        if name in _OF_MEMORY:
            if 1 + _OF_MEMORY[name] == self.words:
                # All words behind the first.
                more, there = _EXTENSIONS.get(name, (0, 0))
                yield f"{name} memory", mask | more, value | there
        elif name == "move":
            yield from self._pairs(mask, value)
        elif name in {"arith_im", "fpu"} or name in _ONE_WORD_MORE:
            if self.words > 1:
                yield from self._with_words(name, mask, value)
        elif name in _WITH_OPERAND:
            yield from self._with_operand(name, mask, value, 0)
        else:
            yield name, mask, value

    def _with_words(self, name: str, mask: int, value: int) -> Iterator[tuple[str, int, int]]:
        """Rows with words between the first and those of the operand."""
        if name == "arith_im":
            for size, words in enumerate((1, 1, 2)):
                yield from self._with_operand(name, mask | 0xC0 << self.top, value | size << 6 << self.top, words)
        elif name == "fpu":
            for form, extension in _FLOAT_FORMS:
                yield from self._with_operand(f"{name} {form}", *self._extended(mask, value, *extension), 1)
        else:
            extension = _EXTENSIONS.get(name, (0, 0))
            yield from self._with_operand(name, *self._extended(mask, value, *extension), 1)

    def _extended(self, mask: int, value: int, more: int, there: int) -> tuple[int, int]:
        """The row with fixed bits of the second word."""
        return mask | more << (self.top - 16), value | there << (self.top - 16)

    def _with_operand(self, name: str, mask: int, value: int, words: int) -> Iterator[tuple[str, int, int]]:
        """`words`: between the first and those of the operand."""
        top = self.top
        for one in _operands(1):
            if (value >> top ^ one.value) & mask >> top & one.mask or 1 + words + one.words != self.words:
                continue
            more, there = (part << max(top - 16 * (1 + words), 0) for part in one.extension)
            yield f"{name} {one.name}", mask | one.mask << top | more, value | one.value << top | there

    def _pairs(self, mask: int, value: int) -> Iterator[tuple[str, int, int]]:
        """MOVE has two operands. Of those both in memory, one is of the simple ones."""
        top = self.top
        for source in _operands(2 if value >> top >> 12 == 2 else 1):
            for place in _operands(0):
                names = {source.name, place.name}
                if 1 + source.words + place.words != self.words or place.value >= 0o72:
                    continue
                if all("(" in name for name in names) and not names & _SIMPLE:
                    continue
                fixed = (source.mask | (place.mask & 7) << 9 | (place.mask & 0o70) << 3) << top
                bound = (source.value | (place.value & 7) << 9 | (place.value & 0o70) << 3) << top
                for one, before in ((source, 0), (place, source.words)):
                    if one.extension[0]:
                        fixed |= one.extension[0] << (top - 16 * (1 + before))
                        bound |= one.extension[1] << (top - 16 * (1 + before))
                yield f"move {source.name},{place.name}", mask | fixed, value | bound


def row_form(bits: int) -> RowForm:
    """How target/m68k/translate.c has its rows, for instructions of a length."""
    rows = _Rows(bits)
    # opcode_table: what is registered later replaces what was there.
    return RowForm(_ROW, rows.fixed, rows.divided, is_last_first=True)
