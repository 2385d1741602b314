"""Reads the rows of an object's symbol table: a server has ten thousand symbols.

The library reads a row at a time, and field by field, which takes a hundred times as long.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from elftools.common.exceptions import ELFError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from elftools.elf.elffile import ELFFile

FUNCTION = 2
"""STT_FUNC of <elf.h>."""


class SymbolRow(NamedTuple):
    """One symbol."""

    name: int
    """The position of the name among the names of the table."""
    kind: int
    """STT_* of <elf.h>."""
    binding: int
    """STB_* of <elf.h>."""
    section: int
    value: int
    size: int


def symbol_rows(elf: ELFFile, table: Any) -> Iterator[SymbolRow]:
    """The symbols of a table. Raises ELFError after the last complete one if the table is truncated, and if its entries
    are neither Elf32_Sym nor Elf64_Sym.
    """
    order = "<" if elf.little_endian else ">"
    layout = struct.Struct(order + ("IBBHQQ" if elf.elfclass == 64 else "IIIBBH"))
    content = table.data()
    for fields in layout.iter_unpack(content[: len(content) - len(content) % layout.size]):
        if elf.elfclass == 64:
            name, info, _, section, value, size = fields
        else:
            name, value, size, info, _, section = fields
        yield SymbolRow(name, info & 15, info >> 4, section, value, size)
    if len(content) < table["sh_size"] or table["sh_entsize"] != layout.size:
        raise ELFError(f"{table.name} ends early, or its entries have another size")
