"""RDB files of every version up to 9, as servers of both byte orders wrote them, made by hand, and what they contain.

No server that runs today writes most of them, and no big-endian one of those years can be had. All numbers have a fixed
byte order but the times: seconds always have that of the machine, milliseconds until version 9 (Redis 5.0).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from harness.core.target_model import Endianness
from suites._shared.formats.encodings import intset
from suites._shared.formats.handmade import (
    AUX,
    DOUBLES,
    EXPIRE,
    EXPIRE_MS,
    HASH,
    LIST,
    RESIZEDB,
    SCORES,
    SELECT,
    SET,
    STRING,
    file,
    length,
    one,
    pair,
    text,
)
from suites._shared.keyspace.values import Fields, Key, KeyEntry, Members, Scores, Sequence, Text, score

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from suites._shared.keyspace.values import Value

ZIPMAP, ZIPLIST, INTSET, ZIPLIST_SCORES, ZIPLIST_HASH, QUICKLIST = range(9, 15)
COMPACT, MILLISECONDS, PACKED_HASHES, QUICKLISTS, EXACT_SCORES, PORTABLE_TIMES = 2, 3, 4, 7, 8, 9
"""The first versions with compact encodings, with times in milliseconds, with hashes in ziplists, with quicklists and
auxiliary fields, with scores of 8 bytes, and with milliseconds in one byte order.
"""
VERSIONS = range(1, PORTABLE_TIMES + 1)
SECONDS = 0x7F00007E
"""A moment of 2037. Read in the other byte order, it is one of 2036."""
MOMENT = 0x123456781100
"""Milliseconds, a moment of the 27th century. Read in the other byte order, it is a later one."""
DATABASE = 9


class OldFile(NamedTuple):
    """A file, and its keys as a machine of one byte order loads them."""

    content: bytes
    entries: dict[Key, KeyEntry]


class _Record(NamedTuple):
    """A value of some type, since which version it is written, and its bytes."""

    name: str
    since: int
    kind: int
    value: Value
    content: bytes


def old_file(version: int, writer: Endianness, reader: Endianness) -> OldFile:
    """The file of a version from a machine of the writer's byte order, and its data to a reader."""
    parts = [one(AUX, text(b"redis-bits"), text(b"32"))] if version >= QUICKLISTS else []
    entries = {}
    for database, records in ((0, _RECORDS), (DATABASE, _RECORDS[:1])):
        kept = [record for record in records if record.since <= version]
        moments: list[tuple[str, bytes, int]] = [("seconds", *_seconds(writer, reader))]
        moments += [("milliseconds", *_milliseconds(version, writer, reader))] if version >= MILLISECONDS else []
        parts.append(one(SELECT, length(database)))
        if version >= QUICKLISTS:
            parts.append(one(RESIZEDB, length(len(kept) + len(moments)), length(len(moments))))
        for record in kept:
            parts.append(pair(record.kind, record.content, record.name.encode()))
            entries[Key(database, record.name.encode())] = KeyEntry(record.value)
        for name, before, moment in moments:
            parts += [before, pair(STRING, text(b"v"), name.encode())]
            entries[Key(database, name.encode())] = KeyEntry(Text(b"v"), moment)
    return OldFile(file(*parts, version=version), entries)


def _seconds(writer: Endianness, reader: Endianness) -> tuple[bytes, int]:
    """The opcode and the seconds of the writer, and the milliseconds that the reader takes them for."""
    content = SECONDS.to_bytes(4, _order(writer))
    return one(EXPIRE, content), 1000 * int.from_bytes(content, _order(reader))


def _milliseconds(version: int, writer: Endianness, reader: Endianness) -> tuple[bytes, int]:
    """The opcode and the milliseconds of the writer, and those that the reader takes them for."""
    fixed: Literal["little"] | None = "little" if version >= PORTABLE_TIMES else None
    content = MOMENT.to_bytes(8, fixed or _order(writer))
    return one(EXPIRE_MS, content), int.from_bytes(content, fixed or _order(reader))


def _order(endianness: Endianness) -> Literal["little", "big"]:
    return "big" if endianness is Endianness.BIG else "little"


def _zipmap(fields: dict[bytes, bytes]) -> bytes:
    """A count, for each field its name and its value, and 0xFF. One free byte follows each value."""
    packed = b"".join(
        _zipmap_length(name) + name + _zipmap_length(value) + b"\x01" + value + b"?" for name, value in fields.items()
    )
    return bytes([len(fields)]) + packed + b"\xff"


def _zipmap_length(content: bytes) -> bytes:
    return bytes([len(content)]) if len(content) < 254 else b"\xfe" + struct.pack("<I", len(content))


def _ziplist(items: Iterable[bytes]) -> bytes:
    """Its size, the offset of its last entry, the number of entries, the entries, and 0xFF. Each entry begins with the
    size of the one before it.
    """
    packed, before, last, count = b"", 0, 0, 0
    for item in items:
        entry = (bytes([before]) if before < 254 else b"\xfe" + struct.pack("<I", before)) + _ziplist_content(item)
        last, before, count = len(packed), len(entry), count + 1
        packed += entry
    return struct.pack("<IIH", 10 + len(packed) + 1, 10 + last, count) + packed + b"\xff"


def _ziplist_content(item: bytes) -> bytes:
    """An integer of 8, 16, 32 or 64 bits, as every version wrote them, or a string."""
    if item.lstrip(b"-").isdigit():
        number = int(item)
        for code, size in ((0xC0, 2), (0xD0, 4), (0xE0, 8)):
            if -(1 << 8 * size - 1) <= number < 1 << 8 * size - 1:
                return bytes([code]) + number.to_bytes(size, "little", signed=True)
    if len(item) < 1 << 6:
        return bytes([len(item)]) + item
    if len(item) < 1 << 14:
        return struct.pack(">H", 0x4000 | len(item)) + item
    return b"\x80" + struct.pack(">I", len(item)) + item


_NUMBERS = [-3, 40, -300, 30_000, -70_000, 1 << 30, -(1 << 40), (1 << 63) - 1]
_ITEMS = (*(b"%d" % number for number in _NUMBERS), b"a", b"b" * 70, b"c" * 300, b"d" * 17_000, b"last")
_FIELDS = {b"f": b"v", b"n" * 254: b"long" * 100, b"number": b"-70000"}
_SCORES = {b"-7": -1.5, b"m": 0.25, b"x" * 300: 70_000.0}
_MEMBERS = tuple(b"%d" % number for number in _NUMBERS)

_LISTED = [item for member, number in _SCORES.items() for item in (member, b"%.17g" % number)]
_HASHED = [item for field in _FIELDS.items() for item in field]
_STORED = Scores({member: score(number) for member, number in _SCORES.items()})


def _texts(items: Iterable[bytes]) -> bytes:
    """Their number, and each."""
    every = [text(item) for item in items]
    return length(len(every)) + b"".join(every)


def _scored(pack: Literal["text", "double"]) -> bytes:
    def packed(number: float) -> bytes:
        said = b"%.17g" % number
        return struct.pack("<d", number) if pack == "double" else bytes([len(said)]) + said

    return length(len(_SCORES)) + b"".join(text(member) + packed(number) for member, number in _SCORES.items())


_RECORDS = (
    _Record("string", 1, STRING, Text(b"v" * 20_000), text(b"v" * 20_000)),
    _Record("integer of 8 bits", 1, STRING, Text(b"-100"), b"\xc0" + struct.pack("<b", -100)),
    _Record("integer of 16 bits", 1, STRING, Text(b"-30000"), b"\xc1" + struct.pack("<h", -30_000)),
    _Record("integer of 32 bits", 1, STRING, Text(b"2000000001"), b"\xc2" + struct.pack("<i", 2_000_000_001)),
    _Record("compressed", 1, STRING, Text(b"a" * 11), b"\xc3" + length(5) + length(11) + b"\x00a\xe0\x01\x00"),
    _Record("list", 1, LIST, Sequence(_ITEMS), _texts(_ITEMS)),
    _Record("set", 1, SET, Members(frozenset(_ITEMS)), _texts(_ITEMS)),
    _Record("scores", 1, SCORES, _STORED, _scored("text")),
    _Record("hash", 1, HASH, Fields(_FIELDS), length(len(_FIELDS)) + b"".join(text(item) for item in _HASHED)),
    _Record("zipmap", COMPACT, ZIPMAP, Fields(_FIELDS), text(_zipmap(_FIELDS))),
    _Record("ziplist", COMPACT, ZIPLIST, Sequence(_ITEMS), text(_ziplist(_ITEMS))),
    _Record("intset", COMPACT, INTSET, Members(frozenset(_MEMBERS)), text(intset(_NUMBERS))),
    _Record("small intset", COMPACT, INTSET, Members(frozenset([b"-2", b"300"])), text(intset([300, -2]))),
    _Record("packed scores", COMPACT, ZIPLIST_SCORES, _STORED, text(_ziplist(_LISTED))),
    _Record("packed hash", PACKED_HASHES, ZIPLIST_HASH, Fields(_FIELDS), text(_ziplist(_HASHED))),
    _Record("quicklist", QUICKLISTS, QUICKLIST, Sequence(_ITEMS), _texts([_ziplist(_ITEMS[:6]), _ziplist(_ITEMS[6:])])),
    _Record("exact scores", EXACT_SCORES, DOUBLES, _STORED, _scored("double")),
)
