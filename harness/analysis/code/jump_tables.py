"""The tables of jumps of an object file: those among constants, and those among instructions."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from harness.isa.registry import RELATIVE_ENTRIES, TABLE_RELOCATIONS

if TYPE_CHECKING:
    from harness.analysis.code.object_file import ObjectFile

_COLD = ".cold"
"""What GCC appends to the name of a function's part that is seldom executed."""
_OFFSET_TABLE = "_GLOBAL_OFFSET_TABLE_"
_ENTRY_BYTES = 4
"""Size of an entry of a table of jumps among instructions: a signed distance from the table's own start."""
_MOST_ENTRY_BYTES = 8
"""The largest size of any table's entry: relocations that are further apart belong to different tables."""


class JumpTable(NamedTuple):
    """A table of jumps among instructions."""

    number: int
    """The table's number among those of its function."""
    entries: tuple[int, ...]
    """The destinations of its jumps: offsets in its function."""


class JumpEntry(NamedTuple):
    """An entry of a table of jumps among constants."""

    section: int
    start: int
    """The offset, in `section`, of the function that it leads into."""
    name: str
    """The function's name."""
    distance: int
    """The distance from the function's beginning to the place that the entry contains. That is the jump's destination,
    or lies behind it by the distance of the entry from its table's beginning.
    """


class JumpTables:
    """The tables of one object."""

    def __init__(self, file: ObjectFile) -> None:
        self._file = file
        self._types = TABLE_RELOCATIONS.get(file.machine, ())
        self._referred = self._references()
        self.among_constants = {
            number: self._jumps_in(number) for number in file.content if not file.is_executable(number)
        }
        """Number of a section of data -> offset -> the entry of a table that leads into a function."""

    def _jumps_in(self, number: int) -> dict[int, JumpEntry]:
        """The relocations of a section of data that lead into functions, behind their beginnings: offset -> jump.

        No other function uses such an entry. It may be relative to its table's beginning, which is one of the
        relocations in front of it that follow each other: the jump counts if it is in the function for each of them, or
        if it is known where the table begins.
        """
        found: dict[int, JumpEntry] = {}
        begin = last = -_MOST_ENTRY_BYTES - 1
        for offset, kind, index, addend in self._file.relocations.get(number, ()):
            begin = begin if offset - last <= _MOST_ENTRY_BYTES else offset
            last = offset
            led = self._file.code_at(index, addend) if addend else None
            if led is not None:
                (start, name, size), place = led
                if start < place - (offset - begin) and place < start + size:
                    found[offset] = JumpEntry(self._file.symbols[index].section, start, name, place - start)
                elif exact := self._exact(number, range(begin, offset + 1), kind, index, addend):
                    found[offset] = exact
        return found

    def _exact(self, number: int, places: range, kind: int, index: int, addend: int) -> JumpEntry | None:
        """The jump of an entry that is relative to its table's beginning by its type; None if it is unknown where the
        table begins. `places`: where in the section it may, the entry's own place last.

        A function refers to the beginning of its own table, but also to other data, maybe by a place in front of them
        that is in a table. So the entry counts for the only function into which it leads from a place to which that
        function refers.
        """
        if kind not in RELATIVE_ENTRIES.get(self._file.machine, ()):
            return None
        section = self._file.symbols[index].section
        into = set()
        for begin, function in self._referred.get(number, ()):
            led = self._file.code_at(index, addend - (places[-1] - begin)) if begin in places else None
            if led is not None:
                (start, name, size), place = led
                if start < place < start + size and name.removesuffix(_COLD) == function.removesuffix(_COLD):
                    into.add((start, name))
        if len(into) != 1:
            return None
        ((start, name),) = into
        return JumpEntry(section, start, name, self._file.symbols[index].value + addend - start)

    def _references(self) -> dict[int, list[tuple[int, str]]]:
        """Number of a section -> the places in it to which instructions refer, as far as that is known exactly, and the
        function of each.
        """
        found: dict[int, list[tuple[int, str]]] = {}
        if self._file.machine not in RELATIVE_ENTRIES:
            return found
        for number in filter(self._file.is_executable, self._file.content):
            for offset, kind, index, addend in self._file.relocations.get(number, ()):
                symbol = self._file.symbols[index]
                if symbol.section not in self._file.content:
                    continue
                bias, function = self._file.bias(number, offset, kind), self._file.last_function(number, offset)
                if bias is not None and function is not None:
                    found.setdefault(symbol.section, []).append((symbol.value + addend + bias, function[1]))
        return found

    def finds(self, kind: int, name: str) -> bool:
        """Whether a relocation of that type, against that name, leads to a table among instructions."""
        return kind in self._types and name == _OFFSET_TABLE

    def among_instructions(self, number: int) -> dict[tuple[int, int], dict[int, JumpTable]] | None:
        """Function, as its place and size, -> its tables of jumps in a section of code, by their places.

        None if some of the section's unnamed code is not a table, or may belong to several functions.
        """
        unnamed = self._file.unnamed_code(number) if self._types else []
        owners = self._owners(number, unnamed)
        if not unnamed or owners is None:
            return None
        tables: dict[tuple[int, int], dict[int, JumpTable]] = {}
        for start, size in unnamed:
            places = sorted(place for place in owners if start <= place < start + size)
            if places[:1] != [start]:
                return None
            for place, end in zip(places, [*places[1:], start + size], strict=True):
                entries = self._entries(number, place, end, owners[place])
                if entries is None:
                    return None
                own = tables.setdefault(owners[place], {})
                own[place] = JumpTable(len(own), entries)
        return tables

    def _owners(self, number: int, unnamed: list[tuple[int, int]]) -> dict[int, tuple[int, int]] | None:
        """Offset in the unnamed code of a section -> the function whose table is there; None if several functions use a
        table, or if anything else refers to that code.
        """

        def is_unnamed(place: int) -> bool:
            return any(start <= place < start + size for start, size in unnamed)

        own = [one for one in self._file.symbols if one.section == number and not one.is_section]
        referred = (
            self._file.symbols[symbol].value + addend
            for found in self._file.relocations.values()
            for _, _, symbol, addend in found
            if self._file.symbols[symbol].section == number
        )
        if any(is_unnamed(one.value) for one in own) or any(map(is_unnamed, referred)):
            return None
        owners: dict[int, set[tuple[int, int]]] = {}
        for place, kind, symbol, addend in self._file.relocations.get(number, ()):
            if is_unnamed(place):
                return None
            if self.finds(kind, self._file.referred(symbol)[0]) and is_unnamed(place - addend):
                around = {(one.value, one.size) for one in own if one.value <= place < one.value + one.size}
                owners.setdefault(place - addend, set()).update(around)
        alone = {place: next(iter(found)) for place, found in owners.items() if len(found) == 1}
        return alone if len(alone) == len(owners) else None

    def _entries(self, number: int, place: int, end: int, owner: tuple[int, int]) -> tuple[int, ...] | None:
        """The destinations of a table's jumps in its function; None if one leads elsewhere."""
        content = self._file.content[number]
        if (end - place) % _ENTRY_BYTES:
            return None
        distances = [one for (one,) in struct.iter_unpack(f"{self._file.order}i", content[place:end])]
        # Padding consists of an instruction, whose bytes as a distance lead out of the section.
        while distances and abs(distances[-1]) > len(content):
            distances.pop()
        filled = content[place + _ENTRY_BYTES * len(distances) : end]
        if filled and not self._file.is_padding(filled):
            return None
        ends = tuple(place + one - owner[0] for one in distances)
        return ends if ends and all(0 <= one < owner[1] for one in ends) else None
