"""Names for addresses: function, file, line and origin, by the target's addr2line.

It refuses to guess: what the debug information does not tell is `??`, line 0, origin unknown.
"""

from __future__ import annotations

import re
import shutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from harness import process, unwind
from harness.finding import Frame

if TYPE_CHECKING:
    from harness.events import Fault, MapRecord


class Symbols:
    """Frames for guest addresses, with one target's binary tools."""

    def __init__(self, triple: str, server_binary: str) -> None:
        self.triple = triple
        self.server_binary = server_binary

    def frames(self, maps: list[MapRecord], pc: int) -> list[Frame]:
        """The frame at an address and those it was inlined into, innermost first; exactly one when nothing is known."""
        place = unwind.locate(maps, pc)
        if place is None:
            return [Frame(function="??", file="??", line=0, origin="unknown", pc=pc)]
        record, address = place
        ours = Path(record.path).resolve() == Path(self.server_binary).resolve()
        found = _addr2line(self.triple, record.path, address)
        frames = []
        for number, (function, file, line) in enumerate(found):
            # Without lines addr2line names the nearest symbol before the address, which need not hold it.
            name = function if file != "??" else _symbol_at(record.path, address)
            path, origin = place_in_tree(file) if ours else place_in_object(file, record.path)
            frames.append(
                Frame(
                    function=name,
                    file=path,
                    line=line,
                    origin=origin,
                    pc=pc,
                    inlined=number < len(found) - 1,
                )
            )
        return frames

    def backtrace(self, fault: Fault, machine: str) -> list[Frame]:
        """The whole stack of a fault, innermost first."""
        frames = self.frames(fault.maps, fault.pc)
        for caller in unwind.call_chain(fault, machine):
            frames += self.frames(fault.maps, caller)
        return frames


_IN_TREE = re.compile(r"/(?:tree|source)/((src|deps|modules)/(.*))$")
_COPIED_INTO_SRC = {"lzf.h": "lzf", "lzfP.h": "lzf", "lzf_c.c": "lzf", "lzf_d.c": "lzf"}
"""Other people's code that both families keep among their own files, for want of a folder of its own: file -> name."""

# The shared objects that glibc, musl and GCC install: the file's name before `.so` (ld.so(8), libc(7)); older
# releases of glibc put their version there, as in libc-2.31.so.
_RUNTIME = re.compile(
    r"(ld([-0-9].*)?|lib(c|m|mvec|pthread|dl|rt|anl|util|resolv|crypt|thread_db|nss_\w+|gcc_s|atomic|stdc\+\+)(-[0-9.]+)?"
    r"|libc\.musl-.*)"
)


_IN_DRIVERS = re.compile(r"(?:^|/)(suites/units/drivers/.*)$")
"""Ours: what calls a server's functions (harness.units)."""


def place_in_object(file: str, object_path: str) -> tuple[str, str]:
    """The same for an object that is not the server: a module of the tree, the C runtime, or another library."""
    if _IN_TREE.search(_collapse(file)) or _IN_DRIVERS.search(_collapse(file)):
        return place_in_tree(file)
    name = Path(object_path).name
    stem = name.partition(".so")[0]
    return (file if file != "??" else name), "libc" if _RUNTIME.fullmatch(stem) else f"library/{stem}"


def place_in_tree(file: str) -> tuple[str, str]:
    """A source path relative to the server's tree, and whose code it is (docs/reference.md, "Origins")."""
    match = _IN_TREE.search(_collapse(file))
    if match is None:
        driver = _IN_DRIVERS.search(_collapse(file))
        if driver is not None:
            return driver[1], "driver"
        return file, "unknown" if file == "??" else "libc"
    path, top, below = match.groups()
    name = below.partition("/")[0] if top != "src" else _COPIED_INTO_SRC.get(below, "")
    return path, f"bundled/{name}" if name else "server"


def tree_in(path: str) -> str:
    """The top of the server's tree, in a path that a compiler wrote; empty where it is in none."""
    match = re.match(r"(.*/(?:tree|source))/(src|deps|modules)(/|$)", _collapse(path))
    return match[1] if match else ""


def _collapse(path: str) -> str:
    """`a/../b` is `b`; the compiler wrote the path, and the file need not exist any more."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts and parts[-1]:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


@cache
def _addr2line(triple: str, path: str, address: int) -> list[tuple[str, str, int]]:
    command = f"{triple}-addr2line" if triple else "addr2line"
    unknown = [("??", "??", 0)]
    if shutil.which(command) is None or not Path(path).is_file():
        return unknown
    result = process.run([command, "-f", "-i", "-C", "-e", path, hex(address)], deadline_seconds=120)
    # Warnings come on the same stream, and none of them looks like a place.
    lines = [line for line in result.text.splitlines() if line and "addr2line: " not in line]
    found = []
    for function, place in zip(lines[::2], lines[1::2], strict=False):
        file, _, line = place.split(" (discriminator")[0].rpartition(":")
        found.append((function, file, int(line) if line.isdigit() else 0))
    return found or unknown


@cache
def _symbol_at(path: str, address: int) -> str:
    """The function whose symbol covers an address; OBJECT+OFFSET where none does, as in a stripped library's inside."""
    unknown = f"{Path(path).name}+{address:#x}"
    try:
        with Path(path).open("rb") as stream:
            elf = ELFFile(stream)
            for name in (".symtab", ".dynsym"):
                table: Any = elf.get_section_by_name(name)
                for symbol in table.iter_symbols() if table is not None else []:
                    start, size = symbol["st_value"] & ~1, symbol["st_size"]
                    # Start files are assembly, and some give their functions no size.
                    if symbol["st_info"]["type"] == "STT_FUNC" and start <= address < start + (size or _UNSIZED_BYTES):
                        return str(symbol.name)
    except (OSError, ELFError):
        return "??"
    return unknown


_UNSIZED_BYTES = 64
