"""What the adversary (toolchains/allocator) says in a guest's log."""

from __future__ import annotations

import re

_RANGE = re.compile(rb"^plumbline-guard: blocks from (0x[0-9a-f]+) to (0x[0-9a-f]+)(?:\n|\Z)", re.MULTILINE)


def holds(log: bytes, address: int) -> bool:
    """Whether an address lies where the adversary puts blocks, by what it told in a guest's log.

    A fault there is an access beyond a block, or to one that has been freed: everything else there is accessible.
    """
    return any(int(match[1], 16) <= address < int(match[2], 16) for match in _RANGE.finditer(log))


def without_range(log: bytes) -> bytes:
    """A program's output without what the adversary told in it."""
    return _RANGE.sub(b"", log)
