"""What a program's debug information says of C's types where machines differ: char, long, time_t and byte order."""

from __future__ import annotations

from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elftools.common.exceptions import DWARFError, ELFError
from elftools.elf.elffile import ELFFile

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_UNITS = 50
"""How many compilation units are read: reading one takes 10 ms, and most name these types."""
_UNSIGNED_CHAR = 8
"""DW_ATE_unsigned_char (DWARF 5, 7.8)."""


@cache
def unlike_host(path: str) -> str:
    """How the types of a program differ from those of the host, in a phrase; empty if they do not, or are unknown.

    `char is unsigned, long has 4 bytes`.
    """
    try:
        with Path(path).open("rb") as stream:
            elf = ELFFile(stream)
            found = _types(elf) if elf.has_dwarf_info() else {}
            is_big = not elf.little_endian
    except (OSError, ELFError, DWARFError, KeyError):
        return ""
    phrases = ["char is unsigned"] if found.get("char") == _UNSIGNED_CHAR else []
    phrases += [f"{name} has {found[name]} bytes" for name in ("long", "time_t") if found.get(name, 8) != 8]
    if found.get("long") == 4 and found.get("time_t") == 8:
        phrases.append("time_t is wider than long")
    if is_big:
        phrases.append("the most significant byte comes first")
    return ", ".join(phrases)


@cache
def built_unlike(path: str, flags: tuple[str, ...], time_bytes: int) -> str:
    """How the build of a program contradicts that of a target's programs, in a phrase; empty if it does not, as far as
    the debug information tells.

    `flags`: the target's compiler flags. `time_bytes`: the size of its `time_t`; 0 if that is unknown.
    """
    try:
        with Path(path).open("rb") as stream:
            elf = ELFFile(stream)
            if not elf.has_dwarf_info():
                return ""
            found = _types(elf) if time_bytes else {}
            given = _options(elf)
    except (OSError, ELFError, DWARFError, KeyError):
        return ""
    expected = dict(flag.split("=", 1) for flag in flags if flag.startswith("-m") and "=" in flag)
    phrases = [
        f"{name}={given[name]} instead of {value}"
        for name, value in expected.items()
        if given.get(name, value) != value
    ]
    size = found.get("time_t", time_bytes)
    if size != time_bytes:
        phrases.append(f"a time_t of {size} bytes instead of {time_bytes}")
    return ", ".join(phrases)


def _options(elf: ELFFile) -> dict[str, str]:
    """The options of the form `-mNAME=VALUE` with which the first unit was compiled that tells them (GCC does)."""
    dwarf: Any = elf.get_dwarf_info(relocate_dwarf_sections=False)
    for unit in islice(dwarf.iter_CUs(), MOST_UNITS):
        producer = unit.get_top_DIE().attributes.get("DW_AT_producer")
        words = producer.value.decode("utf-8", "replace").split() if producer is not None else []
        options = dict(word.split("=", 1) for word in words if word.startswith("-m") and "=" in word)
        if options:
            return options
    return {}


def _types(elf: ELFFile) -> dict[str, int]:
    """`char` -> its encoding; `long` and `time_t` -> their sizes in bytes, as far as they are found."""
    # A linked file is already relocated.
    dwarf: Any = elf.get_dwarf_info(relocate_dwarf_sections=False)
    found: dict[str, int] = {}
    # Other languages have no such types: one unit of Rust's library is as large as a server.
    units = (unit for unit in dwarf.iter_CUs() if language_of(unit) not in {RUST, GO})
    for unit in islice(units, MOST_UNITS):
        for name, value in _types_in(unit):
            found.setdefault(name, value)
        if len(found) == 3:
            break
    return found


RUST, GO = 0x1C, 0x16
"""DW_LANG_Rust and DW_LANG_Go (DWARF 5, 3.1.1)."""


def language_of(unit: Any) -> int:
    """The language of a compilation unit (DW_AT_language); 0 if it is unknown."""
    language = unit.get_top_DIE().attributes.get("DW_AT_language")
    return int(language.value) if language is not None else 0


def _types_in(unit: Any) -> Iterator[tuple[str, int]]:
    for die in unit.get_top_DIE().iter_children():
        name = die.attributes["DW_AT_name"].value.decode("utf-8", "replace") if "DW_AT_name" in die.attributes else ""
        if die.tag == "DW_TAG_base_type" and name == "char":
            yield "char", die.attributes["DW_AT_encoding"].value
        elif die.tag == "DW_TAG_base_type" and name in {"long int", "long"}:
            yield "long", die.attributes["DW_AT_byte_size"].value
        elif die.tag == "DW_TAG_typedef" and name == "time_t":
            named = die
            while named.tag == "DW_TAG_typedef":
                named = named.get_DIE_from_attribute("DW_AT_type")
            yield "time_t", named.attributes["DW_AT_byte_size"].value
