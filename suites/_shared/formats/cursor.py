"""Reads an RDB file as lengths, texts, times and doubles, and records each of these pieces with its offsets.

It knows how the format encodes numbers and texts, but not its types and records.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from suites._shared.formats.encodings import lzf


class RdbError(ValueError):
    """The bytes violate the format; the message says where."""

    at: int = -1
    """Offset of the wrong part, or of the part that was read last."""
    record: str = ""
    """The name of that part."""
    found: object = None
    """The content read so far: rdb.Rdb."""


class CutPart(NamedTuple):
    """A piece of a file that the format defines."""

    start: int
    end: int
    what: str
    """A readable name: `double`, `length or number`, `listpack`."""


class Cursor:
    """Bytes, and a reading position."""

    def __init__(self, content: bytes, at: int = 0) -> None:
        self.content = content
        self.at = at
        self.parts: list[CutPart] = []
        """The pieces read so far."""
        self.record = ""
        """The record that is being read."""

    def take(self, count: int) -> bytes:
        """The next bytes. Raises RdbError when fewer are left."""
        piece = self.content[self.at : self.at + count]
        if len(piece) < count:
            raise RdbError(f"at {self.at}: {count} bytes are expected, {len(piece)} of {len(self.content)} are left")
        self.at += count
        return piece

    def byte(self) -> int:
        """The next byte."""
        return self.take(1)[0]

    def named(self, count: int, what: str) -> bytes:
        """The next bytes as one piece."""
        start = self.at
        piece = self.take(count)
        self.parts.append(CutPart(start, self.at, what))
        return piece

    def length(self) -> int:
        """A length, or a number written as a length."""
        start = self.at
        value, encoded = self._length()
        if encoded:
            raise RdbError(f"at {self.at}: expected a length, found the special encoding {value}")
        self.parts.append(CutPart(start, self.at, "length or number"))
        return value

    def _length(self) -> tuple[int, bool]:
        first = self.byte()
        kind = first >> 6
        if kind == 0:
            return first & 63, False
        if kind == 1:
            return (first & 63) << 8 | self.byte(), False
        if first == 0x80:
            return int.from_bytes(self.take(4), "big"), False
        if first == 0x81:
            return int.from_bytes(self.take(8), "big"), False
        if kind == 3:
            return first & 63, True
        raise RdbError(f"at {self.at - 1}: {first:#x} does not begin a length")

    def text(self, what: str = "string") -> bytes:
        """A string: plain, an integer in 1, 2 or 4 bytes, or compressed. `what` names its content."""
        start = self.at
        value, encoded = self._length()
        if encoded and value < 3:
            size = 1 << value
            number = int.from_bytes(self.take(size), "little", signed=True)
            self.parts.append(CutPart(start, self.at, f"integer of {size} byte{'s' if value else ''}"))
            return b"%d" % number
        self.parts.append(CutPart(start, self.at, f"length of a {what}"))
        if not encoded:
            return self.named(value, what)
        if value != 3:
            raise RdbError(f"at {self.at}: unknown string encoding {value}")
        packed, whole = self.length(), self.length()
        found = lzf(self.named(packed, f"compressed {what}"))
        if len(found) != whole:
            raise RdbError(f"at {self.at}: {len(found)} bytes decompressed, {whole} expected")
        return found

    def milliseconds(self, what: str = "time") -> int:
        """A time: 8 bytes, little-endian."""
        return int.from_bytes(self.named(8, what), "little", signed=True)

    def old_double(self) -> float:
        """A score as text with a length, as in versions before 8."""
        size = self.byte()
        special = {253: "nan", 254: "inf", 255: "-inf"}
        return float(special[size] if size in special else self.named(size, "score in digits"))

    def single(self) -> float:
        """A single-precision number of a module: 4 bytes, little-endian."""
        return float(struct.unpack("<f", self.named(4, "single"))[0])

    def double(self) -> float:
        """A score: 8 bytes, little-endian."""
        return float(struct.unpack("<d", self.named(8, "double"))[0])
