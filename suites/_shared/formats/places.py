"""Finds the bytes of a wrong value: the file, the record, its part and its writer, and how to reproduce it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from harness.core.byte_diff import DifferenceError, excerpt, parted
from harness.core.finding import Difference, Reproduction
from harness.protocol.command_stream import command, line_of
from suites._shared.formats import rdb, records
from suites._shared.formats.cursor import CutPart, RdbError
from suites._shared.formats.streams import IDENTIFIER
from suites._shared.keyspace import dataset, server
from suites._shared.keyspace.values import Key, Stream, differences

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest
    from suites._shared.formats.rdb import Rdb
    from suites._shared.keyspace.values import KeyEntry

READER = "an independent reader"
FILE = "dump.rdb"
SHOWN = 5
_AROUND_BYTES = 24
"""Number of bytes on either side of a wrong byte that a reproduction must show again."""
WRITERS = {
    records.EXPIRY: "rdbSaveMillisecondTime",
    "time": "rdbSaveMillisecondTime",
    "double": "rdbSaveBinaryDoubleValue",
    "length or number": "rdbSaveLen",
    "integer of 1 byte": "rdbEncodeInteger",
    "integer of 2 bytes": "rdbEncodeInteger",
    "integer of 4 bytes": "rdbEncodeInteger",
    "intset": "_intsetSet",
    IDENTIFIER: "streamEncodeID",
}
"""Part -> the only function of rdb.c, intset.c or t_stream.c that writes its bytes, in every release that has it.

Listpacks and checksums are missing, because several functions write them.
"""


class Bytes(NamedTuple):
    """A file or payload, and the pieces read from it."""

    content: bytes
    parts: list[CutPart]


class Divergence(NamedTuple):
    """The place where a record differs from the expected one."""

    offset: int
    what: str
    """The part of the format; empty if only the record is known."""
    expected: str
    actual: str
    window: bytes
    """The wrong bytes, with some neighbours."""


def _part_at(parts: list[CutPart], offset: int) -> str:
    return next((part.what for part in parts if part.start <= offset < part.end), "type")


def _divergence(wrong: Bytes, start: int, end: int, right: bytes) -> Divergence:
    """The place of the first difference from the expected record; `start` and `end` delimit the wrong one."""
    at = start + max(parted(right, wrong.content[start:end]), 0)
    window = wrong.content[max(start, at - _AROUND_BYTES) : min(end, at + _AROUND_BYTES)]
    due = excerpt(right, at - start)
    return Divergence(at, _part_at(wrong.parts, at), due, excerpt(wrong.content[:end], at), window)


def _record(found: Rdb, key: Key, right: bytes | None, content: bytes) -> Divergence:
    """The place in a key's record. `right`: the same key's bytes from another machine, if they are comparable."""
    place = found.places.get(key)
    if place is None:
        return Divergence(-1, "", "", "", b"")
    if right is None:
        return Divergence(place.start, "", "", excerpt(content, place.start), b"")
    return _divergence(Bytes(content, found.parts), place.start, place.end, right)


def _bytes_of(content: bytes, found: Rdb, key: Key, kind: int | None) -> bytes | None:
    """A key's record, if the key has that type (None: any type) and the type fixes the order of the items."""
    ordered = key in found.types and found.types[key] in records.ORDERED_TYPES
    if not ordered or kind not in {None, found.types[key]}:
        return None
    place = found.places[key]
    return content[place.start : place.end]


def _first(wrong: list[Key], found: Rdb) -> Key:
    """The key to report: preferably one whose bytes can be compared."""
    ranked = sorted(wrong, key=lambda key: (found.types.get(key) not in records.ORDERED_TYPES, key.database, key.name))
    return ranked[0]


def _name(key: Key, found: Rdb, expected: KeyEntry | None) -> str:
    if key in found.types:
        return records.record_of(found.types[key], key)
    return (
        f"{type(expected.value).__name__.lower() if expected else 'key'} {key.name[:60]!r} of database {key.database}"
    )


def _making(version: tuple[int, ...], family: str, key: Key, *, then: tuple[Any, ...]) -> tuple[str, ...]:
    """The requests that make one key of the data set, followed by the request that shows it."""
    made = [item.commands for item in dataset.items(version, family) if item.key == key]
    select = [("SELECT", key.database)] if key.database else []
    return tuple(line_of(command(*words)) for words in [*select, *(made[0] if made else ()), then])


def _fail(
    message: str, at: Divergence, record: str, where: str, writer: str, reader: str, again: Reproduction | None
) -> NoReturn:
    function = WRITERS.get(at.what, "") if reader == READER else ""
    raise DifferenceError(
        message,
        Difference(
            where=where,
            record=records.in_record(at.what, record) if record else at.what,
            writer=writer,
            reader=reader,
            offset=at.offset,
            expected=at.expected,
            actual=at.actual,
            function=function,
        ),
        again if again is not None and again.wrong else None,
    )


def message_of(lines: list[str]) -> str:
    """The message about several keys, which shows the first ones."""
    return f"{len(lines)} keys differ: " + "; ".join(lines[:SHOWN])


def check_file(content: bytes, other: bytes, *, writer: str, version: tuple[int, ...], family: str) -> Rdb:
    """Read a target's file, which must hold the data set. `other`: a file with the right bytes, from another machine.

    Raises DifferenceError.
    """
    expected = dataset.expected(version, family)
    try:
        found = rdb.read(content)
        lines, broken = differences(expected, found.entries), None
    except RdbError as error:
        found, lines, broken = error.found, [str(error)], error  # type: ignore[assignment]
    if not lines:
        return found
    if broken is not None and (found is None or broken.record in {"", rdb.CHECKSUM}):
        at = Divergence(broken.at, broken.record, "", excerpt(content, max(broken.at, 0)), b"")
        _fail(lines[0], at, "", FILE, writer, READER, None)
    # The reader stopped in the last record.
    wrong = [key for key in expected.keys() | found.entries.keys() if expected.get(key) != found.entries.get(key)]
    key = list(found.places)[-1] if broken is not None else _first(wrong, found)
    other_contents = _or_nothing(other)
    right = _bytes_of(other, other_contents, key, found.types.get(key)) if other_contents else None
    at = _record(found, key, right, content)
    if broken is not None and right is None:
        # If there are no bytes to compare with, the place is where the reader stopped.
        there = max(broken.at, 0)
        window = content[there : there + _AROUND_BYTES]
        at = Divergence(there, _part_at(found.parts, there), "", excerpt(content, there), window)
    requests = _making(version, family, key, then=("SAVE",))
    again = Reproduction(
        target=writer, requests=requests, wrong=at.window.hex(), file=FILE, options=tuple(server.OPTIONS)
    )
    name = _name(key, other_contents if broken is not None and other_contents else found, expected.get(key))
    message = lines[0] if broken is not None else message_of(lines)
    _fail(message, at, name, FILE, writer, READER, again)


def _or_nothing(content: bytes) -> Rdb | None:
    try:
        return rdb.read(content)
    except RdbError:
        return None


def check_dump(payload: bytes, other: bytes, key: Key, *, writer: str, version: tuple[int, ...], family: str) -> int:
    """Read a payload of DUMP, which must hold the key's value; returns its version. `other`: another machine's payload.

    Raises DifferenceError.
    """
    due = dataset.expected(version, family)[key].value
    try:
        stored, value, parts = rdb.read_dump(payload)
        message = f"it holds {value!r:.200}"
    except RdbError as error:
        stored, value, parts = 0, None, [CutPart(max(error.at, 0), len(payload), error.record)]
        message = str(error)
    if value == due:
        return stored
    comparable = payload[0] == other[0] and payload[0] in records.ORDERED_TYPES
    at = _divergence(Bytes(payload, parts), 0, len(payload), other if comparable else payload)
    again = Reproduction(
        target=writer, requests=_making(version, family, key, then=("DUMP", key.name)), wrong=at.window.hex()
    )
    where = f"reply to DUMP {key.name[:60].decode('latin-1')!r}"
    _fail(f"{where}: {message}", at, records.record_of(payload[0], key), where, writer, READER, again)


def check_same(content: bytes, other: bytes, *, writer: str, other_writer: str) -> None:
    """Require the same bytes from two machines for those parts of the data set that have only one form.

    Raises DifferenceError.
    """
    own_file, other_file = rdb.read(content), rdb.read(other)
    wrong = []
    for key, raw in own_file.raw.items():
        value = own_file.entries[key].value
        # Groups include the time of an entry's delivery.
        by_the_clock = isinstance(value, Stream) and value.groups
        if own_file.types[key] in records.COMPACT_TYPES and raw != other_file.raw.get(key) and not by_the_clock:
            wrong.append(key)
    if not wrong:
        return
    key = wrong[0]
    place, other_place = own_file.places[key], other_file.places.get(key)
    right = other[other_place.start : other_place.end] if other_place else b""
    at = _divergence(Bytes(content, own_file.parts), place.start, place.end, right)
    named = f"the bytes of {len(wrong)} values differ: {', '.join(str(one) for one in wrong[:SHOWN])}"
    _fail(named, at, records.record_of(own_file.types[key], key), FILE, writer, other_writer, None)


def check_loaded(
    guest: Guest,
    content: bytes,
    *,
    writer: str,
    cell: CellSpec,
    family: str,
) -> None:
    """Require that a server has loaded a target's file: its replies and the file that it saves must be the data set.

    Raises DifferenceError, AssertionError, RdbError.
    """
    expected = dataset.expected(cell.version, family)
    lines = differences(server.without_times(expected, cell), server.snapshot(guest))
    saved = server.saved(guest)
    # The saved file has all values again, and times of expiry, which no command before 7.0 reports.
    saved_file = rdb.read(saved)
    lines = lines or differences(expected, saved_file.entries)
    if not lines:
        return
    reader, loaded_file = guest.runner.target.name, rdb.read(content)
    wrong = [
        key for key in expected.keys() | saved_file.entries.keys() if expected.get(key) != saved_file.entries.get(key)
    ]
    key = _first(wrong or list(expected), saved_file)
    right = _bytes_of(content, loaded_file, key, saved_file.types.get(key))
    saved_at = _record(saved_file, key, right, saved)
    inside = saved_at.offset - saved_file.places[key].start if key in saved_file.places else 0
    start = loaded_file.places[key].start if key in loaded_file.places else 0
    what = _part_at(loaded_file.parts, start + inside) if right is not None else ""
    at = saved_at._replace(offset=start + inside, what=what)
    again = Reproduction(
        target=reader,
        requests=(line_of(command("SAVE")),),
        wrong=at.window.hex(),
        file=FILE,
        guest=_folder(guest, cell),
        options=tuple(guest.options),
    )
    _fail(message_of(lines), at, _name(key, loaded_file, expected.get(key)), FILE, writer, reader, again)


def check_copies(expected: dict[Key, KeyEntry], copied: dict[Key, KeyEntry], primary: Guest, replica: Guest) -> None:
    """Require that a replica has the data of its primary. Raises DifferenceError with the bytes of DUMP."""
    lines = differences(expected, copied)
    if not lines:
        return
    wrong = [key for key in expected.keys() | copied.keys() if expected.get(key) != copied.get(key)]
    key = min(wrong, key=lambda one: (one.database, one.name))
    right, payload = (_dumped(guest, key) for guest in (primary, replica))
    record = f"key {key.name[:60].decode('latin-1')!r} of database {key.database}"
    at = Divergence(-1, "", "", "", b"")
    if right is not None and payload is not None:
        record = records.record_of(right[0], key)
        if right[0] == payload[0] and right[0] in records.ORDERED_TYPES:
            at = _divergence(Bytes(right, rdb.read_dump(right)[2]), 0, len(right), payload)
            at = at._replace(expected=at.actual, actual=at.expected)
    names = [guest.runner.target.name for guest in (primary, replica)]
    where = f"reply to DUMP {key.name[:60].decode('latin-1')!r}"
    _fail(message_of(lines), at, record, where, names[0], names[1], None)


def _dumped(guest: Guest, key: Key) -> bytes | None:
    with server.client(guest) as client:
        client.command("SELECT", key.database)
        reply = client.command("DUMP", key.name)
    return reply if isinstance(reply, bytes) else None


def _folder(guest: Guest, cell: CellSpec) -> str:
    return str(guest.folder.relative_to(cell.folder))
