"""Finds a program's code for lines of its sources, by its debug information.

A source may be compiled directly, or be included in another one, as by a driver of units.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from elftools.common.exceptions import ELFError
from elftools.common.utils import struct_parse
from elftools.dwarf.abbrevtable import AbbrevDecl
from elftools.elf.elffile import ELFFile

from harness.analysis.debug_file import debug_file
from harness.analysis.symbols import place_in_tree

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


class LineCode(NamedTuple):
    """Some instructions that a line has in a program. A line may have several such parts."""

    file: str
    """Relative to the server's tree."""
    line: int
    start: int
    """The address of the first instruction."""
    end: int
    """The address after the last instruction."""


def line_code(program: Path, lines: Mapping[str, Collection[int]]) -> list[LineCode]:
    """The code of lines of sources. `lines`: file -> line numbers. Nothing without debug information."""
    if not lines:
        return []
    try:
        with Path(debug_file(str(program)) or program).open("rb") as stream:
            elf = ELFFile(stream)
            if not elf.has_dwarf_info():
                return []
            dwarf = elf.get_dwarf_info(relocate_dwarf_sections=False)
            return [one for unit in dwarf.iter_CUs() for one in _code_of(dwarf, unit, lines)]
    except (OSError, ELFError):
        return []


def _code_of(dwarf: Any, unit: Any, lines: Mapping[str, Collection[int]]) -> Iterator[LineCode]:
    """The code that one compilation generated for the lines (DWARF 5, 6.2.2)."""
    abbreviations = _Abbreviations(unit.structs, dwarf.debug_abbrev_sec.stream, unit["debug_abbrev_offset"])
    unit.get_abbrev_table = lambda: abbreviations
    program = dwarf.line_program_for_CU(unit)
    sources = _sources(program, unit, lines) if program is not None else {}
    if not sources:
        return
    before = None
    for entry in program.get_entries():
        state = entry.state
        if state is None:
            continue
        if before is not None and before.address < state.address:
            source = sources.get(before.file, "")
            if source and before.line in lines[source]:
                yield LineCode(file=source, line=before.line, start=before.address, end=state.address)
        before = None if state.end_sequence else state


class _Abbreviations:
    """The abbreviations of a unit (DWARF 5, 7.5.3), read up to the requested one.

    A unit's first entry, which names its line program, has one of the first. The library's own table reads them all,
    which takes longer than everything else here.
    """

    def __init__(self, structs: Any, stream: Any, offset: int) -> None:
        self._structs, self._stream, self._offset = structs, stream, offset

    def get_abbrev(self, code: int) -> AbbrevDecl:
        """The declaration with a code. Raises ELFError if there is none."""
        self._stream.seek(self._offset)
        while (found := struct_parse(self._structs.the_Dwarf_uleb128, self._stream)) != 0:
            declaration = struct_parse(self._structs.Dwarf_abbrev_declaration, self._stream)
            if found == code:
                return AbbrevDecl(code, declaration)
        raise ELFError(f"no abbreviation {code}")


def _sources(program: Any, unit: Any, wanted: Collection[str]) -> dict[int, str]:
    """The numbers of the requested files in a line program. Before version 5, files and folders are numbered from 1,
    and 0 is the folder of the compilation.
    """
    names = {Path(one).name for one in wanted}
    start = Path(_text(unit.get_top_DIE(), "DW_AT_comp_dir"))
    five = program["version"] >= 5
    folders = [_decoded(one) for one in program["include_directory"]]
    if not five:
        folders.insert(0, "")
    found = {}
    for number, entry in enumerate(program["file_entry"], 0 if five else 1):
        name = _decoded(entry.name)
        if Path(name).name in names and entry.dir_index < len(folders):
            place, _ = place_in_tree(str(start / folders[entry.dir_index] / name))
            if place in wanted:
                found[number] = place
    return found


def _text(die: Any, attribute: str) -> str:
    return _decoded(die.attributes[attribute].value) if attribute in die.attributes else ""


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")
