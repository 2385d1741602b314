"""What a compiler and a linker said in a make's output, with places in the tree; and which compilers it called. Pure.

The output must name folders as make goes (`--print-directory`), block by block (`--output-sync=target`).
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.model import Noun

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = re.compile(r"^make(?:\[\d+\])?: (Entering|Leaving) directory '(.*)'$")
_DIAGNOSTIC = re.compile(r"^([^\s:][^:]*):(\d+):(?:\d+:)? (?:fatal )?(error|warning): (.*)$")
_FLAG = re.compile(r" \[-W(?:error=)?([a-z0-9+=-]+?)=?\]$")
_UNDEFINED = re.compile(r"undefined reference to [`'](\w+)'")
_TWICE = re.compile(r"multiple definition of [`'](\w+)'")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")


class Diagnostic(Noun, frozen=True):
    """One error or warning."""

    severity: Literal["error", "warning"]
    file: str
    """In the tree, or whole where it lies outside."""
    line: int
    text: str
    warning: str
    """The option that asks for it, without `-W`; empty for errors, and warnings that nothing switches."""


class Compilation(Noun, frozen=True):
    """One call of a compiler that makes an object of a source file."""

    folder: str
    words: list[str]


class Linking(Noun, frozen=True):
    """What a linker missed, or had twice: symbols, each once."""

    undefined: list[str]
    twice: list[str]


def _by_folder(output: str) -> Iterator[tuple[str, str]]:
    """Every line, with the folder that make was in."""
    folders: list[str] = []
    for line in _COLOUR.sub("", output).splitlines():
        moved = _FOLDER.match(line)
        if moved is None:
            yield (folders[-1] if folders else ""), line
        elif moved[1] == "Entering":
            folders.append(moved[2])
        elif folders:
            folders.pop()


def read(output: str, tree: Path) -> list[Diagnostic]:
    """Errors and warnings, each once: a header's comes again with every file that includes it."""
    found: dict[Diagnostic, None] = {}
    for folder, line in _by_folder(output):
        match = _DIAGNOSTIC.match(line)
        if match is None:
            continue
        file, number, severity, text = match.groups()
        flag = _FLAG.search(text)
        one = Diagnostic(
            severity="error" if severity == "error" else "warning",
            file=place(file, folder, tree),
            line=int(number),
            text=_FLAG.sub("", text),
            warning=flag[1] if flag else "",
        )
        found[one] = None
    return list(found)


def place(file: str, folder: str, tree: Path) -> str:
    """A path as the compiler has it, relative to the tree where it lies in it."""
    whole = os.path.normpath(Path(folder) / file)
    return whole.removeprefix(f"{tree}/")


def linking(output: str) -> Linking:
    """The linker's complaints."""
    return Linking(
        undefined=list(dict.fromkeys(_UNDEFINED.findall(output))), twice=list(dict.fromkeys(_TWICE.findall(output)))
    )


def compilations(output: str, compilers: tuple[str, ...]) -> list[Compilation]:
    """The compilers' command lines that make objects. `compilers` are their first words."""
    found = []
    for folder, line in _by_folder(output):
        if not line.startswith(tuple(f"{one} " for one in compilers)):
            continue
        words = shlex.split(line.partition(";")[0])
        if "-c" in words:
            found.append(Compilation(folder=folder, words=words))
    return found
