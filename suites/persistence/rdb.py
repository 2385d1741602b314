"""An independent reader of RDB files and DUMP payloads: bytes in, values out, nothing taken on trust.

It follows the format as the servers' rdb.h and rdb.c lay it down, versions 1 to 12 (Redis) and 80 (Valkey), and checks
what a server reading its own file would not notice: every length, the order of bytes of every number, the checksum, and
that nothing is left over. It raises RdbError with the offset.
"""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from suites.keyspace.values import Entry, Fields, Key, Members, Scores, Sequence, Text, score
from suites.persistence import streams
from suites.units.encodings import listpack, lzf, ziplist, zipmap
from suites.units.models import crc64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from suites.keyspace.values import Value

CHECKSUM_SINCE = 5
"""The RDB version that first ended with a checksum."""
_EXPIRES_SECONDS, _EXPIRES_MILLISECONDS = 253, 252
_SELECT, _RESIZE, _AUX, _FREQUENCY, _IDLE, _FUNCTION, _END = 254, 251, 250, 249, 248, 245, 255
_HINTS = {_FREQUENCY, _IDLE}


class RdbError(ValueError):
    """The bytes are not what the format says; the text tells where."""


@dataclass
class Rdb:
    """A file's content."""

    version: int
    entries: dict[Key, Entry] = field(default_factory=dict)
    types: dict[Key, int] = field(default_factory=dict)
    """How each value is written: RDB_TYPE_*."""
    raw: dict[Key, bytes] = field(default_factory=dict)
    """The bytes of each value, behind its type and name."""
    auxiliary: dict[bytes, bytes] = field(default_factory=dict)
    functions: list[bytes] = field(default_factory=list)


class Cursor:
    """Bytes, and where reading is."""

    def __init__(self, content: bytes, at: int = 0) -> None:
        self.content = content
        self.at = at

    def take(self, count: int) -> bytes:
        """The next bytes. Raises RdbError when there are not so many."""
        piece = self.content[self.at : self.at + count]
        if len(piece) < count:
            raise RdbError(f"at {self.at}: {count} bytes are due, {len(piece)} are left of {len(self.content)}")
        self.at += count
        return piece

    def byte(self) -> int:
        """The next byte."""
        return self.take(1)[0]

    def length(self) -> int:
        """A length or a number written like one."""
        value, encoded = self._length()
        if encoded:
            raise RdbError(f"at {self.at}: a length is due, found the special encoding {value}")
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
        raise RdbError(f"at {self.at - 1}: no length begins with {first:#x}")

    def text(self) -> bytes:
        """A string: plain, an integer in 1, 2 or 4 bytes, or compressed."""
        value, encoded = self._length()
        if not encoded:
            return self.take(value)
        if value < 3:
            return b"%d" % int.from_bytes(self.take(1 << value), "little", signed=True)
        if value != 3:
            raise RdbError(f"at {self.at}: no string has the encoding {value}")
        packed, whole = self.length(), self.length()
        found = lzf(self.take(packed))
        if len(found) != whole:
            raise RdbError(f"at {self.at}: {len(found)} bytes unpacked where {whole} are due")
        return found

    def milliseconds(self) -> int:
        """A time: 8 bytes, little-endian."""
        return int.from_bytes(self.take(8), "little", signed=True)

    def old_double(self) -> float:
        """A score as text with its length, as before version 8."""
        size = self.byte()
        special = {253: "nan", 254: "inf", 255: "-inf"}
        return float(special[size] if size in special else self.take(size))

    def double(self) -> float:
        """A score: 8 bytes, little-endian."""
        return float(struct.unpack("<d", self.take(8))[0])


def read(content: bytes) -> Rdb:
    """A whole file. Raises RdbError."""
    magic, digits = content[:5], content[5:9]
    if content[:6] == b"VALKEY":
        magic, digits = content[:6], content[6:9]
    if magic not in {b"REDIS", b"VALKEY"} or not digits.isdigit():
        raise RdbError(f"no RDB file begins with {content[:9]!r}")
    found = Rdb(version=int(digits))
    cursor = Cursor(content, 9)
    with _refusing(cursor):
        _body(cursor, found)
    if found.version >= CHECKSUM_SINCE:
        _checksum(content[: cursor.at], cursor.take(8))
    if cursor.at != len(content):
        raise RdbError(f"{len(content) - cursor.at} bytes follow the end")
    return found


@contextlib.contextmanager
def _refusing(cursor: Cursor) -> Iterator[None]:
    """Whatever a decoder stumbles over is a fault of the bytes."""
    try:
        yield
    except RdbError:
        raise
    except (ValueError, IndexError, struct.error) as error:
        raise RdbError(f"before {cursor.at}: {error}") from error


def _checksum(content: bytes, stored: bytes) -> None:
    due = crc64(content)
    if stored not in {due.to_bytes(8, "little"), bytes(8)}:
        raise RdbError(f"the checksum of the {len(content)} bytes is {due:016x}, the file says {stored[::-1].hex()}")


def _body(cursor: Cursor, found: Rdb) -> None:
    database, expires = 0, None
    while (code := cursor.byte()) != _END:
        if code == _SELECT:
            database = cursor.length()
        elif code == _RESIZE:
            cursor.length(), cursor.length()
        elif code == _AUX:
            name = cursor.text()
            found.auxiliary[name] = cursor.text()
        elif code == _FUNCTION:
            found.functions.append(cursor.text())
        elif code in _HINTS:
            cursor.take(1) if code == _FREQUENCY else cursor.length()
        elif code == _EXPIRES_MILLISECONDS:
            expires = cursor.milliseconds()
        elif code == _EXPIRES_SECONDS:
            expires = int.from_bytes(cursor.take(4), "little", signed=True) * 1000
        else:
            key = Key(database, cursor.text())
            if key in found.entries:
                raise RdbError(f"at {cursor.at}: {key} comes twice")
            start = cursor.at
            found.entries[key] = Entry(value_of(code, cursor), expires)
            found.types[key], found.raw[key] = code, cursor.content[start : cursor.at]
            expires = None


def read_dump(payload: bytes) -> tuple[int, Value]:
    """What DUMP answers: the RDB version, and the value. Raises RdbError."""
    body, version, stored = payload[:-10], payload[-10:-8], payload[-8:]
    _checksum(payload[:-8], stored)
    cursor = Cursor(body)
    with _refusing(cursor):
        value = value_of(cursor.byte(), cursor)
    if cursor.at != len(body):
        raise RdbError(f"{len(body) - cursor.at} bytes follow the value")
    return int.from_bytes(version, "little"), value


def value_of(kind: int, cursor: Cursor) -> Value:
    """The value that follows its type and its key's name."""
    if kind not in _READERS:
        raise RdbError(f"at {cursor.at}: no type has the number {kind}")
    return _READERS[kind](cursor)


def _texts(cursor: Cursor, per_item: int = 1) -> list[bytes]:
    return [cursor.text() for _ in range(cursor.length() * per_item)]


def _pairs(flat: list[bytes]) -> dict[bytes, bytes]:
    found = dict(zip(flat[::2], flat[1::2], strict=True))
    if len(found) * 2 != len(flat):
        raise RdbError("a field or member comes twice")
    return found


def _members(items: list[bytes]) -> Members:
    if len(set(items)) != len(items):
        raise RdbError("a member comes twice")
    return Members(frozenset(items))


def _old_scores(cursor: Cursor) -> Scores:
    return Scores({cursor.text(): score(cursor.old_double()) for _ in range(cursor.length())})


def _scores(cursor: Cursor) -> Scores:
    return Scores({cursor.text(): score(cursor.double()) for _ in range(cursor.length())})


def _packed_scores(flat: list[bytes]) -> Scores:
    return Scores({member: score(float(text)) for member, text in _pairs(flat).items()})


def _intset(cursor: Cursor) -> Members:
    blob = cursor.text()
    width, count = struct.unpack_from("<II", blob)
    if width not in {2, 4, 8} or len(blob) != 8 + width * count:
        raise RdbError(f"an intset of {len(blob)} bytes says {count} integers of {width} bytes")
    values = [int.from_bytes(blob[at : at + width], "little", signed=True) for at in range(8, len(blob), width)]
    if sorted(set(values)) != values:
        raise RdbError(f"an intset is not in order: {values[:10]}")
    return _members([b"%d" % value for value in values])


def _quicklist(cursor: Cursor) -> Sequence:
    return Sequence(tuple(item for _ in range(cursor.length()) for item in ziplist(cursor.text())))


def _quicklist2(cursor: Cursor) -> Sequence:
    items: list[bytes] = []
    for _ in range(cursor.length()):
        container = cursor.length()
        if container not in {1, 2}:
            raise RdbError(f"at {cursor.at}: no node has the container {container}")
        node = cursor.text()
        items += [node] if container == 1 else listpack(node)
    return Sequence(tuple(items))


def _hash_with_times(cursor: Cursor) -> Fields:
    """Redis 7.4's: the earliest time, then each field with the distance from it, plus one; 0 is never."""
    earliest = cursor.milliseconds()
    fields, expiries = {}, {}
    for _ in range(cursor.length()):
        distance, name = cursor.length(), cursor.text()
        fields[name] = cursor.text()
        if distance:
            expiries[name] = earliest + distance - 1
    return Fields(fields, expiries)


def _listpack_with_times(cursor: Cursor) -> Fields:
    cursor.milliseconds()
    flat = listpack(cursor.text())
    times = {name: int(text) for name, text in zip(flat[::3], flat[2::3], strict=True)}
    fields = dict(zip(flat[::3], flat[1::3], strict=True))
    return Fields(fields, {name: time for name, time in times.items() if time})


def _hash2(cursor: Cursor) -> Fields:
    """Valkey 9's: each field with its time, or -1."""
    fields, expiries = {}, {}
    for _ in range(cursor.length()):
        name = cursor.text()
        fields[name] = cursor.text()
        time = cursor.milliseconds()
        if time != -1:
            expiries[name] = time
    return Fields(fields, expiries)


_READERS: dict[int, Callable[[Cursor], Value]] = {
    0: lambda cursor: Text(cursor.text()),
    1: lambda cursor: Sequence(tuple(_texts(cursor))),
    2: lambda cursor: _members(_texts(cursor)),
    3: _old_scores,
    4: lambda cursor: Fields(_pairs(_texts(cursor, 2))),
    5: _scores,
    9: lambda cursor: Fields(zipmap(cursor.text())),
    10: lambda cursor: Sequence(tuple(ziplist(cursor.text()))),
    11: _intset,
    12: lambda cursor: _packed_scores(ziplist(cursor.text())),
    13: lambda cursor: Fields(_pairs(ziplist(cursor.text()))),
    14: _quicklist,
    15: lambda cursor: streams.read(cursor, 1),
    16: lambda cursor: Fields(_pairs(listpack(cursor.text()))),
    17: lambda cursor: _packed_scores(listpack(cursor.text())),
    18: _quicklist2,
    19: lambda cursor: streams.read(cursor, 2),
    20: lambda cursor: _members(listpack(cursor.text())),
    21: lambda cursor: streams.read(cursor, 3),
    22: _hash2,
    24: _hash_with_times,
    25: _listpack_with_times,
}
COMPACT_TYPES = frozenset({0, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 25})
"""Types that are written in one way only: the same commands give the same bytes on every machine."""
