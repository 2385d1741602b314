"""Streams in RDB files: listpacks of entries by their first identifier, then the stream's state and its groups.

The format is that of stream.h, t_stream.c and rdb.c. The reader refuses contradictions: wrong counts of entries and of
deleted entries, and pending entries that only the group or only its consumers list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from suites._shared.formats.encodings import EncodingError, demand, listpack
from suites._shared.keyspace.values import ConsumerGroup, Pending, Stream

if TYPE_CHECKING:
    from suites._shared.formats.cursor import Cursor
    from suites._shared.keyspace.values import Identifier

_DELETED, _SAME_FIELDS = 1, 2
IDENTIFIER = "identifier"
_Entry = tuple["Identifier", tuple[bytes, ...]]


def read(cursor: Cursor, layout: int) -> Stream:
    """A stream in the first, second (7.0) or third (7.2) layout. Raises EncodingError or the cursor's own error."""
    entries: list[_Entry] = []
    for _ in range(cursor.length()):
        first = cursor.text(IDENTIFIER)
        demand(len(first) == 16, f"a node's key has {len(first)} bytes")
        # Radix trees order by bytes: identifiers are big-endian on every machine.
        master = int.from_bytes(first[:8], "big"), int.from_bytes(first[8:], "big")
        entries += _node(master, listpack(cursor.text("listpack")))
    count = cursor.length()
    demand(count == len(entries), f"{len(entries)} entries, {count} expected")
    last = cursor.length(), cursor.length()
    greatest, added = (0, 0), 0
    if layout > 1:
        first_entry = cursor.length(), cursor.length()
        demand(not entries or first_entry == entries[0][0], f"the first entry is not {first_entry}")
        greatest, added = (cursor.length(), cursor.length()), cursor.length()
    groups = {}
    for _ in range(cursor.length()):
        name = cursor.text()
        groups[name] = _group(cursor, layout)
    return Stream(entries=tuple(entries), last=last, groups=groups, deleted=greatest, added=added)


def _node(master: Identifier, items: list[bytes]) -> list[_Entry]:
    alive, deleted, width = int(items[0]), int(items[1]), int(items[2])
    fields = items[3 : 3 + width]
    demand(items[3 + width] == b"0", "no terminator after the master entry")
    at = 4 + width
    found: list[_Entry] = []
    gone = 0
    while at < len(items):
        flags, milliseconds, sequence = (int(item) for item in items[at : at + 3])
        start, at = at, at + 3
        if flags & _SAME_FIELDS:
            flat = [part for pair in zip(fields, items[at : at + width], strict=True) for part in pair]
            at += width
        else:
            size = 2 * int(items[at])
            flat = items[at + 1 : at + 1 + size]
            at += 1 + size
        demand(int(items[at]) == at - start, f"an entry of {at - start} elements declares {items[at]!r}")
        at += 1
        if flags & _DELETED:
            gone += 1
        else:
            # Both are stored as differences of 64 bits, which wrap.
            one = (master[0] + milliseconds) % (1 << 64), (master[1] + sequence) % (1 << 64)
            found.append((one, tuple(flat)))
    demand(
        (alive, deleted) == (len(found), gone),
        f"{len(found)} entries and {gone} deleted; the node says {alive} and {deleted}",
    )
    return found


def _identifier(cursor: Cursor) -> Identifier:
    raw = cursor.named(16, IDENTIFIER)
    return int.from_bytes(raw[:8], "big"), int.from_bytes(raw[8:], "big")


def _group(cursor: Cursor, layout: int) -> ConsumerGroup:
    last = cursor.length(), cursor.length()
    read = cursor.length() if layout > 1 else -1
    pending = {}
    for _ in range(cursor.length()):
        entry = _identifier(cursor)
        delivered = cursor.milliseconds()
        pending[entry] = Pending(entry, deliveries=cursor.length(), delivered=delivered)
    consumers, seen = {}, {}
    for _ in range(cursor.length()):
        name = cursor.text()
        seen[name] = cursor.milliseconds()
        if layout > 2:
            cursor.milliseconds()
        consumers[name] = tuple(_identifier(cursor) for _ in range(cursor.length()))
    listed = [one for ids in consumers.values() for one in ids]
    if len(listed) != len(pending) or set(listed) != pending.keys():
        raise EncodingError("the group and its consumers do not list the same pending entries")
    return ConsumerGroup(
        last=last,
        pending={name: tuple(pending[one] for one in ids) for name, ids in consumers.items()},
        # The number is signed, but is saved as a length.
        read=read - (1 << 64) if read >> 63 else read,
        seen=seen,
    )
