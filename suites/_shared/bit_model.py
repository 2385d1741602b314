"""A model of the bit commands on Python integers and bytes: an implementation without machine words.

Bit 0 is the most significant bit of byte 0 (https://redis.io/docs/latest/commands/setbit/ and the pages of the other
bit commands).
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_, xor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_FOLDS = {"AND": and_, "OR": or_, "XOR": xor}
_INVERTED = bytes(255 - byte for byte in range(256))


def bitop(operation: str, operands: Sequence[bytes]) -> bytes:
    """AND, OR, XOR of strings padded with zero bytes to the longest; NOT of one."""
    if operation == "NOT":
        return bytes(byte ^ 0xFF for byte in operands[0])
    longest = max(map(len, operands))
    numbers = [int.from_bytes(operand.ljust(longest, b"\0")) for operand in operands]
    return reduce(_FOLDS[operation], numbers).to_bytes(longest)


def byte_range(length: int, start: int, end: int) -> tuple[int, int]:
    """Resolve negative indexes (from the end) and clamp, as [first, last]; first > last means empty."""
    first = max(0, start + length) if start < 0 else start
    last = max(0, end + length) if end < 0 else end
    return first, min(last, length - 1)


def bitcount(text: bytes, start: int = 0, end: int = -1) -> int:
    """Set bits in bytes start..end, both included."""
    first, last = byte_range(len(text), start, end)
    return int.from_bytes(text[first : last + 1]).bit_count()


def bitpos(text: bytes, bit: int, start: int = 0, end: int | None = None) -> int:
    """Position of the first bit with that value in bytes start..end; -1 if there is none.

    A search for 0 without an end treats the string as if zeros followed it. An empty string that exists has no bits.
    """
    first, last = byte_range(len(text), start, -1 if end is None else end)
    wanted = text[first : last + 1]
    if bit == 0:
        wanted = wanted.translate(_INVERTED)
    found = wanted.lstrip(b"\0")
    if found:
        return (first + len(wanted) - len(found)) * 8 + 8 - found[0].bit_length()
    return (last + 1) * 8 if bit == 0 and end is None and wanted else -1


def getbit(text: bytes, offset: int) -> int:
    """One bit; beyond the end it is 0."""
    byte, place = divmod(offset, 8)
    return text[byte] >> (7 - place) & 1 if byte < len(text) else 0


def setbit(text: bytes, offset: int, bit: int) -> bytes:
    """The string with one bit changed, and extended with zero bytes if the offset requires it."""
    byte, place = divmod(offset, 8)
    grown = bytearray(text.ljust(byte + 1, b"\0"))
    grown[byte] = grown[byte] & ~(0x80 >> place) | (bit << (7 - place))
    return bytes(grown)


def field_get(text: bytes, *, signed: bool, width: int, offset: int) -> int:
    """BITFIELD GET: `width` bits from bit `offset`, most significant first, two's complement if signed."""
    value = sum(getbit(text, offset + place) << (width - 1 - place) for place in range(width))
    return value - (1 << width) if signed and value >> (width - 1) else value


def field_set(text: bytes, value: int, *, width: int, offset: int) -> bytes:
    """BITFIELD SET: the string with those bits replaced by the value's low bits."""
    last = (offset + width - 1) // 8
    grown = text.ljust(last + 1, b"\0")
    whole = int.from_bytes(grown)
    shift = len(grown) * 8 - offset - width
    mask = ((1 << width) - 1) << shift
    return (whole & ~mask | (value << shift) & mask).to_bytes(len(grown))


def wrap(value: int, *, signed: bool, width: int) -> int:
    """OVERFLOW WRAP: modulo 2^width, into the signed or unsigned range."""
    value %= 1 << width
    return value - (1 << width) if signed and value >> (width - 1) else value
