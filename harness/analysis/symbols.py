"""Turns addresses into function, file, line and origin, with the target's addr2line.

It never guesses: a gap in the debug information gives `??`, line 0 and an unknown origin.
"""

from __future__ import annotations

import re
import shutil
import struct
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from harness.analysis import unwind
from harness.analysis.debug_file import debug_file
from harness.analysis.function_symbols import function_symbols
from harness.analysis.program_traits.function_name import short_name
from harness.analysis.program_traits.program_types import RUST, language_of
from harness.core.finding import UNKNOWN_FILE, Frame
from harness.core.model import COMPILED_IN, Record
from harness.core.processes import process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.record.fault_log import Fault, MapRecord


class OwnProgram(Record, frozen=True):
    """A program that runs instead of a server: harness.record.program_launch."""

    path: str
    folder: str
    """Its sources are shown relative to this folder."""

    def placed(self, file: str) -> tuple[str, str]:
        """A source path, relative to the folder if it is in the folder, and the origin of the code."""
        whole, own = _collapse(file), f"{self.folder.rstrip('/')}/"
        if _OF_LANGUAGE.search(whole) or (_OF_SYSTEM.search(whole) and not whole.startswith(own)):
            # It is compiled into the program, and has as many callers as a function of the C library.
            return whole, "libc"
        shown = whole.removeprefix(own) if file != "??" else Path(self.path).name
        return shown, PROGRAM


_OF_LANGUAGE = re.compile(
    r"/include/c\+\+/"
    r"|/rustc/[0-9a-f]{40}/library/|/rustc-[0-9.]+/(library|vendor)/|/rustlib/src/rust/library/"
    r"|/go[-0-9.]*/src/(runtime|internal|syscall|testing|reflect|sync|os|fmt|log)/"
)
"""Paths of the libraries of C++, Rust and Go, as their compilers and Debian's write them."""
_OF_SYSTEM = re.compile(
    r"(^|/packages/[^/]+/root)/usr/(local/)?([^/]+/)?include/|/lib/gcc(-cross)?/[^/]+/[0-9.]+/include/"
)
"""Paths of headers of installed libraries and of GCC. Their functions are inlined, as memcpy() with _FORTIFY_SOURCE."""
PROGRAM = "program"
"""The origin of a program's own code, and of everything that is linked into it."""


def is_own(frame: Frame) -> bool:
    """Whether the user compiled a frame's code: what it calls belongs to libraries."""
    return frame.origin.partition("/")[0] in {"server", "bundled", PROGRAM}


def from_line(frames: list[Frame]) -> tuple[list[Frame], str]:
    """The frames of a program from the innermost one with a line on, and the function without one that it called.

    A program that was linked statically contains the C library, whose code has no lines. All frames and nothing if no
    frame has a line.
    """
    first = next((n for n, frame in enumerate(frames) if frame.line and frame.origin == PROGRAM), 0)
    return frames[first:], frames[first - 1].function if first else ""


class Symbols:
    """Frames for guest addresses, found with one target's binary tools."""

    def __init__(self, triple: str, server_binary: str, program: OwnProgram | None = None) -> None:
        """`program`: the program that runs instead of a server, if there is one."""
        self.triple = triple
        self.server_binary = server_binary
        self.program = program

    def frames(self, maps: list[MapRecord], pc: int) -> list[Frame]:
        """The frame at an address and those that it was inlined into, innermost first; one frame `??` if unknown."""
        place = unwind.locate(maps, pc)
        if place is None:
            return [Frame(function="??", file="??", line=0, origin="unknown", pc=pc)]
        record, address = place
        ours = self.program is None and _is_same_file(record.path, self.server_binary)
        found = _addr2line(self.triple, record.path, address)
        frames = []
        for number, (function, file, line) in enumerate(found):
            # Without lines addr2line names the nearest preceding symbol, which may not cover the address.
            name = function if file != "??" else _symbol_at(record.path, address)
            path, origin = place_in_tree(file) if ours else self._place_in_object(file, record.path)
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

    def _place_in_object(self, file: str, object_path: str) -> tuple[str, str]:
        if self.program is None:
            return place_in_object(file, object_path)
        if _is_same_file(object_path, self.program.path):
            return self.program.placed(file)
        path, origin = place_in_object(file, object_path)
        shown, whose = self.program.placed(file) if origin != "libc" and file != "??" else (path, origin)
        # A library of the program's own tree is the program's code, and shown by its path in the tree.
        return shown, origin if Path(shown).is_absolute() else whose

    def placed(self, named: Frame) -> Frame:
        """A frame of the server or program, known by file and line, completed with its function and origin.

        The file often lacks its folder: of several candidates, one in the server's own code wins. The frame stays as it
        is if the debug information does not know the file, or if several functions remain.
        """
        binary, place = (
            (self.program.path, self.program.placed) if self.program else (self.server_binary, place_in_tree)
        )
        frames = [
            Frame(function=function, file=path, line=named.line, origin=origin, pc=0)
            for function, file in sorted(_functions_around(binary, named.file, named.line))
            for path, origin in [place(file)]
            if named.function in {"??", function}
        ]
        found = [frame for frame in frames if frame.origin == "server"] or frames
        if len(found) == 1:
            return found[0]
        if self.program is None:
            return named
        return msgspec.structs.replace(named, file=named.file.removeprefix(f"{self.program.folder.rstrip('/')}/"))

    def function(self, name: str) -> Frame | None:
        """The beginning of a function of the program that runs instead of a server; None if its line is unknown."""
        path = self.program.path if self.program is not None else ""
        start = next((one.start for one in function_symbols(path).found if one.name == name), None)
        function, file, line = _addr2line(self.triple, path, start)[-1] if start is not None else ("??", "??", 0)
        if function != name or not line:
            return None
        shown, origin = self._place_in_object(file, path)
        return Frame(function=name, file=shown, line=line, origin=origin, pc=0)

    def functions_at(self, address: int) -> set[str]:
        """The names of the server's function at an address, relative to the program's start, and of those that it was
        inlined into; empty if they are unknown.
        """
        return {function for function, _, _ in _addr2line(self.triple, self.server_binary, address)} - {"??"}

    def backtrace(self, fault: Fault, machine: str) -> list[Frame]:
        """The whole stack of a fault, innermost first. A system call that may not be made is a separate frame."""
        frames = [_system_call(fault)] if fault.call_number >= 0 else []
        frames += self.frames(fault.maps, fault.pc)
        for caller in unwind.call_chain(fault, machine):
            frames += self.frames(fault.maps, caller)
        return frames


def _system_call(fault: Fault) -> Frame:
    """The kernel's function, in a fault that is its refusal."""
    name = fault.call or f"system-call-{fault.call_number}"
    return Frame(function=name, file=UNKNOWN_FILE, line=0, origin="kernel", pc=fault.pc)


@cache
def _is_same_file(one: str, other: str) -> bool:
    return Path(one).resolve() == Path(other).resolve()


_IN_TREE = re.compile(rf"/{COMPILED_IN}/((?:src|deps|modules)/.*)$")
_COPIED_INTO_SRC = {"lzf.h": "lzf", "lzfP.h": "lzf", "lzf_c.c": "lzf", "lzf_d.c": "lzf"}
"""Third-party code that both families keep among their own files: file -> name."""

# Shared objects that glibc, musl and GCC install: the file's name before `.so` (ld.so(8), libc(7)). Older releases of
# glibc put their version there, as in libc-2.31.so.
_RUNTIME = re.compile(
    r"(ld([-0-9].*)?|lib(c|m|mvec|pthread|dl|rt|anl|util|resolv|crypt|thread_db|nss_\w+|gcc_s|atomic|stdc\+\+)(-[0-9.]+)?"
    r"|libc\.musl-.*)"
)


_IN_DRIVERS = re.compile(r"(?:^|/)(suites/[^/]+/drivers/.*)$")
"""Plumbline's own code, which calls a server's functions (harness.build.unit_drivers)."""


def place_in_object(file: str, object_path: str) -> tuple[str, str]:
    """`place_in_tree` for objects other than the server: a module of the tree, the C runtime, or another library."""
    if _IN_TREE.search(_collapse(file)) or _IN_DRIVERS.search(_collapse(file)):
        return place_in_tree(file)
    name = Path(object_path).name
    stem = name.partition(".so")[0]
    return (file if file != "??" else name), "libc" if _RUNTIME.fullmatch(stem) else f"library/{stem}"


def place_in_tree(file: str) -> tuple[str, str]:
    """A source path relative to the server's tree, and its code's owner (docs/reference.md, "Origins")."""
    match = _IN_TREE.search(_collapse(file))
    if match is not None:
        return match[1], origin_in_tree(match[1])
    driver = _IN_DRIVERS.search(_collapse(file))
    if driver is not None:
        return driver[1], "driver"
    return file, "unknown" if file == "??" else "libc"


def origin_in_tree(path: str) -> str:
    """The owner of a file of the server's tree; a file outside the code folders belongs to the C library."""
    top, _, below = _collapse(path).partition("/")
    if top not in {"src", "deps", "modules"} or not below:
        return "libc"
    name = below.partition("/")[0] if top != "src" else _COPIED_INTO_SRC.get(below, "")
    return f"bundled/{name}" if name else "server"


def tree_in(path: str) -> str:
    """The top of the server's tree in a path that a compiler wrote; empty for a path outside every tree."""
    match = re.match(rf"(.*/{COMPILED_IN})/(src|deps|modules)(/|$)", _collapse(path))
    return match[1] if match else ""


def _collapse(path: str) -> str:
    """`a/../b` becomes `b`. The compiler wrote the path, and the file may no longer exist."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts and parts[-1]:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def can_name(triple: str, path: str) -> bool:
    """Whether the host has a binary and the tool that names its functions."""
    return shutil.which(tool_of(triple)) is not None and Path(path).is_file()


def tool_of(triple: str) -> str:
    """The command that names functions and lines of a target's programs."""
    return f"{triple}-addr2line" if triple else "addr2line"


@cache
def _addr2line(triple: str, path: str, address: int) -> list[tuple[str, str, int]]:
    unknown = [("??", "??", 0)]
    if not can_name(triple, path):
        return unknown
    # Its addresses are the object's own.
    read = debug_file(path) or path
    result = process.run([tool_of(triple), "-f", "-i", "-C", "-e", read, hex(address)], deadline_seconds=120)
    # Warnings share the stream, and none of them looks like a place.
    lines = [line for line in result.text.splitlines() if line and "addr2line: " not in line]
    found = []
    for function, place in zip(lines[::2], lines[1::2], strict=False):
        file, _, line = place.split(" (discriminator")[0].rpartition(":")
        found.append((short_name(function), file, int(line) if line.isdigit() else 0))
    return found or unknown


@cache
def _functions_around(path: str, file: str, line: int) -> set[tuple[str, str]]:
    """The functions around a line, for each source file of that name: (function, full path of the file)."""
    try:
        with Path(path).open("rb") as stream:
            elf = ELFFile(stream)
            if not elf.has_dwarf_info():
                return set()
            # A linked file is already relocated.
            dwarf = elf.get_dwarf_info(relocate_dwarf_sections=False)
            functions = [
                function for unit in _units_naming(dwarf, file) for function in _functions_of(dwarf, unit, file)
            ]
    except (OSError, ELFError):
        return set()
    before = [(whole, begin, name) for whole, begin, name in functions if begin <= line]
    last = {whole: max(begin for of, begin, _ in before if of == whole) for whole, _, _ in before}
    return {(name, whole) for whole, begin, name in before if begin == last[whole]}


def _units_naming(dwarf: Any, file: str) -> Iterator[Any]:
    """The compilation units that may have lines in a file of that name. To read one of them takes 10 ms."""
    programs = _line_programs_naming(dwarf, Path(file).name)
    content = _content_of(dwarf.debug_info_sec)
    for unit in dwarf.iter_CUs():
        own = content[unit.cu_offset : unit.cu_offset + unit.size]
        # Somewhere among its attributes is the offset of its line program (DWARF 4, 3.1.1).
        if programs is None or any(offset in own for offset in programs):
            yield unit


def _line_programs_naming(dwarf: Any, name: str) -> list[bytes] | None:
    """The offsets, as attributes hold them, of the line programs that name such a file (DWARF 4, 6.2.4).

    None if they cannot be determined: from version 5 on, names are elsewhere, and with 64 bits, offsets are longer.
    """
    content = _content_of(dwarf.debug_line_sec)
    word, half = ("<I", "<H") if dwarf.config.little_endian else (">I", ">H")
    found = []
    at = 0
    while at + 6 <= len(content):
        (length,), (version,) = struct.unpack_from(word, content, at), struct.unpack_from(half, content, at + 4)
        if length >= _LEAST_RESERVED_LENGTH or version >= 5:
            return None
        if f"{name}\0".encode() in content[at : at + 4 + length]:
            found.append(struct.pack(word, at))
        at += 4 + length
    return found


_LEAST_RESERVED_LENGTH = 0xFFFFFFF0
"""The least reserved value of a unit's length: from here on, the number is not a length (DWARF 4, 7.4)."""


def _content_of(section: Any) -> bytes:
    if section is None:
        return b""
    section.stream.seek(0)
    content: bytes = section.stream.read()
    return content


def _functions_of(dwarf: Any, unit: Any, file: str) -> Iterator[tuple[str, int, str]]:
    """A compilation unit's functions from files of that name: full path, first line, name (DWARF 5, 3.3)."""
    # Functions of Rust are nested in modules, and each library has a file of the same name.
    program = dwarf.line_program_for_CU(unit) if language_of(unit) != RUST else None
    if program is None:
        return
    # Before version 5, files and folders are counted from 1, and folder 0 is the unit's own (6.2.4).
    first = 0 if program["version"] >= 5 else 1
    top = unit.get_top_DIE()
    own = _text(top, "DW_AT_comp_dir")
    folders = [own] * first + [folder.decode() for folder in program["include_directory"]]
    wanted = {}
    for number, entry in enumerate(program["file_entry"], first):
        whole = _collapse(str(Path(own) / folders[entry.dir_index] / entry.name.decode()))
        if whole == file or whole.endswith(f"/{re.sub(r'^(?:[.]{1,2}/)+', '', file)}"):
            wanted[number] = whole
    for die in top.iter_children() if wanted else []:
        place = die.attributes.get("DW_AT_decl_file")
        if die.tag == "DW_TAG_subprogram" and place is not None and place.value in wanted:
            yield wanted[place.value], die.attributes["DW_AT_decl_line"].value, _text(die, "DW_AT_name")


def _text(die: Any, attribute: str) -> str:
    return die.attributes[attribute].value.decode("utf-8", "replace") if attribute in die.attributes else ""


@cache
def _symbol_at(path: str, address: int) -> str:
    """The function whose symbol covers an address; OBJECT+OFFSET if none does, as inside a stripped library."""
    symbols = function_symbols(path)
    named = [symbol for symbol in symbols.found if symbol.name and symbol.start <= address]
    # Start files are assembly, and some of their functions have no size: they end where the next one begins.
    nearest = max((symbol.start for symbol in named), default=0)
    for start, size, name in named:
        if address < start + size or (size == 0 and start == nearest and address < start + _UNSIZED_BYTES):
            return name
    return f"{Path(path).name}+{address:#x}" if symbols.complete else "??"


_UNSIZED_BYTES = 64
