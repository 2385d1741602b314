"""Finds the code that a program has of lines of its sources, by its debug information.

Only what a source compiled by itself has is found: a line of a header may have code in any object.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from elftools.common.exceptions import ELFError
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
    """The address of the first one."""
    end: int
    """The address behind the last one."""


def line_code(program: Path, lines: Mapping[str, Collection[int]]) -> list[LineCode]:
    """The code of these lines of sources, `lines` being file -> numbers; nothing without debug information."""
    if not lines:
        return []
    try:
        with Path(debug_file(str(program)) or program).open("rb") as stream:
            elf = ELFFile(stream)
            if not elf.has_dwarf_info():
                return []
            dwarf = elf.get_dwarf_info(relocate_dwarf_sections=False)
            units = [unit for unit in dwarf.iter_CUs() if _source_of(unit) in lines]
            return [one for unit in units for one in _code_of(dwarf, unit, lines)]
    except (OSError, ELFError):
        return []


def _source_of(unit: Any) -> str:
    top = unit.get_top_DIE()
    return place_in_tree(str(Path(_text(top, "DW_AT_comp_dir")) / _text(top, "DW_AT_name")))[0]


def _code_of(dwarf: Any, unit: Any, lines: Mapping[str, Collection[int]]) -> Iterator[LineCode]:
    """The code of a unit's own source (DWARF 5, 6.2.2)."""
    program = dwarf.line_program_for_CU(unit)
    if program is None:
        return
    source = _source_of(unit)
    wanted = lines[source]
    own = {number for number, name in enumerate(_names(program)) if name == Path(source).name}
    before = None
    for entry in program.get_entries():
        state = entry.state
        if state is None:
            continue
        if before is not None and before.address < state.address and before.line in wanted and before.file in own:
            yield LineCode(file=source, line=before.line, start=before.address, end=state.address)
        before = None if state.end_sequence else state


def _names(program: Any) -> Iterator[str]:
    """The names of a line program's files by their numbers, which before version 5 begin with 1."""
    if program["version"] < 5:
        yield ""
    for entry in program["file_entry"]:
        yield entry.name.decode("utf-8", "replace")


def _text(die: Any, attribute: str) -> str:
    return die.attributes[attribute].value.decode("utf-8", "replace") if attribute in die.attributes else ""
