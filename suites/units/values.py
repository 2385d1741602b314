"""The format of values in the drivers' output, and complaints about values that differ from the model's."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Judge = Callable[[str, list[str]], str]
"""Receives a line of a unit's output, as key and values. Returns a complaint, or an empty string for a correct line."""
OFFSETS = 16
"""Number of offsets at which a driver calls a function that reads bytes (drivers/unit.h)."""


def pattern(length: int, seed: int) -> bytes:
    """The drivers' fill pattern (drivers/main.c): all byte values, determined by seed and position."""
    # The step between bytes is the same within 256 bytes; only the first byte differs between blocks.
    blocks = (_block((number * 29 + seed * 89 + 7) & 255) for number in range((length + 255) >> 8))
    return b"".join(blocks)[:length]


@cache
def _block(first: int) -> bytes:
    return bytes((i * 151 + first) & 255 for i in range(256))


def hexadecimal(data: bytes) -> str:
    """Bytes in the drivers' format."""
    return "x" + data.hex()


def digest(data: bytes) -> str:
    """Length and CRC-32: the drivers' format for long results."""
    return f"{len(data)}/{zlib.crc32(data):08x}"


def bits_of(value: float) -> int:
    """The bits of a double, as a driver prints it."""
    return int(struct.unpack(">Q", struct.pack(">d", value))[0])


def double_of(bits: int) -> float:
    """The double that has these bits."""
    return float(struct.unpack(">d", struct.pack(">Q", bits))[0])


OPPOSITE = "its bytes are in the opposite order everywhere"
"""The start of the complaint about a line whose values all equal the model's in reversed byte order."""


BIG_WORDS = "it reads whole words in big-endian order everywhere"
"""The start of the complaint about a hash whose values all follow from words of the wrong byte order."""


WRAPS = "a size in 32 bits wraps"
"""The start of the complaint about a container that passes because a size wraps."""


def everywhere(values: Sequence[str], expected: str) -> str:
    """A complaint unless there is one value for every offset, and each equals the expected one."""
    if len(values) != OFFSETS:
        return f"{len(values)} values where {OFFSETS} are due"
    for offset, value in enumerate(values):
        if value != expected:
            others = "" if len(set(values)) == 1 else ", elsewhere " + ", ".join(sorted({*values} - {value}))
            return f"at offset {offset} it is {value:.80}{others:.80}; the model says {expected:.200}"
    return ""


def number_everywhere(values: Sequence[str], number: int, *, size_bytes: int) -> str:
    """Like `everywhere`, for a number of that size. A reversed byte order in all values has its own complaint."""
    reversed_number = int.from_bytes(number.to_bytes(size_bytes, "little"), "big")
    complaint = everywhere(values, str(number))
    if complaint and reversed_number != number and not everywhere(values, str(reversed_number)):
        return f"{OPPOSITE}: it is {reversed_number}; the model says {number}"
    return complaint


def exactly(values: Sequence[str], expected: Sequence[str]) -> str:
    """A complaint unless the values equal the expected ones."""
    return "" if list(values) == list(expected) else f"it is {shown(values)}; the model says {shown(expected)}"


def shown(values: Sequence[str]) -> str:
    """Values in readable form."""
    return f"{' '.join(values):.120}" if values else "nothing"
