"""Reads the function symbols of an object, once for each file."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from harness.analysis.debug_file import debug_file

if TYPE_CHECKING:
    from collections.abc import Iterator

_DESCRIPTOR_WORD = 8
_FUNCTION = 2
"""STT_FUNC of <elf.h>."""
_LAYOUTS = {32: "IIIB3x", 64: "IB3xQQ"}
"""Bits of an object -> what counts of a symbol: name, value, size and info, or name, info, value and size."""


class FunctionSymbol(NamedTuple):
    """A name for a piece of code."""

    start: int
    """Its first address, as the object's symbols count."""
    size: int
    """In bytes; 0 where nobody wrote it, as in some assembly."""
    name: str


class FunctionSymbols(NamedTuple):
    """What the symbol tables of an object say of functions."""

    found: list[FunctionSymbol]
    """Those of .symtab, then those of .dynsym, then those of a file of its debug information. One function may have
    several."""
    complete: bool
    """Whether the tables were read to their ends. A file that is no object has no symbols, and they are incomplete."""


@cache
def function_symbols(path: str) -> FunctionSymbols:
    """The function symbols of an object."""
    own = _symbols_in(path)
    apart = debug_file(path)
    return FunctionSymbols([*own.found, *_symbols_in(apart).found], own.complete) if apart else own


def _symbols_in(path: str) -> FunctionSymbols:
    found: list[FunctionSymbol] = []
    try:
        with Path(path).open("rb") as stream:
            elf = ELFFile(stream)
            descriptors = _Descriptors(elf)
            for section in (".symtab", ".dynsym"):
                table: Any = elf.get_section_by_name(section)
                # A file of debug information names the sections that it leaves out.
                if not isinstance(table, SymbolTableSection):
                    continue
                # The lowest bit of a Thumb function's address is a flag. What precedes an error stays in the list.
                found.extend(
                    FunctionSymbol(descriptors.code_of(start) & ~1, size, name)
                    for start, size, name in _functions_of(elf, table)
                )
    except (OSError, ELFError):
        return FunctionSymbols(found, complete=False)
    return FunctionSymbols(found, complete=True)


def _functions_of(elf: ELFFile, table: SymbolTableSection) -> Iterator[tuple[int, int, str]]:
    """The value, size and name of a table's functions. Raises ELFError where the table ends early.

    The library reads an entry at a time, and field by field: for a server that takes a hundred times as long.
    """
    layout = struct.Struct(("<" if elf.little_endian else ">") + _LAYOUTS[elf.elfclass])
    names, content = table.stringtable.data() + b"\0", table.data()
    whole = len(content) - len(content) % layout.size
    for fields in layout.iter_unpack(content[:whole]):
        name, start, size, info = fields if elf.elfclass == 32 else (fields[0], fields[2], fields[3], fields[1])
        if info & 0xF == _FUNCTION:
            yield start, size, names[name : names.find(b"\0", name)].decode("utf-8", "replace")
    if len(content) < table["sh_size"] or table["sh_entsize"] != layout.size:
        raise ELFError(f"{table.name} ends early, or its entries have another size")


class _Descriptors:
    """The function descriptors of 64-bit PowerPC's first ABI (ELFv1): a function's symbol names one, and the
    descriptor's first word is the address of its code. The linker writes it there even where it is relocated.
    """

    def __init__(self, elf: ELFFile) -> None:
        section: Any = elf.get_section_by_name(".opd")
        self._start = int(section["sh_addr"]) if section is not None else 0
        self._content = bytes(section.data()) if section is not None else b""
        self._order: Literal["little", "big"] = "little" if elf.little_endian else "big"

    def code_of(self, address: int) -> int:
        at = address - self._start
        if 0 <= at <= len(self._content) - _DESCRIPTOR_WORD:
            return int.from_bytes(self._content[at : at + _DESCRIPTOR_WORD], self._order)
        return address
