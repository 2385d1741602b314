"""How drivers write values, and complaints about those that differ from the model's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suites._shared.checksums import fnv1a

if TYPE_CHECKING:
    from collections.abc import Sequence

OFFSETS = 16
"""At how many places a driver calls what takes bytes (drivers/unit.h)."""


def pattern(length: int, seed: int) -> bytes:
    """What drivers fill their data with (drivers/main.c): all byte values, told by seed and position alone."""
    return bytes((i * 151 + (i >> 8) * 29 + seed * 89 + 7) & 255 for i in range(length))


def hexadecimal(data: bytes) -> str:
    """Bytes as drivers write them."""
    return "x" + data.hex()


def digest(data: bytes) -> str:
    """Length and hash, as drivers write what is too long."""
    return f"{len(data)}/{fnv1a(data):08x}"


OPPOSITE = "its bytes are in the opposite order everywhere"
"""What the complaint begins with of a line whose every value is the model's, but for the order of its bytes."""


def everywhere(values: Sequence[str], expected: str) -> str:
    """A complaint unless there is a value for every offset, and each is what is expected."""
    if len(values) != OFFSETS:
        return f"{len(values)} values where {OFFSETS} are due"
    for offset, value in enumerate(values):
        if value != expected:
            others = "" if len(set(values)) == 1 else ", elsewhere " + ", ".join(sorted({*values} - {value}))
            return f"at offset {offset} it is {value:.80}{others:.80}; the model says {expected:.200}"
    return ""


def number_everywhere(values: Sequence[str], number: int, *, size_bytes: int) -> str:
    """As `everywhere`, of a number of so many bytes; a complaint of its own where all its bytes are turned round."""
    turned = int.from_bytes(number.to_bytes(size_bytes, "little"), "big")
    complaint = everywhere(values, str(number))
    if complaint and turned != number and not everywhere(values, str(turned)):
        return f"{OPPOSITE}: it is {turned}; the model says {number}"
    return complaint


def exactly(values: Sequence[str], expected: Sequence[str]) -> str:
    """A complaint unless the values are these."""
    return "" if list(values) == list(expected) else f"it is {shown(values)}; the model says {shown(expected)}"


def shown(values: Sequence[str]) -> str:
    """Values for the reader."""
    return f"{' '.join(values):.120}" if values else "nothing"
