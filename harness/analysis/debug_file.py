"""Finds the debug information that a distribution ships separately from an object.

An object carries its build-id, which names the file: `usr/lib/debug/.build-id/AB/CDEF.debug` in the root folder that
both packages were unpacked into (gdb, "Debugging Information in Separate Files"). Another build has another build-id,
so no file is mistaken for another object's.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

_FOLDER = Path("usr/lib/debug/.build-id")


@cache
def debug_file(path: str) -> str:
    """The file with an object's debug information; the empty string if there is none beside the object's own."""
    identity = build_id(path)
    if not identity:
        return ""
    name = _FOLDER / identity[:2] / f"{identity[2:]}.debug"
    return next((str(root / name) for root in Path(path).resolve().parents if (root / name).is_file()), "")


def build_id(path: str) -> str:
    """The identity that the linker gave to an object, in hexadecimal; empty without one."""
    try:
        with Path(path).open("rb") as stream:
            section: Any = ELFFile(stream).get_section_by_name(".note.gnu.build-id")
            notes = list(section.iter_notes()) if section is not None else []
    except (OSError, ELFError):
        return ""
    return next((str(note["n_desc"]) for note in notes if note["n_type"] == "NT_GNU_BUILD_ID"), "")
