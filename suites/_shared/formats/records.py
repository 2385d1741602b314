"""Reads the values of RDB records by their type number, and names records.

Types are numbered as in the servers' rdb.h: versions 1 to 12 (Redis) and 80 (Valkey). Streams have their own module.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from suites._shared.formats import streams
from suites._shared.formats.cursor import RdbError
from suites._shared.formats.encodings import listpack, ziplist, zipmap
from suites._shared.keyspace.values import Fields, Foreign, Members, Scores, Sequence, Text, score

if TYPE_CHECKING:
    from collections.abc import Callable

    from suites._shared.formats.cursor import Cursor
    from suites._shared.keyspace.values import Key, Value

EXPIRY = "time of expiry"
"""The part of a record that comes before its type."""


def value_of(kind: int, cursor: Cursor) -> Value:
    """The value that follows its type and its key's name."""
    if kind not in _READERS:
        raise RdbError(f"at {cursor.at}: unknown type {kind}")
    return _READERS[kind](cursor)


def _texts(cursor: Cursor, per_item: int = 1) -> list[bytes]:
    return [cursor.text() for _ in range(cursor.length() * per_item)]


def _pairs(flat: list[bytes]) -> dict[bytes, bytes]:
    found = dict(zip(flat[::2], flat[1::2], strict=True))
    if len(found) * 2 != len(flat):
        raise RdbError("a field or member occurs twice")
    return found


def _members(items: list[bytes]) -> Members:
    if len(set(items)) != len(items):
        raise RdbError("a member occurs twice")
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
        raise RdbError(f"an intset of {len(blob)} bytes declares {count} integers of {width} bytes")
    values = [int.from_bytes(blob[at : at + width], "little", signed=True) for at in range(8, len(blob), width)]
    if sorted(set(values)) != values:
        raise RdbError(f"an intset is not sorted: {values[:10]}")
    return _members([b"%d" % value for value in values])


def _quicklist(cursor: Cursor) -> Sequence:
    return Sequence(tuple(item for _ in range(cursor.length()) for item in ziplist(cursor.text("ziplist"))))


def _quicklist2(cursor: Cursor) -> Sequence:
    items: list[bytes] = []
    for _ in range(cursor.length()):
        container = cursor.length()
        if container not in {1, 2}:
            raise RdbError(f"at {cursor.at}: unknown container {container} of a node")
        node = cursor.text("string" if container == 1 else "listpack")
        items += [node] if container == 1 else listpack(node)
    return Sequence(tuple(items))


def _hash_with_times(cursor: Cursor) -> Fields:
    """Redis 7.4: the earliest time, then each field with one more than the distance from that time; 0 means never."""
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
    """Valkey 9: each field with its time, or -1."""
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
"""The smallest double that rounds to infinity in single precision: half a unit in the last place below 2^128."""


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def _module_name(number: int) -> tuple[str, int]:
    """The name and version in a type number: nine letters of six bits, most significant first, then ten bits of
    encoding version.
    """
    name = "".join(_LETTERS[number >> 10 + 6 * place & 63] for place in range(8, -1, -1))
    return name, number & 1023


def _module_items(cursor: Cursor) -> tuple[int | float | bytes, ...]:
    """Each item after its opcode, up to the opcode 0 (rdb.h, RDB_MODULE_OPCODE_*)."""
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
            raise RdbError(f"at {cursor.at}: unknown opcode {code} in a module's value")
    return tuple(items)


def _foreign(cursor: Cursor) -> Foreign:
    name, encoding = _module_name(cursor.length())
    return Foreign(name, encoding, _module_items(cursor))


def auxiliary_of_a_module(cursor: Cursor) -> Foreign:
    """The module's type number, the time at which to read the data, and the items."""
    name, encoding = _module_name(cursor.length())
    if cursor.length() != 2:
        raise RdbError(f"at {cursor.at}: expected the number that says when to read auxiliary data")
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
"""Types with only one form: the same commands produce the same bytes on every machine."""


ORDERED_TYPES = COMPACT_TYPES | {1, 3, 5}
"""Types whose items have a fixed order; the order of a hash table differs from run to run."""


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
    """The name of a part of a record."""
    if not record or not what:
        return what or record
    return f"{what} {'of' if what == EXPIRY else 'in'} {record}"


def record_of(kind: int, key: Key) -> str:
    """The name of a record: `sorted set 'z' of database 0`."""
    what = next((name for name, kinds in _TYPE_NAMES.items() if kind in kinds), f"type {kind}")
    return f"{what} {key.name[:60].decode('latin-1')!r} of database {key.database}"
