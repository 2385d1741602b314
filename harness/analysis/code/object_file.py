"""An object file whose code is being read: its sections, symbols and relocations, and what these refer to.

There are many symbols and relocations, so they are read without the library, which is slow.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left, bisect_right
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from elftools.common.exceptions import ELFError

from harness.analysis.symbol_table import FUNCTION, symbol_rows
from harness.isa.registry import AT_ANY_ADDRESS, EXACT_RELOCATIONS, PADDING, SYMBOL_FIRST, UNWINDING_SECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from elftools.elf.elffile import ELFFile

_ALLOCATED, _EXECUTABLE = 2, 4
"""SHF_ALLOC, SHF_EXECINSTR of <elf.h>."""
_UNTYPED, _OBJECT, _SECTION, _THREAD_LOCAL = 0, 1, 3, 6
"""STT_NOTYPE, STT_OBJECT, STT_SECTION, STT_TLS."""
_DATA = {_OBJECT, _THREAD_LOCAL}
_LOCAL = 0
"""STB_LOCAL."""
_UNDEFINED = 0
"""SHN_UNDEF."""
_MOST_BIAS_BYTES = 8
"""How far an addend may be below its destination: by the length of the field and of the rest of the instruction."""
_BEHIND_BYTES = 4
"""So many bytes of an instruction are in front of a relocation at most."""
_STRINGS = 0x10 | 0x20
"""SHF_MERGE, SHF_STRINGS."""
_WORD_BYTES = 4
_RESERVED = 0xFF00
"""SHN_LORESERVE: from here on, section numbers have special meanings."""
_UNWINDING = (".eh_frame", ".gcc_except_table", *UNWINDING_SECTIONS)
"""Sections that describe code, and are derived from it."""
_PADDING_BYTES = 32
"""Padding between functions, which consists of instructions without effect, is not longer than this."""


class ObjectSymbol(NamedTuple):
    """A symbol, as in the symbol table."""

    name: str
    kind: int
    section: int
    value: int
    size: int
    binding: int

    @property
    def is_global(self) -> bool:
        """Whether other objects can refer to it."""
        return self.binding != _LOCAL

    @property
    def is_function(self) -> bool:
        """Whether the compiler or the assembly source declares it as a function."""
        return self.kind == FUNCTION

    @property
    def is_data(self) -> bool:
        """Whether it is a data object of the source."""
        return self.kind in _DATA

    @property
    def is_section(self) -> bool:
        """Whether it stands for a section as a whole."""
        return self.kind == _SECTION

    @property
    def is_untyped(self) -> bool:
        """Whether it has no type, as in assembly."""
        return self.kind == _UNTYPED


class ObjectFile:
    """One object. Only sections that are loaded into memory have content here, except those for unwinding."""

    def __init__(self, elf: ELFFile) -> None:
        """Raises ELFError for a file that is not an object, or that contains no machine code (-flto)."""
        if elf["e_type"] != "ET_REL":
            raise ELFError("no object")
        self.order: str = "<" if elf.little_endian else ">"
        self._wide = elf.elfclass == 64
        self._symbol_first = self._wide and elf.little_endian and elf["e_machine"] in SYMBOL_FIRST
        self.machine: str = elf["e_machine"]
        self.sections: list[Any] = list(elf.iter_sections())
        if any(section.name.startswith(".gnu.lto_") for section in self.sections):
            raise ELFError("code that is generated when it is linked")
        self.content = {
            number: section.data() if section["sh_type"] != "SHT_NOBITS" else b""
            for number, section in enumerate(self.sections)
            if section["sh_flags"] & _ALLOCATED and not section.name.startswith(_UNWINDING)
        }
        """Number of a section -> its bytes."""
        self.symbols = self._read_symbols(elf)
        self.relocations: dict[int, list[tuple[int, int, int, int]]] = {}
        """Number of a section -> offset, type, index of the symbol and addend of each, in order."""
        for section in self.sections:
            if section["sh_type"] in {"SHT_REL", "SHT_RELA"} and section["sh_info"] in self.content:
                self.relocations.setdefault(section["sh_info"], []).extend(self._read_relocations(section))
        for found in self.relocations.values():
            found.sort()
        self._by_address: dict[int, list[tuple[int, str, int]]] = {}
        self._padding = PADDING.get(self.machine, b"")

    def is_executable(self, number: int) -> bool:
        """Whether a section is code."""
        return bool(self.sections[number]["sh_flags"] & _EXECUTABLE)

    def functions(self) -> Iterator[ObjectSymbol]:
        """All functions of the object."""
        return (one for one in self.symbols if one.is_function and one.section in self.content)

    def commons(self) -> Iterator[ObjectSymbol]:
        """Data whose place the linker chooses (SHN_COMMON). The value of such a symbol is its alignment."""
        return (one for one in self.symbols if one.section >= _RESERVED and one.kind == _OBJECT)

    def needed(self) -> set[str]:
        """Names that other objects or libraries define."""
        return {one.name for one in self.symbols if one.section == _UNDEFINED and one.name}

    def size(self, number: int) -> int:
        """A section's length in bytes."""
        return int(self.sections[number]["sh_size"])

    def relocations_in(self, section: int, start: int, size: int) -> list[tuple[int, int, int, int]]:
        """The relocations in a part of a section, in the form of `relocations`."""
        found = self.relocations.get(section, [])
        return found[bisect_left(found, (start,)) : bisect_left(found, (start + size,))]

    def referred(self, index: int) -> tuple[str, int | None]:
        """What a relocation refers to: a symbol's name, or a place in a section whose data have no name."""
        symbol = self.symbols[index]
        if symbol.section not in self.content:
            return symbol.name, None
        section = self.sections[symbol.section]
        executable = self.is_executable(symbol.section)
        if symbol.is_function if executable else symbol.is_data:
            return symbol.name, None
        return f"{section.name}+{symbol.value}", None if executable else symbol.section

    def bias(self, section: int, offset: int, kind: int) -> int | None:
        """What to add to the addend of a relocation of an instruction for the distance from the symbol to what the
        instruction refers to; None if that is unknown.
        """
        for one in EXACT_RELOCATIONS.get(self.machine, ()):
            if one.kind == kind and one.behind.search(self.content[section], max(offset - _BEHIND_BYTES, 0), offset):
                return one.bias
        return None

    def has_strings(self, number: int) -> bool:
        """Whether a section consists of strings that the linker merges, and whose places do not matter: each of them is
        aligned as words are, or the machine does not ask for it.
        """
        section = self.sections[number]
        is_strings = section["sh_flags"] & _STRINGS == _STRINGS and section["sh_entsize"] == 1
        return bool(is_strings) and (section["sh_addralign"] >= _WORD_BYTES or self.machine in AT_ANY_ADDRESS)

    def string(self, index: int, offset: int = 0) -> bytes | None:
        """The string of a section of `has_strings` to which a symbol leads; None for any other symbol.

        `offset`: what is added to a symbol that stands for the section.
        """
        symbol = self.symbols[index]
        if symbol.section not in self.content or not self.has_strings(symbol.section):
            return None
        content, start = self.content[symbol.section], symbol.value + offset
        end = content.find(b"\0", start)
        return content[start:end] if 0 <= start <= end else None

    @property
    def pointer_bytes(self) -> int:
        """The size of an address."""
        return 8 if self._wide else 4

    def within_function(self, index: int, addend: int, bias: int | None = None) -> str:
        """The function and the offset in it to which a relocation against a section of code refers; empty for none.

        The result does not change when other functions of the section change their lengths. An addend is relative to
        the relocation's place or to an instruction's end: unless the `bias` tells what is meant, a function counts only
        if it contains all bytes that can be.
        """
        found = self.code_at(index, addend + (bias or 0))
        if found is None:
            return ""
        (start, name, size), first = found
        further = _MOST_BIAS_BYTES if bias is None else 0
        return f"{name}+{first - start}" if first + further < start + size else ""

    def code_at(self, index: int, addend: int) -> tuple[tuple[int, str, int], int] | None:
        """The destination of a relocation against a section of code: the last function that begins there or earlier,
        and the offset in the section. None for another symbol, and before all functions.
        """
        symbol = self.symbols[index]
        if not symbol.is_section or symbol.section not in self.content:
            return None
        if not self.is_executable(symbol.section):
            return None
        place = symbol.value + addend
        function = self.last_function(symbol.section, place)
        return (function, place) if function is not None else None

    def last_function(self, number: int, place: int) -> tuple[int, str, int] | None:
        """The last function that begins at a place of a section or earlier; None before all functions."""
        functions = self.functions_of(number)
        at = bisect_right(functions, (place, "\x7f" * 8, 0)) - 1
        return functions[at] if at >= 0 else None

    def functions_of(self, number: int) -> list[tuple[int, str, int]]:
        """Address, name and size of the functions of a section, in order."""
        if number not in self._by_address:
            self._by_address[number] = sorted(
                (one.value & ~1, one.name, one.size)
                for one in self.symbols
                if one.section == number and one.is_function
            )
        return self._by_address[number]

    def functions_at(self, number: int, place: int) -> list[str]:
        """The names of the functions that begin at a place of a section, in order."""
        functions = self.functions_of(number)
        first = bisect_left(functions, (place, "", 0))
        return [name for start, name, _ in takewhile(lambda one: one[0] == place, islice(functions, first, None))]

    def unnamed_code(self, number: int) -> list[tuple[int, int]]:
        """The parts of a section of code that belong to no function, such as tables of jumps: start and size."""
        functions = sorted((start, size) for start, _, size in self.functions_of(number))
        content = self.content[number]
        return [
            (start, size)
            for start, size in _gaps(functions, len(content))
            if not self.is_padding(content[start : start + size]) or self._are_addresses(number, start, size)
        ]

    def _are_addresses(self, number: int, start: int, size: int) -> bool:
        """Whether the content is zeros that relocations replace by addresses."""
        return not any(self.content[number][start : start + size]) and bool(self.relocations_in(number, start, size))

    def is_padding(self, code: bytes) -> bool:
        """Whether these bytes between functions are padding."""
        if len(code) > _PADDING_BYTES:
            return False
        alike = any(code == (code[:unit] * len(code))[: len(code)] for unit in (1, 2, 4))
        return alike or bool(self._padding and re.fullmatch(self._padding, code))

    def _read_symbols(self, elf: ELFFile) -> list[ObjectSymbol]:
        table: Any = next((each for each in self.sections if each["sh_type"] == "SHT_SYMTAB"), None)
        if table is None:
            return []
        if any(each["sh_type"] == "SHT_SYMTAB_SHNDX" for each in self.sections):
            raise ELFError("more sections than a symbol can name")
        names: bytes = self.sections[table["sh_link"]].data()

        def name(at: int) -> str:
            return names[at : names.index(b"\0", at)].decode()

        return [
            ObjectSymbol(name(row.name), row.kind, row.section, row.value, row.size, row.binding)
            for row in symbol_rows(elf, table)
        ]

    def _read_relocations(self, section: Any) -> Iterator[tuple[int, int, int, int]]:
        """Offset, type, symbol index and addend of each relocation. If a relocation has no addend field, the section's
        bytes contain the addend.
        """
        has_addend = section["sh_type"] == "SHT_RELA"
        word = "Q" if self._wide else "I"
        layout = f"{self.order}2{word}{word.lower() if has_addend else ''}"
        for offset, info, *addend in struct.iter_unpack(layout, section.data()):
            kind, symbol = (info & 0xFFFFFFFF, info >> 32) if self._wide else (info & 0xFF, info >> 8)
            if self._symbol_first:
                kind, symbol = info >> 32, info & 0xFFFFFFFF
            yield offset, kind, symbol, addend[0] if addend else 0


def _gaps(taken: list[tuple[int, int]], length: int) -> Iterator[tuple[int, int]]:
    """The parts of a length that are not occupied, each as start and size, like the occupied parts."""
    end = 0
    for start, size in taken:
        if start > end:
            yield end, start - end
        end = max(end, start + size)
    if length > end:
        yield end, length - end
