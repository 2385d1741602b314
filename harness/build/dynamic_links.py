"""What a program or a library requires of its system, according to its own file: its dynamic loader and libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from harness.core.errors import InfrastructureError

if TYPE_CHECKING:
    from pathlib import Path


class DynamicLinks(NamedTuple):
    """The form of an ELF file, and what it names."""

    width_bits: int
    endianness: Literal["little", "big"]
    interpreter: str
    """The path of the dynamic loader; empty for a library, and for a program that contains its libraries."""
    libraries: list[str]
    """The file names of the required libraries."""


def links_of(path: Path) -> DynamicLinks:
    """What a program or a library requires. Raises InfrastructureError for a file that is neither."""
    try:
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            # pyelftools' annotations do not distinguish kinds of segments or tags.
            interpreters: list[Any] = list(elf.iter_segments("PT_INTERP"))
            sections: list[Any] = [section for section in elf.iter_sections() if isinstance(section, DynamicSection)]
            return DynamicLinks(
                width_bits=elf.elfclass,
                endianness="little" if elf.little_endian else "big",
                interpreter=str(interpreters[0].get_interp_name()) if interpreters else "",
                libraries=[str(tag.needed) for section in sections for tag in section.iter_tags("DT_NEEDED")],
            )
    except (OSError, ELFError) as error:
        raise InfrastructureError("not a program that a guest can run", where=str(path), because=str(error)) from error
