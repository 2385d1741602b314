"""Reads the machine code of an object file, function by function, as digests that can be compared.

A function's digest covers its bytes and its relocations: what it calls and refers to, by name. Tables of jumps, and
other constants without a name, count for each function of the object that may refer to them. An entry of a table that
leads into a function counts for that function alone. So does a table among the instructions, if one function alone
refers to it, and all of its jumps end there. All other data have one digest for each object, their sizes included:
where data move, an access may be misaligned that was aligned by chance. In case of doubt, code counts as different,
never as the same.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Any, Literal

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from harness.analysis.code.jump_tables import JumpTables
from harness.analysis.code.object_file import ObjectFile
from harness.core.model import Record
from harness.isa.registry import BRANCHES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from harness.analysis.code.jump_tables import JumpTable
    from harness.analysis.code.object_file import ObjectSymbol

RECIPE = "8"
"""Part of every map: raise it when digests are made in another way."""
_WRITE, _MERGED = 1, 0x10
"""SHF_WRITE, SHF_MERGE of <elf.h>."""
_CUT = 16
"""Hexadecimal digits of a digest."""


class ObjectCode(Record, frozen=True):
    """One object."""

    sha256: str
    functions: dict[str, str]
    """Name -> digest of the code. Functions of the same name, for example in several sections, share one digest."""
    data: str
    """Digest of the data that several functions may share, of their places, and of the data that other objects can
    refer to.
    """
    defines: list[str]
    """Functions that other objects can refer to."""
    needs: list[str]
    """Names that other objects or libraries define."""
    places: list[tuple[int, int, str, bool]]
    """Of each function: its section, its distance from the section's beginning, its name, and whether it is local to
    the object.
    """


def read_object(path: Path, digest: str) -> ObjectCode | None:
    """The code of an object file, whose SHA-256 is `digest`; None if it cannot be read, as with -flto."""
    try:
        with path.open("rb") as stream:
            return _Digests(ObjectFile(ELFFile(stream))).code(digest)
    except (ELFError, struct.error, UnicodeDecodeError):
        return None


class _Digests:
    """The digests of one object while they are made."""

    def __init__(self, file: ObjectFile) -> None:
        self._file = file
        self._tables = JumpTables(file)
        self._jumps_into: dict[tuple[int, int], list[str]] = {}
        """A function's place -> the entries of tables among constants that lead into it."""
        for number, found in self._tables.among_constants.items():
            for offset, jump in found.items():
                entry = f"{file.sections[number].name} {offset} {jump.distance}\n"
                self._jumps_into.setdefault((jump.section, jump.start), []).append(entry)
        self._of_section: dict[int, str] = {}

    def code(self, digest: str) -> ObjectCode:
        """Everything of the object."""
        file = self._file
        functions: dict[str, Any] = {}
        data = hashlib.sha256()
        for number in sorted(file.content):
            own = [one for one in file.symbols if one.section == number]
            if file.is_executable(number):
                self._add_code(number, own, functions, data)
            else:
                self._add_data(number, own, data)
        # The value is the alignment.
        data.update("".join(sorted(f"{one.name} {one.size} {one.value}\n" for one in file.commons())).encode())
        return ObjectCode(
            sha256=digest,
            functions={name: made.hexdigest()[:_CUT] for name, made in functions.items()},
            data=data.hexdigest()[:_CUT],
            defines=sorted({one.name for one in file.functions() if one.is_global}),
            needs=sorted(file.needed()),
            places=sorted((one.section, one.value & ~1, one.name, not one.is_global) for one in file.functions()),
        )

    def _add_code(self, number: int, own: Sequence[ObjectSymbol], functions: dict[str, Any], data: Any) -> None:
        """Add a section of code to the digests of its functions, and to the digest of the data if other objects may
        refer to it. `own`: the section's symbols.
        """
        # Tables of jumps lie between functions: any function of the section may use one without a known owner.
        shared = hashlib.sha256()
        tables = self._tables.among_instructions(number)
        has_functions = any(one.is_function for one in own)
        for start, size in self._file.unnamed_code(number) if tables is None else ():
            # Other objects know by name what assembly does not call a function. Other sections refer to what has
            # no function at all.
            visible = any(one.is_global and start <= one.value < start + size for one in own)
            (data if visible or not has_functions else shared).update(self._part(number, start, size))
        for one in sorted((one for one in own if one.is_function), key=lambda one: (one.value, one.name)):
            made = functions.setdefault(one.name, hashlib.sha256())
            of_function = (tables or {}).get((one.value, one.size), {})
            made.update(self._function(number, one, of_function))
            made.update(_in_words(of_function.values()).encode())
            made.update("".join(self._jumps_into.get((number, one.value & ~1), ())).encode())
            made.update(shared.digest())
            made.update(f"{one.binding}".encode())

    def _add_data(self, number: int, own: Sequence[ObjectSymbol], data: Any) -> None:
        """Add a section of data to a digest: how much room it takes, which may move the data of other objects, its
        named data, and all that may be written or that the linker merges. The rest counts for the functions that refer
        to it. `own`: the section's symbols.
        """
        named = sorted((one for one in own if one.is_data), key=lambda one: (one.value, one.name))
        # Assembly need not declare the type or the size of what other objects refer to by name.
        unmeasured = any(not one.size for one in own if one.is_data or (one.is_untyped and one.is_global))
        section = self._file.sections[number]
        flags, align = section["sh_flags"], section["sh_addralign"] or 1
        data.update(repr((section.name, flags, align, self._file.size(number))).encode())
        for one in named:
            data.update(f"{one.name} {one.value} {one.size}\n".encode())
            data.update(self._part(number, one.value, one.size))
        if self._file.has_strings(number):
            # The linker places each string by itself, and functions count by the strings that they refer to.
            data.update(b"\0".join(sorted(filter(None, self._file.content[number].split(b"\0")))))
        elif flags & _MERGED or (flags & _WRITE and not named) or unmeasured:
            data.update(self._part(number, 0, self._file.size(number)))

    def _function(self, section: int, one: ObjectSymbol, tables: Mapping[int, JumpTable]) -> bytes:
        """A digest's input for a function: a part of its section. Where the assembler has written the distance to
        another function of the section, the name counts in place of the distance.
        """
        file, start = self._file, one.value & ~1
        content = bytearray(file.content[section][start : start + one.size])
        find = BRANCHES.get(file.machine)
        called = []
        for branch in find(bytes(content), file.order, one.value) if find is not None else ():
            if 0 <= branch.destination < one.size:
                continue
            names, size = file.functions_at(section, start + branch.destination), len(branch.without)
            if names and not file.relocations_in(section, start + branch.start, size):
                content[branch.start : branch.start + size] = branch.without
                called.append(f"{branch.start} branch {' '.join(names)}\n".encode())
        return self._part(section, start, one.size, tables, content) + b"".join(called)

    def _part(
        self,
        section: int,
        start: int,
        size: int,
        tables: Mapping[int, JumpTable] | None = None,
        content: bytearray | None = None,
    ) -> bytes:
        """A digest's input for a part of a section: its bytes, and what its relocations refer to.

        The places of the `tables` do not count. `content`: its bytes, if some of them do not count.
        """
        if content is None:
            content = bytearray(self._file.content[section][start : start + size])
        meanings = []
        for offset, kind, symbol, addend in self._file.relocations_in(section, start, size):
            table = tables.get(offset - addend) if tables else None
            if table is not None and self._tables.finds(kind, self._file.referred(symbol)[0]):
                meaning = f"table {table.number}".encode()
            else:
                in_code = self._file.is_executable(section)
                bias = self._file.bias(section, offset, kind) if in_code else None
                meaning = self._referred(symbol, addend, None if in_code else content, offset - start, bias)
            meanings.append(f"{offset - start} {kind} ".encode() + meaning + b"\n")
        return bytes(content) + b"".join(meanings)

    def _referred(self, symbol: int, addend: int, data: bytearray | None, place: int, bias: int | None = None) -> bytes:
        """What a relocation refers to. `data`: the bytes of the data with the pointer at `place`; None for code, whose
        `bias` is as in `ObjectFile.bias`.
        """
        file = self._file
        if addend and (within := file.within_function(symbol, addend, bias)):
            return within.encode()
        text, inside = None, 0
        if not file.symbols[symbol].is_section:
            text, inside = file.string(symbol), addend
        elif data is not None:
            text = self._pointed(data, place, symbol, addend)
        elif bias is not None:
            text = file.string(symbol, addend + bias)
        if text is not None:
            return f"string+{inside} ".encode() + text
        name, unnamed = file.referred(symbol)
        return f"{name}+{addend} {self._digest(unnamed)}".encode()

    def _pointed(self, data: bytearray, place: int, symbol: int, addend: int) -> bytes | None:
        """The string to which a pointer leads, by a symbol of the section; None for another pointer.

        Erases the string's place, which `data` has if the relocation has no addend.
        """
        word = slice(place, place + self._file.pointer_bytes)
        order: Literal["little", "big"] = "little" if self._file.order == "<" else "big"
        text = self._file.string(symbol, addend + int.from_bytes(data[word], order))
        if text is not None:
            data[word] = bytes(len(data[word]))
        return text

    def _digest(self, number: int | None) -> str:
        """The digest of a section, and of all sections without names that it leads to; empty for none."""
        if number is None:
            return ""
        if number not in self._of_section:
            file = self._file
            reached, waiting = {number}, [number]
            while waiting:
                here = waiting.pop()
                led = {file.referred(symbol)[1] for _, _, symbol, _ in file.relocations_in(here, 0, file.size(here))}
                new = {each for each in led if each is not None and not file.has_strings(each)} - reached
                reached |= new
                waiting += new
            made = hashlib.sha256()
            for each in sorted(reached):
                made.update(f"{file.sections[each].name} {file.size(each)}\n".encode())
                made.update(self._unnamed(each))
            self._of_section[number] = made.hexdigest()
        return self._of_section[number]

    def _unnamed(self, number: int) -> bytes:
        """A digest's input for a section without names: its bytes, and what its relocations refer to."""
        file, jumps = self._file, self._tables.among_constants[number]
        content = bytearray(file.content[number])
        meanings = []
        for offset, kind, symbol, addend in file.relocations_in(number, 0, file.size(number)):
            name, section = file.referred(symbol)
            if offset in jumps:
                into = jumps[offset].name.encode()
            elif section is None or not file.has_strings(section):
                into = f"{name}+{addend}".encode()
            else:
                into = self._referred(symbol, addend, content, offset)
            meanings.append(f"{offset} {kind} ".encode() + into + b"\n")
        return bytes(content) + b"".join(meanings)


def _in_words(tables: Iterable[JumpTable]) -> str:
    """Tables of jumps among instructions as a digest's input, which must not change without RECIPE."""
    return f"[{', '.join(f'_Table(number={one.number}, entries={one.entries})' for one in tables)}]"
