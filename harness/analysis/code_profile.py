"""Sums executed blocks by function, and counts the calls of allocating functions among them.

A block belongs to the function whose symbol covers its first address, so inlined functions count as their callers.
"""

from __future__ import annotations

import bisect
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.analysis import unwind
from harness.analysis.function_symbols import function_symbols

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.record.fault_log import MapRecord

_ALLOCATES = re.compile(r"(je_)?(malloc|calloc|realloc|aligned_alloc|posix_memalign|memalign|mallocx|rallocx)")
_CLONE = re.compile(r"\.(constprop|isra|part|cold|lto_priv|localalias)(\.\d+)*")
"""The suffixes that compilers append to the name of a function that they copied or split."""
UNKNOWN = "??"


class CodeProfile(NamedTuple):
    """The instructions and allocations of executed blocks."""

    instructions: dict[str, int]
    """Function -> instructions. A function outside the server's program includes its object's name: `memcpy
    (libc.so.6)`. Code without a symbol is `??`, with its object."""
    allocations: int
    """Calls of malloc, calloc, realloc and the like, in any object."""


class _Function(NamedTuple):
    start: int
    end: int
    names: tuple[str, ...]


def profile(blocks: Mapping[tuple[int, int], int], maps: Sequence[MapRecord], server_binary: Path) -> CodeProfile:
    """The profile of executed blocks: (guest address, number of instructions) -> executions."""
    instructions: dict[str, int] = {}
    allocations = 0
    records = list(maps)
    for (address, length), times in blocks.items():
        place = unwind.locate(records, address)
        if place is None:
            name = f"{UNKNOWN} (no file)"
        else:
            record, link_address = place
            function = _function_at(record.path, link_address)
            name = _shown(function.names) if function else UNKNOWN
            if function and function.start == link_address and any(map(_ALLOCATES.fullmatch, function.names)):
                allocations += times
            if function is None or Path(record.path).resolve() != server_binary.resolve():
                name = f"{name} ({Path(record.path).name})"
        instructions[name] = instructions.get(name, 0) + length * times
    return CodeProfile(instructions, allocations)


def _shown(names: Sequence[str]) -> str:
    """The longest public name of a function (memcmp, not bcmp), without the compiler's suffix."""
    return _CLONE.sub("", min(names, key=lambda name: (name.startswith("_"), -len(name), name)))


def _function_at(path: str, address: int) -> _Function | None:
    starts, functions = _functions(path)
    at = bisect.bisect_right(starts, address) - 1
    return functions[at] if at >= 0 and address < functions[at].end else None


@cache
def _functions(path: str) -> tuple[list[int], list[_Function]]:
    """The functions of an object by address; none for one that cannot be read."""
    found: dict[int, tuple[int, set[str]]] = {}
    for start, size, name in function_symbols(path).found:
        if size:
            largest, names = found.get(start, (0, set()))
            found[start] = (max(largest, size), names | {name})
    starts = sorted(found)
    return starts, [_Function(start, start + found[start][0], tuple(sorted(found[start][1]))) for start in starts]
