"""Reads the function symbols of an object, once for each file."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from harness.analysis.debug_file import debug_file
from harness.analysis.symbol_table import FUNCTION, symbol_rows

_DESCRIPTOR_WORD = 8


class FunctionSymbol(NamedTuple):
    """A name for a piece of code."""

    start: int
    """Its first address, as the object's symbols count."""
    size: int
    """In bytes; 0 if it is not recorded, as for some assembly code."""
    name: str


class FunctionSymbols(NamedTuple):
    """The functions in an object's symbol tables."""

    found: list[FunctionSymbol]
    """Those of .symtab, then those of .dynsym, then those of a file of its debug information. One function may have
    several."""
    complete: bool
    """Whether the tables were read to their ends. A file that is not an object has no symbols, and they are
    incomplete.
    """


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
                # A file of debug information also lists the sections that it omits.
                if not isinstance(table, SymbolTableSection):
                    continue
                # The lowest bit of a Thumb function's address is a flag. What precedes an error stays in the list.
                names = table.stringtable.data() + b"\0"
                found.extend(
                    FunctionSymbol(descriptors.code_of(row.value) & ~1, row.size, _text(names, row.name))
                    for row in symbol_rows(elf, table)
                    if row.kind == FUNCTION
                )
    except (OSError, ELFError):
        return FunctionSymbols(found, complete=False)
    return FunctionSymbols(found, complete=True)


def _text(names: bytes, at: int) -> str:
    return names[at : names.find(b"\0", at)].decode("utf-8", "replace")


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
