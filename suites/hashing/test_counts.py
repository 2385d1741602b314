"""Containers with more elements than the 16 bits of a count hold: the elements are counted, found, added and removed.

A listpack or a ziplist with 65,535 entries or more says only that it has that many (ziplist.c and the listpack
specification). An intset counts in 32 bits.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from suites._shared.checksums import sealed
from suites._shared.formats.handmade import text
from suites._shared.needs import skip_in_short_tiers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.run.cell_spec import CellSpec
    from suites._shared.paired_servers import PairedServers

UNKNOWN = 65535
"""The count of a list with that many entries or more."""
ROOM = 100_000
"""A limit that none of these containers exceeds."""
SETTINGS = [
    *(f"{kind}-max-{form}-entries" for kind in ("hash", "zset") for form in ("listpack", "ziplist")),
    "set-max-intset-entries",
    "stream-node-max-entries",
    "stream-node-max-bytes",
]
FIELDS = 1000
"""The number of an entry's fields in a stream."""
BATCH = 4096
LONG = "it moves 2^16 elements: only in the tiers full and thorough"


class PairType(NamedTuple):
    """A type whose container holds pairs of a name and a number. Pair i is (i - 16384, i % 100)."""

    made: Sequence[Any]
    """Makes a small one, whose payload begins with the number of its encoding."""
    size: str
    find: str
    remove: str
    add: Sequence[Any]
    """Adds another pair, the last one."""


PAIRS = {
    "hash": PairType(["HSET", "t", 1, 1], "HLEN", "HGET", "HDEL", ["HSET", "t", "another", 100]),
    "zset": PairType(["ZADD", "t", 1, 1], "ZCARD", "ZSCORE", "ZREM", ["ZADD", "t", 100, "another"]),
}
ZIPLISTS = {b"\x0c", b"\x0d"}
"""The encodings of sorted sets and hashes before 7.0, of rdb.h."""


def is_short(cell: CellSpec) -> bool:
    """Whether a test makes no copies, which take most of its time."""
    return cell.tier in {"quick", "kernel"}


@pytest.fixture(autouse=True)
def settings(both: PairedServers, cell: CellSpec) -> Iterator[None]:
    """Containers stay in one block, and what is restored is checked if there is time, where the server has such a
    setting.
    """
    names = [*SETTINGS, *([] if is_short(cell) else ["sanitize-dump-payload"])]
    before = {name: value for name in names if (value := _setting(both, name))}
    for name in before:
        limit = {"sanitize-dump-payload": "yes"}.get(name, 0 if name.startswith("stream") else ROOM)
        both.expect([["CONFIG", "SET", name, limit]], [b"OK"], name)
    yield
    both.ask([["FLUSHALL"], *(["CONFIG", "SET", *setting] for setting in before.items())])


def _setting(both: PairedServers, name: str) -> bytes | None:
    (found,) = both.ask([["CONFIG", "GET", name]])
    return found[1] if found else None  # type: ignore[index, return-value]


@pytest.mark.parametrize("pairs", [(UNKNOWN - 1) // 2, (UNKNOWN + 1) // 2], ids=["one less", "one more"])
@pytest.mark.parametrize("kind", PAIRS)
def test_a_list_counts_more_entries_than_its_count_can_say(
    both: PairedServers, kind: str, pairs: int, cell: CellSpec
) -> None:
    """A pair more and a pair less lead from each number of pairs across the limit."""
    one = PAIRS[kind]
    if kind != "hash" or 2 * pairs < UNKNOWN:
        skip_in_short_tiers(cell, LONG)
    (payload,) = both.ask([["DEL", "t"], one.made, ["DUMP", "t"]])[2:]
    assert isinstance(payload, bytes)
    first, last = -16384, pairs - 16385
    rows = [(number - 16384, number % 100) for number in range(pairs)]
    if kind == "zset":
        rows.sort(key=lambda row: (row[1], str(row[0])))
    entries = [value for row in rows for value in row]
    packed = (_ziplist if payload[:1] in ZIPLISTS else _listpack)(entries)
    both.expect([["RESTORE", "t", 0, sealed(payload[:1] + text(packed) + payload[-10:]), "REPLACE"]], [b"OK"], kind)
    what = f"{kind} of {pairs} pairs"
    last_number = b"%d" % ((pairs - 1) % 100)
    asked = [[one.size, "t"], [one.find, "t", first], [one.find, "t", last], [one.find, "t", pairs]]
    both.expect(asked, [pairs, b"0", last_number, None], what)
    both.expect([one.add, [one.size, "t"], [one.find, "t", "another"]], [1, pairs + 1, b"100"], f"{what} and one")
    if not is_short(cell):
        _expect_a_copy(both, one.size, pairs + 1)
    removed = [[one.remove, "t", first], [one.remove, "t", "another"], [one.size, "t"], [one.find, "t", last]]
    both.expect(removed, [1, 1, pairs - 1, last_number], f"{what} without the first")
    if not is_short(cell):
        _expect_a_copy(both, one.size, pairs - 1)


def _expect_a_copy(both: PairedServers, count: str, size: int) -> None:
    (dumped,) = both.ask([["DUMP", "t"]])
    both.expect([["RESTORE", "u", 0, dumped, "REPLACE"], [count, "u"]], [b"OK", size], f"a copy of {size}")


def _listpack(entries: list[int]) -> bytes:
    """A listpack of integers, each in the shortest form."""
    body = bytearray()
    for entry in entries:
        if 0 <= entry < 128:
            body += bytes([entry, 1])
        elif -(1 << 12) <= entry < 1 << 12:
            body += struct.pack(">HB", 0xC000 | entry & 0x1FFF, 2)
        else:
            body += struct.pack("<BhB", 0xF1, entry, 3)
    return struct.pack("<IH", 7 + len(body), min(len(entries), UNKNOWN)) + body + b"\xff"


def _ziplist(entries: list[int]) -> bytes:
    """A ziplist of integers, each in the shortest form."""
    body, before, last = bytearray(), 0, 0
    for entry in entries:
        if 0 <= entry <= 12:
            encoded = bytes([0xF1 + entry])
        elif -128 <= entry < 128:
            encoded = struct.pack("<Bb", 0xFE, entry)
        else:
            encoded = struct.pack("<Bh", 0xC0, entry)
        last = len(body)
        body += bytes([before]) + encoded
        before = 1 + len(encoded)
    return struct.pack("<IIH", 11 + len(body), 10 + last, min(len(entries), UNKNOWN)) + body + b"\xff"


def test_a_set_counts_more_integers_than_16_bits(both: PairedServers, cell: CellSpec) -> None:
    """All integers of 16 bits, and then one that needs 32."""
    skip_in_short_tiers(cell, LONG)
    both.ask([["DEL", "t"]])
    for start in range(-(1 << 15), 1 << 15, BATCH):
        both.expect([["SADD", "t", *range(start, start + BATCH)]], [BATCH], f"integers from {start} on")
    ends = [["SISMEMBER", "t", -(1 << 15)], ["SISMEMBER", "t", (1 << 15) - 1], ["SISMEMBER", "t", 1 << 15]]
    both.expect([["SCARD", "t"], *ends], [1 << 16, 1, 1, 0], "2^16 integers")
    both.expect([["SADD", "t", 1 << 15], ["SCARD", "t"], *ends], [1, (1 << 16) + 1, 1, 1, 1], "and one")
    _expect_a_copy(both, "SCARD", (1 << 16) + 1)
    both.expect([["SREM", "t", 0, 1 << 15], ["SCARD", "t"], *ends], [2, (1 << 16) - 1, 1, 1, 0], "less two")


def test_a_streams_node_has_more_values_than_a_count_can_say(both: PairedServers, cell: CellSpec) -> None:
    skip_in_short_tiers(cell, LONG)
    if not both.has("XADD"):
        pytest.skip("streams came with 5.0")
    both.ask([["DEL", "t"]])
    names = [b"%d" % number for number in range(FIELDS)]
    count = UNKNOWN // FIELDS + 2

    def entry(number: int) -> list[Any]:
        values = [b"%d" % (number + place) for place in range(FIELDS)]
        return [b"%d-1" % number, [word for pair in zip(names, values, strict=True) for word in pair]]

    def add(number: int) -> list[Any]:
        return ["XADD", "t", f"{number}-1", *entry(number)[1]]

    both.expect([add(number) for number in range(1, count + 1)], [b"%d-1" % n for n in range(1, count + 1)], "entries")
    both.expect([["XRANGE", "t", count - 1, "+"]], [[entry(count - 1), entry(count)]], "the last two")
    both.expect([["XREVRANGE", "t", "+", "-", "COUNT", 1]], [[entry(count)]], "the last one")
    both.expect([["XRANGE", "t", "-", 1], ["XLEN", "t"]], [[entry(1)], count], "the first one")
    both.expect([["XDEL", "t", "2-1", f"{count - 1}-1"], ["XLEN", "t"]], [2, count - 2], "without two")
    both.expect([["XRANGE", "t", count - 1, "+"]], [[entry(count)]], "the last of those that stay")
    _expect_a_copy(both, "XLEN", count - 2)
    both.expect([["XREVRANGE", "u", "+", "-", "COUNT", 1]], [[entry(count)]], "again the last one")
