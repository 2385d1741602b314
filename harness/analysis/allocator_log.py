"""Reads the guard allocator's output (toolchains/allocator) in a guest's log."""

from __future__ import annotations

import re

_RANGE = re.compile(rb"^plumbline-guard: blocks from (0x[0-9a-f]+) to (0x[0-9a-f]+)(?:\n|\Z)", re.MULTILINE)


def block_ranges(log: bytes) -> list[range]:
    """The ranges of addresses that the guard allocator announced in a guest's log; none with another allocator.

    A fault in such a range is an access beyond a block or to a freed one: the rest of the range is accessible.
    """
    return [range(int(match[1], 16), int(match[2], 16)) for match in _RANGE.finditer(log)]


def without_range(log: bytes) -> bytes:
    """A program's output without the guard allocator's announcements."""
    return _RANGE.sub(b"", log)
