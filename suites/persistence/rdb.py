"""An independent reader of RDB files and DUMP payloads: bytes in, values out, nothing taken on trust.

It follows the format as the servers' rdb.h and rdb.c lay it down, versions 1 to 12 (Redis) and 80 (Valkey), and checks
what a server reading its own file would not notice: every length, the order of bytes of every number, the checksum, and
that nothing is left over. It raises RdbError with the offset.
"""

from __future__ import annotations

import contextlib
import math
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from suites.keyspace.values import Entry, Fields, Foreign, Key, Members, Scores, Sequence, Text, score
from suites.persistence import streams
from suites.persistence.cursor import Cursor, Part, RdbError
from suites.units.encodings import listpack, ziplist, zipmap
from suites.units.models import crc64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from suites.keyspace.values import Value

CHECKSUM_SINCE = 5
"""The RDB version that first ended with a checksum."""
_EXPIRES_SECONDS, _EXPIRES_MILLISECONDS = 253, 252
_MODULE_AUX = 247
_SELECT, _RESIZE, _AUX, _FREQUENCY, _IDLE, _FUNCTION, _END = 254, 251, 250, 249, 248, 245, 255
_HINTS = {_FREQUENCY, _IDLE}
_OF_THE_KEY = {_EXPIRES_SECONDS, _EXPIRES_MILLISECONDS, *_HINTS}
EXPIRY, CHECKSUM = "time of expiry", "checksum"


class Place(NamedTuple):
    """Where a key's record lies, from its time of expiry or its type to the end of its value."""

    start: int
    end: int


@dataclass
class Rdb:
    """A file's content."""

    version: int
    entries: dict[Key, Entry] = field(default_factory=dict)
    types: dict[Key, int] = field(default_factory=dict)
    """How each value is written: RDB_TYPE_*."""
    raw: dict[Key, bytes] = field(default_factory=dict)
    """The bytes of each value, behind its type and name."""
    places: dict[Key, Place] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    """Every piece, in the order of the file."""
    auxiliary: dict[bytes, bytes] = field(default_factory=dict)
    functions: list[bytes] = field(default_factory=list)
    modules: list[Foreign] = field(default_factory=list)
    """Modules' auxiliary data."""


def version_of(content: bytes) -> int:
    """The version that a file says it has. Raises RdbError."""
    magic, digits = content[:5], content[5:9]
    if content[:6] == b"VALKEY":
        magic, digits = content[:6], content[6:9]
    if magic not in {b"REDIS", b"VALKEY"} or not digits.isdigit():
        raise RdbError(f"no RDB file begins with {content[:9]!r}")
    return int(digits)


def read(content: bytes) -> Rdb:
    """A whole file. Raises RdbError."""
    found = Rdb(version=version_of(content))
    cursor = Cursor(content, 9)
    found.parts = cursor.parts
    with _refusing(cursor, found):
        _body(cursor, found)
        cursor.record = ""
        if found.version >= CHECKSUM_SINCE:
            _checksum(content[: cursor.at], cursor.named(8, CHECKSUM))
    if cursor.at != len(content):
        raise RdbError(f"{len(content) - cursor.at} bytes follow the end")
    return found


@contextlib.contextmanager
def _refusing(cursor: Cursor, found: Rdb | None = None) -> Iterator[None]:
    """Whatever a decoder stumbles over is a fault of the bytes: of the part that was read last."""
    try:
        yield
    except (ValueError, IndexError, struct.error) as error:
        wrong = error if isinstance(error, RdbError) else RdbError(f"before {cursor.at}: {error}")
        part = cursor.parts[-1] if cursor.parts else Part(0, 0, "")
        wrong.at, wrong.record, wrong.found = part.start, in_record(part.what, cursor.record), found
        raise wrong from error


def _checksum(content: bytes, stored: bytes) -> None:
    due = crc64(content)
    if stored not in {due.to_bytes(8, "little"), bytes(8)}:
        raise RdbError(f"the checksum of the {len(content)} bytes is {due:016x}, the file says {stored[::-1].hex()}")


def _body(cursor: Cursor, found: Rdb) -> None:
    database, expires, begin = 0, None, -1
    while (code := cursor.byte()) != _END:
        # What precedes a type belongs to its key.
        begin = cursor.at - 1 if begin < 0 else begin
        if code == _SELECT:
            database = cursor.length()
        elif code in _BESIDE:
            _BESIDE[code](cursor, found)
        elif code in _HINTS:
            cursor.take(1) if code == _FREQUENCY else cursor.length()
        elif code == _EXPIRES_MILLISECONDS:
            expires = cursor.milliseconds(EXPIRY)
        elif code == _EXPIRES_SECONDS:
            expires = int.from_bytes(cursor.named(4, EXPIRY), "little", signed=True) * 1000
        else:
            key = Key(database, cursor.text("key's name"))
            cursor.record = record_of(code, key)
            if key in found.entries:
                raise RdbError(f"at {cursor.at}: {key} comes twice")
            start = cursor.at
            found.places[key] = Place(begin, len(cursor.content))
            found.entries[key] = Entry(value_of(code, cursor), expires)
            found.types[key], found.raw[key] = code, cursor.content[start : cursor.at]
            found.places[key] = Place(begin, cursor.at)
            expires = None
            cursor.record = ""
        begin = begin if code in _OF_THE_KEY else -1


def _auxiliary(cursor: Cursor, found: Rdb) -> None:
    name = cursor.text("name of auxiliary data")
    found.auxiliary[name] = cursor.text("auxiliary data")


_BESIDE: dict[int, Callable[[Cursor, Rdb], object]] = {
    _RESIZE: lambda cursor, _: (cursor.length(), cursor.length()),
    _AUX: _auxiliary,
    _FUNCTION: lambda cursor, found: found.functions.append(cursor.text("library of functions")),
    _MODULE_AUX: lambda cursor, found: found.modules.append(_auxiliary_of_a_module(cursor)),
}
"""What a file has beside its keys."""


def read_dump(payload: bytes) -> tuple[int, Value]:
    """What DUMP answers: the RDB version, and the value. Raises RdbError."""
    version, value, _ = read_dump_in_parts(payload)
    return version, value


def read_dump_in_parts(payload: bytes) -> tuple[int, Value, list[Part]]:
    """The same, and its pieces."""
    body, version, stored = payload[:-10], payload[-10:-8], payload[-8:]
    cursor = Cursor(body)
    with _refusing(cursor):
        value = value_of(cursor.byte(), cursor)
    if cursor.at != len(body):
        raise RdbError(f"{len(body) - cursor.at} bytes follow the value")
    ends = [Part(len(body), len(body) + 2, "RDB version"), Part(len(body) + 2, len(payload), CHECKSUM)]
    cursor.parts += ends
    with _refusing(cursor):
        _checksum(payload[:-8], stored)
    return int.from_bytes(version, "little"), value, cursor.parts


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
    blob = cursor.text("intset")
    width, count = struct.unpack_from("<II", blob)
    if width not in {2, 4, 8} or len(blob) != 8 + width * count:
        raise RdbError(f"an intset of {len(blob)} bytes says {count} integers of {width} bytes")
    values = [int.from_bytes(blob[at : at + width], "little", signed=True) for at in range(8, len(blob), width)]
    if sorted(set(values)) != values:
        raise RdbError(f"an intset is not in order: {values[:10]}")
    return _members([b"%d" % value for value in values])


def _quicklist(cursor: Cursor) -> Sequence:
    return Sequence(tuple(item for _ in range(cursor.length()) for item in ziplist(cursor.text("ziplist"))))


def _quicklist2(cursor: Cursor) -> Sequence:
    items: list[bytes] = []
    for _ in range(cursor.length()):
        container = cursor.length()
        if container not in {1, 2}:
            raise RdbError(f"at {cursor.at}: no node has the container {container}")
        node = cursor.text("string" if container == 1 else "listpack")
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
    flat = listpack(cursor.text("listpack"))
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


def single(value: float) -> float:
    """A double, rounded to single precision."""
    return (
        float(struct.unpack("<f", struct.pack("<f", value))[0])
        if abs(value) < _GREATEST_SINGLE
        else math.copysign(math.inf, value)
    )


_GREATEST_SINGLE = 3.4028235677973366e38
"""From here on a double is rounded to an infinity of single precision: 2^128 less half a unit of its last place."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def _module_name(number: int) -> tuple[str, int]:
    """A type's number: nine letters of six bits each, the first one uppermost, then ten bits of encoding version."""
    name = "".join(_LETTERS[number >> 10 + 6 * place & 63] for place in range(8, -1, -1))
    return name, number & 1023


def _module_items(cursor: Cursor) -> tuple[int | float | bytes, ...]:
    """Each item behind a number that says what it is, up to the number 0 (rdb.h, RDB_MODULE_OPCODE_*)."""
    items: list[int | float | bytes] = []
    while code := cursor.length():
        if code in {1, 2}:
            items.append(cursor.length())
        elif code == 3:
            items.append(cursor.single())
        elif code == 4:
            items.append(cursor.double())
        elif code == 5:
            items.append(cursor.text("module's text"))
        else:
            raise RdbError(f"at {cursor.at}: a module saves nothing with the number {code}")
    return tuple(items)


def _foreign(cursor: Cursor) -> Foreign:
    name, encoding = _module_name(cursor.length())
    return Foreign(name, encoding, _module_items(cursor))


def _auxiliary_of_a_module(cursor: Cursor) -> Foreign:
    """Its type's number, when it is to be read, its items."""
    name, encoding = _module_name(cursor.length())
    if cursor.length() != 2:
        raise RdbError(f"at {cursor.at}: a whole number is due, which says when auxiliary data is to be read")
    when = cursor.length()
    return Foreign(name, encoding, _module_items(cursor), when)


_READERS: dict[int, Callable[[Cursor], Value]] = {
    0: lambda cursor: Text(cursor.text()),
    1: lambda cursor: Sequence(tuple(_texts(cursor))),
    2: lambda cursor: _members(_texts(cursor)),
    3: _old_scores,
    4: lambda cursor: Fields(_pairs(_texts(cursor, 2))),
    5: _scores,
    7: _foreign,
    9: lambda cursor: Fields(zipmap(cursor.text("zipmap"))),
    10: lambda cursor: Sequence(tuple(ziplist(cursor.text("ziplist")))),
    11: _intset,
    12: lambda cursor: _packed_scores(ziplist(cursor.text("ziplist"))),
    13: lambda cursor: Fields(_pairs(ziplist(cursor.text("ziplist")))),
    14: _quicklist,
    15: lambda cursor: streams.read(cursor, 1),
    16: lambda cursor: Fields(_pairs(listpack(cursor.text("listpack")))),
    17: lambda cursor: _packed_scores(listpack(cursor.text("listpack"))),
    18: _quicklist2,
    19: lambda cursor: streams.read(cursor, 2),
    20: lambda cursor: _members(listpack(cursor.text("listpack"))),
    21: lambda cursor: streams.read(cursor, 3),
    22: _hash2,
    24: _hash_with_times,
    25: _listpack_with_times,
}
COMPACT_TYPES = frozenset({0, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 25})
"""Types that are written in one way only: the same commands give the same bytes on every machine."""
ORDERED_TYPES = COMPACT_TYPES | {1, 3, 5}
"""Types whose items come in an order of their own: not as a hash table has them, which is another one every time."""
_TYPE_NAMES = {
    "string": {0},
    "list": {1, 10, 14, 18},
    "set": {2, 11, 20},
    "sorted set": {3, 5, 12, 17},
    "hash": {4, 9, 13, 16, 22, 24, 25},
    "stream": {15, 19, 21},
    "module's value": {7},
}


def in_record(what: str, record: str) -> str:
    """A part of a record, named."""
    if not record or not what:
        return what or record
    return f"{what} {'of' if what == EXPIRY else 'in'} {record}"


def record_of(kind: int, key: Key) -> str:
    """A record, named: `sorted set 'z' of database 0`."""
    what = next((name for name, kinds in _TYPE_NAMES.items() if kind in kinds), f"type {kind}")
    return f"{what} {key.name[:60].decode('latin-1')!r} of database {key.database}"
