"""Names the functions and lines that executed code belongs to, with functions that the compiler inlined into others.

Code is a set of addresses at which instructions of the server's own program begin, or which are inside one where
instructions differ in length.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from harness.analysis.debug_file import debug_file
from harness.analysis.symbols import place_in_tree, tool_of
from harness.core.processes import process

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


_AT_ONCE = 1000
"""Addresses that one call of addr2line receives, so that its output is not cut."""
_NAMING_SECONDS = 300


class CodeLine(NamedTuple):
    """A line of a function."""

    function: str
    file: str
    """Relative to the server's tree, if the file is in the tree."""
    line: int
    origin: str
    """As in harness.core.finding.Frame."""


def code_lines(triple: str, server_binary: Path, addresses: Iterable[int]) -> dict[int, list[CodeLine]]:
    """Address -> the line there and those that its function was inlined at, innermost first.

    An address without debug information is absent. Raises InfrastructureError if the target's addr2line is missing.
    """
    program = debug_file(str(server_binary)) or str(server_binary)
    found: dict[int, list[CodeLine]] = {}
    rest = iter(addresses)
    while some := list(itertools.islice(rest, _AT_ONCE)):
        words = [tool_of(triple), "-a", "-f", "-i", "-C", "-e", program, *map(hex, some)]
        result = process.run_successfully(
            words,
            problem="executed code cannot be named",
            where=str(server_binary),
            remedy="plumb doctor",
            deadline_seconds=_NAMING_SECONDS,
        )
        found |= parsed(result.text)
    return found


def parsed(text: str) -> dict[int, list[CodeLine]]:
    """What `addr2line -a -f -i` printed: an address, then alternately a function and a place."""
    found: dict[int, list[CodeLine]] = {}
    lines: list[CodeLine] = []
    function = ""
    for word in text.splitlines():
        if "addr2line: " in word:
            continue
        if word.startswith("0x"):
            lines = found.setdefault(int(word, 16), [])
            function = ""
        elif not function:
            function = word
        else:
            file, _, line = word.split(" (discriminator")[0].rpartition(":")
            if file != "??" and line.isdigit():
                path, origin = place_in_tree(file)
                lines.append(CodeLine(function=function, file=path, line=int(line), origin=origin))
            function = ""
    return {address: lines for address, lines in found.items() if lines}
