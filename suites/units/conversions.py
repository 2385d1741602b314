"""Judges of conversions: numbers to text and back, and numbers to little-endian order."""

from __future__ import annotations

import re

from harness.core.target_model import Endianness
from suites.units.values import bits_of, double_of, everywhere, exactly, hexadecimal, pattern


def endianconv(endianness: Endianness, key: str, values: list[str]) -> str:
    """The macros reverse the bytes of memory or of a number, but only on big-endian machines."""
    what, size = key.split()
    if what == "size":
        data = pattern(int(size), 3)
        return everywhere(values, hexadecimal(data[::-1] if endianness is Endianness.BIG else data))
    data = bytes(range(1, int(size) + 1))
    # Reversed, the same bytes are a different number.
    read = int.from_bytes(data, "big" if endianness is Endianness.LITTLE else "little")
    return exactly(values, [str(read)])


def string2ll(key: str, values: list[str]) -> str:
    """Accepts only the canonical text of a 64-bit integer."""
    text = key.removeprefix("text ")
    fits = re.fullmatch(r"0|-?[1-9][0-9]*", text) and -(1 << 63) <= int(text) < 1 << 63
    return everywhere(values, text if fits else "x")


def ll2string(key: str, values: list[str]) -> str:
    """The canonical text of an integer."""
    return everywhere(values, hexadecimal(key.removeprefix("number ").encode()))


def d2string(key: str, values: list[str]) -> str:
    """Any text that reads back as the same double: 17 digits, fewer that identify it, or a whole number."""
    bits = int(key.removeprefix("double "), 16)
    complaint = everywhere(values, values[0] if values else "")
    if complaint:
        return complaint
    text = bytes.fromhex(values[0][1:]).decode("ascii", "replace")
    try:
        same = bits_of(float(text)) == bits
    except ValueError:
        same = False
    return "" if same and text == text.strip() else f"it is {text!r}, the number is {double_of(bits)!r}"


def string2d(key: str, values: list[str]) -> str:
    """The bits of the double that is nearest to a number in text."""
    text = key.removeprefix("text ")
    try:
        expected = str(bits_of(float(text)))
    except ValueError:
        expected = "x"
    return everywhere(values, expected)
