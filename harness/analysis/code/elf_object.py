"""Reads the machine code of an object file, function by function, as digests that can be compared.

A function's digest covers its bytes and its relocations: what it calls and refers to, by name. Tables of jumps, and
other constants without a name, count for each function of the object that may refer to them. An entry of a table that
leads into a function counts for that function alone. So does a table among the instructions, if one function alone
refers to it, and all of its jumps end there. All other data have one digest for each object, their sizes included:
where data move, an access may be misaligned that was aligned by chance. Whatever cannot be told apart counts as
different, never as the same.
"""

from __future__ import annotations

import hashlib
import re
import struct
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from harness.analysis.symbol_table import FUNCTION, symbol_rows
from harness.core.model import Record
from harness.isa.registry import PADDING, SYMBOL_FIRST, TABLE_RELOCATIONS, UNWINDING_SECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

RECIPE = "5"
"""Part of every map: raise it when digests are made in another way."""
_WRITE, _ALLOCATED, _EXECUTABLE, _MERGED = 1, 2, 4, 0x10
"""SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_MERGE of <elf.h>."""
_UNTYPED, _OBJECT, _SECTION, _THREAD_LOCAL = 0, 1, 3, 6
"""STT_NOTYPE, STT_OBJECT, STT_SECTION, STT_TLS."""
_DATA = {_OBJECT, _THREAD_LOCAL}
_LOCAL = 0
"""STB_LOCAL."""
_UNDEFINED = 0
"""SHN_UNDEF."""
_MOST_BIAS_BYTES = 8
"""How far before the place that it means an addend can lead: the field, and what follows it in the instruction."""
_RESERVED = 0xFF00
"""SHN_LORESERVE: from here on, numbers of sections are none."""
_UNWINDING = (".eh_frame", ".gcc_except_table", *UNWINDING_SECTIONS)
"""Sections that describe code, and follow from it."""
_OFFSET_TABLE = "_GLOBAL_OFFSET_TABLE_"
_ENTRY_BYTES = 4
"""Of a table of jumps among instructions: the distance from the table's own start, signed."""
_MOST_ENTRY_BYTES = 8
"""Of any table: relocations that are further from each other belong to different ones."""
_PADDING_BYTES = 32
"""Up to this length, instructions that do nothing between functions fill the space to an alignment."""
_CUT = 16
"""Hexadecimal digits of a digest."""


class ObjectCode(Record, frozen=True):
    """One object."""

    sha256: str
    functions: dict[str, str]
    """Name -> digest of the code. Functions of one name, as of several sections, have one."""
    data: str
    """Digest of the data that several functions may share, of their places, and of what other objects know by name."""
    defines: list[str]
    """Functions that other objects know by name."""
    needs: list[str]
    """Names that other objects or libraries define."""
    places: list[tuple[int, int, str, bool]]
    """Section, distance from its beginning and name of each function; whether no other object knows it by name."""


def read_object(path: Path, digest: str) -> ObjectCode | None:
    """The code of an object file, whose SHA-256 is `digest`; None where it cannot be read, as with -flto."""
    try:
        with path.open("rb") as stream:
            return _Object(ELFFile(stream)).code(digest)
    except (ELFError, struct.error, UnicodeDecodeError):
        return None


class _Symbol(NamedTuple):
    name: str
    kind: int
    section: int
    value: int
    size: int
    binding: int

    @property
    def is_global(self) -> bool:
        """Whether other objects know it by name."""
        return self.binding != _LOCAL


class _Table(NamedTuple):
    """A table of jumps among instructions."""

    number: int
    """Of those of its function."""
    entries: tuple[int, ...]
    """The places in its function where jumps end."""


class _Jump(NamedTuple):
    """An entry of a table of jumps among constants."""

    section: int
    start: int
    """The place in `section` of the function that it leads into."""
    name: str
    """The function's."""
    distance: int
    """From the function's beginning to the place that the entry tells: where the jump ends, or further by as much as
    the entry is from its table's beginning.
    """


class _Object:
    """One object while it is read. Symbols and relocations are many, and read without the library."""

    def __init__(self, elf: ELFFile) -> None:
        if elf["e_type"] != "ET_REL":
            raise ELFError("no object")
        self._order = "<" if elf.little_endian else ">"
        self._wide = elf.elfclass == 64
        self._symbol_first = self._wide and elf.little_endian and elf["e_machine"] in SYMBOL_FIRST
        sections: list[Any] = list(elf.iter_sections())
        if any(section.name.startswith(".gnu.lto_") for section in sections):
            raise ELFError("code that is generated when it is linked")
        self._sections = sections
        self._content = {
            number: section.data() if section["sh_type"] != "SHT_NOBITS" else b""
            for number, section in enumerate(sections)
            if section["sh_flags"] & _ALLOCATED and not section.name.startswith(_UNWINDING)
        }
        self._symbols = self._read_symbols(elf)
        self._relocations: dict[int, list[tuple[int, int, int, int]]] = {}
        self._by_address: dict[int, list[tuple[int, str, int]]] = {}
        for section in sections:
            if section["sh_type"] in {"SHT_REL", "SHT_RELA"} and section["sh_info"] in self._content:
                self._relocations.setdefault(section["sh_info"], []).extend(self._read_relocations(section))
        for found in self._relocations.values():
            found.sort()
        self._of_section: dict[int, str] = {}
        self._jumps = {
            number: self._jumps_in(number) for number in self._content if not sections[number]["sh_flags"] & _EXECUTABLE
        }
        self._table_types = TABLE_RELOCATIONS.get(elf["e_machine"], ())
        self._padding = PADDING.get(elf["e_machine"], b"")

    def code(self, digest: str) -> ObjectCode:
        """Everything of the object."""
        functions: dict[str, Any] = {}
        data = hashlib.sha256()
        jumps: dict[tuple[int, int], list[str]] = {}
        """A function's place -> the entries of tables among constants that lead into it."""
        for number, found in self._jumps.items():
            for offset, jump in found.items():
                entry = f"{self._sections[number].name} {offset} {jump.distance}\n"
                jumps.setdefault((jump.section, jump.start), []).append(entry)
        for number in sorted(self._content):
            flags = self._sections[number]["sh_flags"]
            own = [one for one in self._symbols if one.section == number]
            if not flags & _EXECUTABLE:
                self._add_data(number, own, data)
                continue
            # Tables of jumps lie between functions: any function of the section may use them, if nothing tells which.
            shared = hashlib.sha256()
            tables = self._tables(number)
            has_functions = any(one.kind == FUNCTION for one in own)
            for start, size in self._unnamed_code(number) if tables is None else ():
                # Other objects know by name what assembly does not call a function. Other sections refer to what has
                # no function at all.
                visible = any(one.is_global and start <= one.value < start + size for one in own)
                (data if visible or not has_functions else shared).update(self._part(number, start, size))
            for one in sorted((one for one in own if one.kind == FUNCTION), key=lambda one: (one.value, one.name)):
                made = functions.setdefault(one.name, hashlib.sha256())
                of_function = (tables or {}).get((one.value, one.size), {})
                made.update(self._part(number, one.value & ~1, one.size, of_function))
                made.update(repr(list(of_function.values())).encode())
                made.update("".join(jumps.get((number, one.value & ~1), ())).encode())
                made.update(shared.digest())
                made.update(f"{one.binding}".encode())
        # The value is the alignment.
        commons = (one for one in self._symbols if one.section >= _RESERVED and one.kind == _OBJECT)
        data.update("".join(sorted(f"{one.name} {one.size} {one.value}\n" for one in commons)).encode())
        return ObjectCode(
            sha256=digest,
            functions={name: made.hexdigest()[:_CUT] for name, made in functions.items()},
            data=data.hexdigest()[:_CUT],
            defines=sorted({one.name for one in self._functions() if one.is_global}),
            needs=sorted({one.name for one in self._symbols if one.section == _UNDEFINED and one.name}),
            places=sorted((one.section, one.value & ~1, one.name, not one.is_global) for one in self._functions()),
        )

    def _functions(self) -> Iterator[_Symbol]:
        """All functions of the object."""
        return (one for one in self._symbols if one.kind == FUNCTION and one.section in self._content)

    def _add_data(self, number: int, own: Sequence[_Symbol], data: Any) -> None:
        """Add a section of data to a digest: how much room it takes, which may move the data of other objects, its
        named data, and all that may be written or that the linker merges. The rest counts for the functions that refer
        to it. `own`: the section's symbols.
        """
        named = sorted((one for one in own if one.kind in _DATA), key=lambda one: (one.value, one.name))
        # Assembly need not say what it is that other objects know by name, or how long.
        unmeasured = any(not one.size for one in own if one.kind in _DATA or (one.kind == _UNTYPED and one.is_global))
        section = self._sections[number]
        flags, align = section["sh_flags"], section["sh_addralign"] or 1
        data.update(repr((section.name, flags, align, self._size(number))).encode())
        for one in named:
            data.update(f"{one.name} {one.value} {one.size}\n".encode())
            data.update(self._part(number, one.value, one.size))
        if flags & _MERGED or (flags & _WRITE and not named) or unmeasured:
            data.update(self._part(number, 0, self._size(number)))

    def _size(self, number: int) -> int:
        return int(self._sections[number]["sh_size"])

    def _part(self, section: int, start: int, size: int, tables: Mapping[int, _Table] | None = None) -> bytes:
        """A digest's input for a part of a section: its bytes, and what its relocations refer to.

        The places of the `tables` do not count.
        """
        parts = [bytes(self._content[section][start : start + size])]
        for offset, kind, symbol, addend in self._relocations_in(section, start, size):
            name, unnamed = self._referred(symbol)
            if addend and (within := self._within_function(symbol, addend)):
                parts.append(f"{offset - start} {kind} {within}\n".encode())
                continue
            if tables and self._finds_table(kind, name) and (table := tables.get(offset - addend)):
                parts.append(f"{offset - start} {kind} table {table.number}\n".encode())
                continue
            parts.append(f"{offset - start} {kind} {name}+{addend} {self._digest(unnamed)}\n".encode())
        return b"".join(parts)

    def _relocations_in(self, section: int, start: int, size: int) -> list[tuple[int, int, int, int]]:
        found = self._relocations.get(section, [])
        return found[bisect_left(found, (start,)) : bisect_left(found, (start + size,))]

    def _referred(self, index: int) -> tuple[str, int | None]:
        """What a relocation refers to: a symbol's name, or a place in a section whose data have no name."""
        symbol = self._symbols[index]
        if symbol.section not in self._content:
            return symbol.name, None
        section = self._sections[symbol.section]
        executable = section["sh_flags"] & _EXECUTABLE
        if symbol.kind in ({FUNCTION} if executable else _DATA):
            return symbol.name, None
        return f"{section.name}+{symbol.value}", None if executable else symbol.section

    def _within_function(self, index: int, addend: int) -> str:
        """The function and the distance that a relocation against a section of code leads to; empty for none.

        So other functions of the section may change their lengths. An addend is relative to the relocation's place or
        to an instruction's end: a function counts only if it has all bytes that can be meant.
        """
        found = self._code_at(index, addend)
        if found is None:
            return ""
        (start, name, size), first = found
        return f"{name}+{first - start}" if first + _MOST_BIAS_BYTES < start + size else ""

    def _code_at(self, index: int, addend: int) -> tuple[tuple[int, str, int], int] | None:
        """What a relocation against a section of code leads to: the last function that begins there or before, as
        `_functions_of` has it, and the place in the section. None for another symbol, and in front of all functions.
        """
        symbol = self._symbols[index]
        if symbol.kind != _SECTION or symbol.section not in self._content:
            return None
        if not self._sections[symbol.section]["sh_flags"] & _EXECUTABLE:
            return None
        place = symbol.value + addend
        functions = self._functions_of(symbol.section)
        at = bisect_right(functions, (place, "\x7f" * 8, 0)) - 1
        return (functions[at], place) if at >= 0 else None

    def _jumps_in(self, number: int) -> dict[int, _Jump]:
        """The relocations of a section of data that lead into functions, behind their beginnings: offset -> jump.

        No other function uses such an entry. It may be relative to its table's beginning, which is one of the
        relocations in front of it that follow each other: the jump counts if it is in the function for each of them.
        """
        found: dict[int, _Jump] = {}
        begin = last = -_MOST_ENTRY_BYTES - 1
        for offset, _, index, addend in self._relocations.get(number, ()):
            begin = begin if offset - last <= _MOST_ENTRY_BYTES else offset
            last = offset
            led = self._code_at(index, addend) if addend else None
            if led is not None:
                (start, name, size), place = led
                if start < place - (offset - begin) and place < start + size:
                    found[offset] = _Jump(self._symbols[index].section, start, name, place - start)
        return found

    def _functions_of(self, number: int) -> list[tuple[int, str, int]]:
        """Address, name and size of the functions of a section, in order."""
        if number not in self._by_address:
            self._by_address[number] = sorted(
                (one.value & ~1, one.name, one.size)
                for one in self._symbols
                if one.section == number and one.kind == FUNCTION
            )
        return self._by_address[number]

    def _unnamed_code(self, number: int) -> list[tuple[int, int]]:
        """The parts of a section of code that are no function, such as tables of jumps: start and size."""
        functions = sorted((start, size) for start, _, size in self._functions_of(number))
        content = self._content[number]
        return [
            (start, size)
            for start, size in _gaps(functions, len(content))
            if not self._is_padding(content[start : start + size]) or self._are_addresses(number, start, size)
        ]

    def _are_addresses(self, number: int, start: int, size: int) -> bool:
        """Whether zeros stand for what relocations put there."""
        return not any(self._content[number][start : start + size]) and bool(self._relocations_in(number, start, size))

    def _is_padding(self, code: bytes) -> bool:
        if len(code) > _PADDING_BYTES:
            return False
        alike = any(code == (code[:unit] * len(code))[: len(code)] for unit in (1, 2, 4))
        return alike or bool(self._padding and re.fullmatch(self._padding, code))

    def _finds_table(self, kind: int, name: str) -> bool:
        return kind in self._table_types and name == _OFFSET_TABLE

    def _tables(self, number: int) -> dict[tuple[int, int], dict[int, _Table]] | None:
        """Function, as its place and size, -> its tables of jumps in a section of code, by their places.

        None where some of the section's unnamed code is no table, or is not one function's alone.
        """
        unnamed = self._unnamed_code(number) if self._table_types else []
        owners = self._owners(number, unnamed)
        if not unnamed or owners is None:
            return None
        tables: dict[tuple[int, int], dict[int, _Table]] = {}
        for start, size in unnamed:
            places = sorted(place for place in owners if start <= place < start + size)
            if places[:1] != [start]:
                return None
            for place, end in zip(places, [*places[1:], start + size], strict=True):
                entries = self._entries(number, place, end, owners[place])
                if entries is None:
                    return None
                own = tables.setdefault(owners[place], {})
                own[place] = _Table(len(own), entries)
        return tables

    def _owners(self, number: int, unnamed: list[tuple[int, int]]) -> dict[int, tuple[int, int]] | None:
        """Places in the unnamed code of a section -> the function that finds a table there; None where one is not
        alone, or something else refers to that code.
        """

        def is_unnamed(place: int) -> bool:
            return any(start <= place < start + size for start, size in unnamed)

        own = [one for one in self._symbols if one.section == number and one.kind != _SECTION]
        referred = (
            self._symbols[symbol].value + addend
            for found in self._relocations.values()
            for _, _, symbol, addend in found
            if self._symbols[symbol].section == number
        )
        if any(is_unnamed(one.value) for one in own) or any(map(is_unnamed, referred)):
            return None
        owners: dict[int, set[tuple[int, int]]] = {}
        for place, kind, symbol, addend in self._relocations.get(number, ()):
            if is_unnamed(place):
                return None
            if self._finds_table(kind, self._referred(symbol)[0]) and is_unnamed(place - addend):
                around = {(one.value, one.size) for one in own if one.value <= place < one.value + one.size}
                owners.setdefault(place - addend, set()).update(around)
        alone = {place: next(iter(found)) for place, found in owners.items() if len(found) == 1}
        return alone if len(alone) == len(owners) else None

    def _entries(self, number: int, place: int, end: int, owner: tuple[int, int]) -> tuple[int, ...] | None:
        """Where the jumps of a table end in its function; None if one ends elsewhere."""
        content = self._content[number]
        if (end - place) % _ENTRY_BYTES:
            return None
        distances = [one for (one,) in struct.iter_unpack(f"{self._order}i", content[place:end])]
        # The space up to an alignment is filled with an instruction, which leads out of the section.
        while distances and abs(distances[-1]) > len(content):
            distances.pop()
        filled = content[place + _ENTRY_BYTES * len(distances) : end]
        if filled and not self._is_padding(filled):
            return None
        ends = tuple(place + one - owner[0] for one in distances)
        return ends if ends and all(0 <= one < owner[1] for one in ends) else None

    def _digest(self, number: int | None) -> str:
        """The digest of a section, and of all sections without names that it leads to; empty for none."""
        if number is None:
            return ""
        if number not in self._of_section:
            reached, waiting = {number}, [number]
            while waiting:
                here = waiting.pop()
                led = {self._referred(symbol)[1] for _, _, symbol, _ in self._relocations_in(here, 0, self._size(here))}
                new = {each for each in led if each is not None} - reached
                reached |= new
                waiting += new
            made = hashlib.sha256()
            for each in sorted(reached):
                made.update(f"{self._sections[each].name} {self._size(each)}\n".encode())
                made.update(self._content[each])
                jumps = self._jumps[each]
                for offset, kind, symbol, addend in self._relocations_in(each, 0, self._size(each)):
                    into = f"{self._referred(symbol)[0]}+{addend}" if offset not in jumps else jumps[offset].name
                    made.update(f"{offset} {kind} {into}\n".encode())
            self._of_section[number] = made.hexdigest()
        return self._of_section[number]

    def _read_symbols(self, elf: ELFFile) -> list[_Symbol]:
        table: Any = next((each for each in self._sections if each["sh_type"] == "SHT_SYMTAB"), None)
        if table is None:
            return []
        if any(each["sh_type"] == "SHT_SYMTAB_SHNDX" for each in self._sections):
            raise ELFError("more sections than a symbol can name")
        names: bytes = self._sections[table["sh_link"]].data()

        def name(at: int) -> str:
            return names[at : names.index(b"\0", at)].decode()

        return [
            _Symbol(name(row.name), row.kind, row.section, row.value, row.size, row.binding)
            for row in symbol_rows(elf, table)
        ]

    def _read_relocations(self, section: Any) -> Iterator[tuple[int, int, int, int]]:
        """Offset, type, index of the symbol, addend. Without an addend of its own, the bytes have it."""
        has_addend = section["sh_type"] == "SHT_RELA"
        word = "Q" if self._wide else "I"
        layout = f"{self._order}2{word}{word.lower() if has_addend else ''}"
        for offset, info, *addend in struct.iter_unpack(layout, section.data()):
            kind, symbol = (info & 0xFFFFFFFF, info >> 32) if self._wide else (info & 0xFF, info >> 8)
            if self._symbol_first:
                kind, symbol = info >> 32, info & 0xFFFFFFFF
            yield offset, kind, symbol, addend[0] if addend else 0


def _gaps(taken: list[tuple[int, int]], length: int) -> Iterator[tuple[int, int]]:
    """The parts of a length that are not taken. All are start and size."""
    end = 0
    for start, size in taken:
        if start > end:
            yield end, start - end
        end = max(end, start + size)
    if length > end:
        yield end, length - end
