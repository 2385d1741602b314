"""An independent reader of RDB files and DUMP payloads: it turns bytes into values and checks everything.

It follows the format of the servers' rdb.h and rdb.c, versions 1 to 12 (Redis) and 80 (Valkey). It also checks what a
server does not notice in its own file: every length, the byte order of every number, the checksum, and that no bytes
are left over. It raises RdbError with the offset.
"""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from suites._shared.checksums import crc64
from suites._shared.formats.cursor import Cursor, CutPart, RdbError
from suites._shared.formats.records import EXPIRY, auxiliary_of_a_module, in_record, record_of, value_of
from suites._shared.keyspace.values import Key, KeyEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from suites._shared.keyspace.values import Foreign, Value

CHECKSUM_SINCE = 5
"""The first RDB version with a checksum at the end."""
_EXPIRES_SECONDS, _EXPIRES_MILLISECONDS = 253, 252
_MODULE_AUX = 247
_SELECT, _RESIZE, _AUX, _FREQUENCY, _IDLE, _FUNCTION, _SLOT, _END = 254, 251, 250, 249, 248, 245, 244, 255
_HINTS = {_FREQUENCY, _IDLE}
_OF_THE_KEY = {_EXPIRES_SECONDS, _EXPIRES_MILLISECONDS, *_HINTS}
CHECKSUM = "checksum"


class RdbPlace(NamedTuple):
    """The place of a key's record, from its time of expiry or its type to the end of its value."""

    start: int
    end: int


class DatabaseSize(NamedTuple):
    """The number of keys in a database, the number of them that expire, and the offset of these numbers in the file."""

    keys: int
    expiring: int
    at: int


@dataclass
class Rdb:
    """A file's content."""

    version: int
    entries: dict[Key, KeyEntry] = field(default_factory=dict)
    types: dict[Key, int] = field(default_factory=dict)
    """How each value is written: RDB_TYPE_*."""
    raw: dict[Key, bytes] = field(default_factory=dict)
    """The bytes of each value, after its type and name."""
    places: dict[Key, RdbPlace] = field(default_factory=dict)
    parts: list[CutPart] = field(default_factory=list)
    """Every piece, in the order of the file."""
    auxiliary: dict[bytes, bytes] = field(default_factory=dict)
    functions: list[bytes] = field(default_factory=list)
    modules: list[Foreign] = field(default_factory=list)
    """Modules' auxiliary data."""
    sizes: dict[int, DatabaseSize] = field(default_factory=dict)
    """Database -> the number of its keys according to the file."""
    hints: list[int] = field(default_factory=list)
    """Each key's idle time in seconds, or its frequency from 0 to 255; empty unless the eviction policy uses one of
    them.
    """


def version_of(content: bytes) -> int:
    """The version in a file's header. Raises RdbError."""
    magic, digits = content[:5], content[5:9]
    if content[:6] == b"VALKEY":
        magic, digits = content[:6], content[6:9]
    if magic not in {b"REDIS", b"VALKEY"} or not digits.isdigit():
        raise RdbError(f"no RDB file begins with {content[:9]!r}")
    return int(digits)


def read(content: bytes) -> Rdb:
    """Read a whole file. Raises RdbError."""
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
    for database, declared in found.sizes.items():
        entries = [entry for key, entry in found.entries.items() if key.database == database]
        counted = len(entries), sum(entry.expires is not None for entry in entries)
        if declared[:2] != counted:
            wrong = RdbError(
                f"database {database} has (keys, keys that expire) {counted}, but the file says {declared[:2]}"
            )
            wrong.at, wrong.record = declared.at, f"number of keys of database {database}"
            raise wrong
    return found


@contextlib.contextmanager
def _refusing(cursor: Cursor, found: Rdb | None = None) -> Iterator[None]:
    """Convert a decoder's error into an RdbError about the part that was read last."""
    try:
        yield
    except (ValueError, IndexError, struct.error) as error:
        wrong = error if isinstance(error, RdbError) else RdbError(f"before {cursor.at}: {error}")
        part = cursor.parts[-1] if cursor.parts else CutPart(0, 0, "")
        wrong.at, wrong.record, wrong.found = part.start, in_record(part.what, cursor.record), found
        raise wrong from error


def _checksum(content: bytes, stored: bytes) -> None:
    computed = crc64(content)
    if stored not in {computed.to_bytes(8, "little"), bytes(8)}:
        raise RdbError(
            f"the checksum of the {len(content)} bytes is {computed:016x}, the file says {stored[::-1].hex()}"
        )


def _body(cursor: Cursor, found: Rdb) -> None:
    database, expires, begin = 0, None, -1
    while (code := cursor.byte()) != _END:
        # The parts before a type belong to its key.
        begin = cursor.at - 1 if begin < 0 else begin
        if code == _SELECT:
            database = cursor.length()
        elif code == _RESIZE:
            at = cursor.at
            found.sizes[database] = DatabaseSize(cursor.length(), cursor.length(), at)
        elif code in _BESIDE:
            _BESIDE[code](cursor, found)
        elif code in _HINTS:
            found.hints.append(cursor.byte() if code == _FREQUENCY else cursor.length())
        elif code == _EXPIRES_MILLISECONDS:
            expires = cursor.milliseconds(EXPIRY)
        elif code == _EXPIRES_SECONDS:
            expires = int.from_bytes(cursor.named(4, EXPIRY), "little", signed=True) * 1000
        else:
            key = Key(database, cursor.text("key's name"))
            cursor.record = record_of(code, key)
            if key in found.entries:
                raise RdbError(f"at {cursor.at}: {key} occurs twice")
            start = cursor.at
            found.places[key] = RdbPlace(begin, len(cursor.content))
            found.entries[key] = KeyEntry(value_of(code, cursor), expires)
            found.types[key], found.raw[key] = code, cursor.content[start : cursor.at]
            found.places[key] = RdbPlace(begin, cursor.at)
            expires = None
            cursor.record = ""
        begin = begin if code in _OF_THE_KEY else -1


def _auxiliary(cursor: Cursor, found: Rdb) -> None:
    name = cursor.text("name of auxiliary data")
    found.auxiliary[name] = cursor.text("auxiliary data")


_BESIDE: dict[int, Callable[[Cursor, Rdb], object]] = {
    # The number of a slot, of its keys, and of those that expire: nodes of Redis 8 write them.
    _SLOT: lambda cursor, _: (cursor.length(), cursor.length(), cursor.length()),
    _AUX: _auxiliary,
    _FUNCTION: lambda cursor, found: found.functions.append(cursor.text("library of functions")),
    _MODULE_AUX: lambda cursor, found: found.modules.append(auxiliary_of_a_module(cursor)),
}
"""The parts of a file that are not keys."""


def read_dump(payload: bytes) -> tuple[int, Value, list[CutPart]]:
    """Read a DUMP payload: the RDB version, the value, and the payload's pieces. Raises RdbError."""
    body, version, stored = payload[:-10], payload[-10:-8], payload[-8:]
    cursor = Cursor(body)
    with _refusing(cursor):
        value = value_of(cursor.byte(), cursor)
    if cursor.at != len(body):
        raise RdbError(f"{len(body) - cursor.at} bytes follow the value")
    ends = [CutPart(len(body), len(body) + 2, "RDB version"), CutPart(len(body) + 2, len(payload), CHECKSUM)]
    cursor.parts += ends
    with _refusing(cursor):
        _checksum(payload[:-8], stored)
    return int.from_bytes(version, "little"), value, cursor.parts
