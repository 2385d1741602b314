"""Reads compiler and linker messages, and the compilers' command lines, from the output of make. Pure.

Places need output that names folders (`--print-directory`) in unmixed blocks (`--output-sync=target`). `first_error`
works on any output.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.model import Record
from harness.record.compiler_warnings import Diagnostic

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = re.compile(r"^make(?:\[\d+\])?: (Entering|Leaving) directory '(.*)'$")
_DIAGNOSTIC = re.compile(r"^([^\s:][^:]*):(\d{1,9}):(?:\d+:)? (?:fatal )?(error|warning): (.*)$")
_INSIDE = re.compile(
    r"^[^\s:][^:]*: (?:In (?:\w+ )*function '(?:[^'(]*[ *&])?([\w:~]+)(?:\([^']*)?'|At (?:top level|global scope)):$"
)
"""GCC's line before the first message about a function. It applies until the next such line."""
_FLAG = re.compile(r" \[-W(?:error=)?([a-z0-9+=-]+?)=?\]$")
_UNDEFINED = re.compile(r"undefined reference to [`'](\w+)'")
_TWICE = re.compile(r"multiple definition of [`'](\w+)'")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")

_CONSEQUENCE = re.compile(
    r"^\S*make(\[\d+\])?: (\*\*\* (\[|Waiting for unfinished|Deleting )|Leaving directory|Entering directory|Target )"
    r"|collect2: error: ld returned"
)
"""Messages of make, and of the compiler that called the linker, that follow an error."""
_FOLDER_CHANGE = re.compile(r"^\S*make(\[\d+\])?: (Leaving|Entering) directory ")
_IGNORED = re.compile(r"^\S*make(\[\d+\])?: \[.*\] Error \d+ \(ignored\)$")
"""Make's message of a recipe's failure that the makefile allows (GNU make manual, Errors in Recipes)."""
_COMPLAINT = re.compile(
    r"(^|[\s:])(fatal )?[Ee]rror: |internal compiler error"
    r"|undefined reference to |multiple definition of |cannot find -l|relocation truncated to fit|\*\*\* "
    r"|^(\S*[/-])?(ld(\.\w+)?|as): (?!.*: in function )"
)
"""Error messages of compilers, assemblers, linkers, configure scripts and make."""
_OTHER_COMPLAINT = re.compile(r"^(\S*[/-])?(ar|ranlib|nm|objcopy|strip): (?!creating |.*modifier ignored)")
"""Messages of tools that also say what they do. They come after those of compilers."""
_NO_COMPLAINT = re.compile(r": (warning|note): ")
_QUOTATION = re.compile(r"^ *\d* \| ")
"""A line of the source, and the marks below it, as GCC and current Clangs quote them."""
_MARKS = re.compile(r"^[ ~]*\^[ ~^]*$")
"""What older Clangs write below a line of the source, which they quote without a margin."""
_SHELL = re.compile(
    r"not found$|: No such file or directory|: Permission denied|: cannot |[Ss]yntax error|\b\w+Error: "
    r"|Segmentation fault|Bus error|Killed$|Aborted"
)
"""Error messages of a recipe's shell and scripts. Successful builds have them too, so they only count before a
failure."""
EXCERPT_LINES = 3
COMPARED_CHARACTERS = 2000
"""How much of a complaint is compared: a makefile may print lines without end."""


class Compilation(Record, frozen=True):
    """One compiler call that makes an object from a source file."""

    folder: str
    words: list[str]


class Linking(Record, frozen=True):
    """Symbols that a linker missed or found twice, each listed once."""

    undefined: list[str]
    twice: list[str]


def _by_folder(output: str) -> Iterator[tuple[str, str]]:
    """Every line with make's current folder."""
    folders: list[str] = []
    for line in _COLOUR.sub("", output).splitlines():
        moved = _FOLDER.match(line)
        if moved is None:
            yield (folders[-1] if folders else ""), line
        elif moved[1] == "Entering":
            folders.append(moved[2])
        elif folders:
            folders.pop()


def read(output: str, tree: Path, *, below: Path | None = None) -> list[Diagnostic]:
    """Errors and warnings without repetitions, such as a header's messages for every file that includes it.

    `below`: omit messages about compilations in other folders.
    """
    found: dict[Diagnostic, None] = {}
    function, before = "", ""
    for folder, line in _by_folder(output):
        # The compiler names no function before a file's first message that is outside of any function.
        if folder != before or _calls_compiler(line):
            function, before = "", folder
        if below is not None and not Path(folder).is_relative_to(below):
            continue
        if inside := _INSIDE.match(line):
            function = inside[1] or ""
        match = _DIAGNOSTIC.match(line)
        if match is None:
            continue
        file, number, severity, text = match.groups()
        flag = _FLAG.search(text)
        diagnostic = Diagnostic(
            severity="error" if severity == "error" else "warning",
            file=place(file, folder, tree),
            line=int(number),
            text=_FLAG.sub("", text),
            warning=flag[1] if flag else "",
            function=function,
        )
        found[diagnostic] = None
    return list(found)


def _calls_compiler(line: str) -> bool:
    return " -c " in f"{line} " and not _DIAGNOSTIC.match(line) and not line.startswith(" ")


def place(file: str, folder: str, tree: Path) -> str:
    """A path, relative to the tree if it is in the tree; otherwise as the compiler wrote it."""
    whole = os.path.normpath(Path(folder) / file)
    return whole.removeprefix(f"{tree}/")


def linking(output: str) -> Linking:
    """The symbols in the linker's error messages."""
    return Linking(
        undefined=list(dict.fromkeys(_UNDEFINED.findall(output))), twice=list(dict.fromkeys(_TWICE.findall(output)))
    )


def compilations(output: str, compilers: tuple[str, ...]) -> list[Compilation]:
    """The compilers' command lines that make objects; `compilers` contains their first words."""
    lines = ((folder, _words(line)) for folder, line in _called(output, compilers))
    return [Compilation(folder=folder, words=words) for folder, words in lines if "-c" in words]


def compiling_folders(output: str, compilers: tuple[str, ...]) -> set[str]:
    """The folders of the calls that `compilations` returns, at a tenth of the cost."""
    return {folder for folder, line in _called(output, compilers) if " -c " in f"{line.partition(';')[0]} "}


def _called(output: str, compilers: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The lines that call one of the compilers, each with make's current folder."""
    first = tuple(f"{compiler} " for compiler in compilers)
    return ((folder, line) for folder, line in _by_folder(output) if line.startswith(first))


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line.partition(";")[0])
    except ValueError:
        # The first `;` is inside a string, or a quote is unbalanced.
        return line.split()


def first_error(output: str) -> str:
    """The first error with the two lines after it: a compiler's, a linker's or make's own; without one, another tool's;
    without one, a shell's.

    If no error is recognised, the last lines of the output.
    """
    lines = _lines(output)
    first = next(iter([*_complaining(lines, _COMPLAINT), *_complaining(lines, _OTHER_COMPLAINT)]), None)
    if first is None:
        first = _before_failure(lines)
    if first is None:
        own_words = [line for line in lines if line.strip() and not _CONSEQUENCE.search(line)] or lines
        return "\n".join(own_words[-5:])
    excerpt = [lines[first]]
    for line in lines[first + 1 : first + EXCERPT_LINES]:
        if _CONSEQUENCE.search(line):
            break
        excerpt.append(line)
    return "\n".join(excerpt)


def complaints(output: str) -> frozenset[str]:
    """Every error, without folders and tool prefixes, so that errors of two machines' builds compare equal."""
    lines = _lines(output)
    errors = {_plain(lines[number]) for each in (_COMPLAINT, _OTHER_COMPLAINT) for number in _complaining(lines, each)}
    shell = _before_failure(lines)
    return frozenset(errors or ({_plain(lines[shell])} if shell is not None else set()))


def prerequisites(rule: str) -> list[str]:
    """The files that a compiler read, by the makefile's rule that it wrote (-MD, -MM): those behind the first colon."""
    first = next((line for line in rule.replace("\\\n", " ").splitlines() if ":" in line), "")
    return first.partition(": ")[2].split()


def _lines(output: str) -> list[str]:
    """The lines without colours, and without the last words of a make whose failure the calling makefile ignores.

    Valkey's makefile cleans a folder for which GoogleTest is missing, before it compiles anything.
    """
    kept: list[str] = []
    for line in _COLOUR.sub("", output).splitlines():
        if _IGNORED.search(line):
            at = next((at for at in reversed(range(len(kept))) if not _FOLDER_CHANGE.search(kept[at])), None)
            if at is not None and "*** " in kept[at]:
                del kept[at]
        kept.append(line)
    return kept


def _complaining(lines: list[str], complaint: re.Pattern[str]) -> list[int]:
    """The numbers of the lines that are such complaints, and neither a consequence of one nor quoted source."""
    return [
        number
        for number, line in enumerate(lines)
        if complaint.search(line)
        and not _CONSEQUENCE.search(line)
        and not _NO_COMPLAINT.search(line)
        and not _QUOTATION.search(line)
        and not any(_MARKS.search(below) for below in lines[number + 1 : number + 2])
    ]


def _before_failure(lines: list[str]) -> int | None:
    """The number of the line in which a recipe's shell explains the first failure reported by make."""
    failed = next((number for number, line in enumerate(lines) if _CONSEQUENCE.search(line) and "***" in line), None)
    before = range(len(lines) if failed is None else failed)
    return next((number for number in reversed(before) if _SHELL.search(lines[number])), None)


def _plain(line: str) -> str:
    # `/usr/lib/gcc-cross/arm-linux-gnueabi/bin/ld: bitops.o: …` and `/usr/bin/ld: bitops.o: …` are the same error.
    short = re.sub(r"[^\s`'\"(]*/", "", line[:COMPARED_CHARACTERS])
    plain = re.sub(r"\b\w+(-\w+)*-linux-\w+-(?=\w)|\(\.text\S*\)", "", short).strip()
    # A make that goes on after an error does not end its line so.
    return plain.removesuffix("Stop.").rstrip()
