"""A stream's index is a radix tree of entry numbers, most significant byte first, so entries keep their order. A
payload also preserves the stream's numbers that do not belong to entries.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from suites._shared.checksums import sealed
from suites._shared.formats import handmade

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from suites._shared.paired_servers import PairedServers

WITH_ACTIVE_TIMES = 21
"""The type of a saved stream whose consumers have two times (rdb.h)."""
EDGES = [1, 255, 256, 257, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**48 + 5, 2**63 - 1, 2**63, 2**64 - 1]


@pytest.fixture(autouse=True)
def _needs_streams(both: PairedServers) -> None:
    if not both.has("XADD"):
        pytest.skip("the server has no streams (they came with Redis 5.0)")


@pytest.fixture(params=[1, 3, 100])
def per_node(both: PairedServers, request: pytest.FixtureRequest) -> int:
    """The number of entries in one node of the tree."""
    (answer,) = both.ask([["CONFIG", "SET", "stream-node-max-entries", request.param]])
    assert answer == b"OK"
    entries: int = request.param
    return entries


@pytest.mark.usefixtures("per_node")
@pytest.mark.parametrize("half", ["milliseconds", "sequence"])
def test_a_stream_is_in_the_order_of_its_numbers(both: PairedServers, half: str) -> None:
    names = [f"{edge}-{edge % 7}" if half == "milliseconds" else f"5-{edge}" for edge in EDGES]
    both.ask([["DEL", "x"], *(["XADD", "x", name, "field", name] for name in names)])
    entries: list[Any] = [[name.encode(), [b"field", name.encode()]] for name in names]
    both.expect([["XRANGE", "x", "-", "+"], ["XREVRANGE", "x", "+", "-"]], [entries, entries[::-1]], "the whole stream")
    for number, name in enumerate(names):
        requests = [["XRANGE", "x", name, name], ["XRANGE", "x", name, "+"], ["XREVRANGE", "x", name, "-"]]
        both.expect(requests, [[entries[number]], entries[number:], entries[number::-1]], f"from {name}")
    both.expect([["XDEL", "x", names[3]], ["XLEN", "x"], ["XRANGE", "x", names[3], names[3]]], [1, 13, []], "deleted")
    rest = entries[:3] + entries[4:]
    both.expect([["XREAD", "STREAMS", "x", names[6]], ["XTRIM", "x", "MAXLEN", 2]], [[[b"x", rest[6:]]], 11], "trimmed")
    both.expect([["XRANGE", "x", "-", "+"]], [rest[-2:]], "the remaining entries")


@pytest.mark.usefixtures("per_node")
def test_many_entries_are_found_by_their_numbers(both: PairedServers) -> None:
    count = 300 * both.effort
    numbers = sorted({both.random.getrandbits(both.random.randrange(1, 64)) + 1 for _ in range(count)})
    both.ask([["XADD", "x", f"{number}-0", "f", number] for number in numbers])
    some = both.random.sample(numbers, 40)
    expected: list[Any] = [[[b"%d-0" % number, [b"f", b"%d" % number]]] for number in some]
    both.expect([["XRANGE", "x", f"{number}-0", f"{number}-0"] for number in some], expected, f"of {len(numbers)}")
    both.expect([["XLEN", "x"]], [len(numbers)], "all")


WIDE = [5, 0x81828384, 0x0102030405060708, 0x7172737475767778]
"""Numbers of 3 to 63 bits. Most of their bytes differ, so truncation, a shift or sign extension changes a number."""


@pytest.mark.parametrize("number", WIDE, ids=hex)
def test_every_number_of_a_stream_is_restored_as_it_was_saved(both: PairedServers, cell: CellSpec, number: int) -> None:
    """The payload contains numbers that no real stream reaches, such as lengths that need far more entries."""
    entry = f"{number}-{number + 1}"
    both.oracle.pipeline([["DEL", "x"], ["XADD", "x", entry, "f", "v"]])
    made = both.oracle.command("DUMP", "x")
    assert isinstance(made, bytes)
    kind, after = made[0], made.index(entry_bytes(number)) + 16
    # One node with its key and its entries, which are too short for compression.
    node = made[1 : after + 1 + made[after]]
    last = b"".join(map(handmade.length, [number, number + 3]))
    later = not cell.lacks("form XSETID ENTRIESADDED")
    if later:
        last += b"".join(map(handmade.length, [number, number + 1, number - 1, number + 4, number + 5]))
    group = handmade.text(b"group") + handmade.length(number) + handmade.length(number + 1)
    if later:
        group += handmade.length(number + 6)
    pending = entry_bytes(number) + struct.pack("<q", number + 7) + handmade.length(number + 8)
    consumer = handmade.text(b"consumer") + struct.pack("<q", number + 9)
    if kind == WITH_ACTIVE_TIMES:
        consumer += struct.pack("<q", number + 10)
    groups = handmade.length(1) + group + handmade.length(1) + pending
    groups += handmade.length(1) + consumer + handmade.length(1) + entry_bytes(number)
    for entries in (1, number + 2):
        payload = sealed(bytes([kind]) + node + handmade.length(entries) + last + groups + made[-10:])
        (restored,) = both.ask([["RESTORE", "y", 0, payload, "REPLACE"]])
        if entries > 1 and restored != b"OK":
            # Valkey 9 counts the entries, and refuses a different number.
            break
        both.expect([["XLEN", "y"], ["DUMP", "y"]], [entries, payload], "restored")
    if cell.lacks("form XINFO STREAM FULL"):
        return
    (information,) = both.ask([["XINFO", "STREAM", "y", "FULL"]])
    (its_group,) = fields_of(information)[b"groups"]
    (its_consumer,) = fields_of(its_group)[b"consumers"]
    assert fields_of(its_group)[b"pending"] == [[entry.encode(), b"consumer", number + 7, number + 8]]
    assert fields_of(its_consumer)[b"seen-time"] == number + 9
    if later:
        assert fields_of(information)[b"entries-added"] == number + 5
        assert fields_of(its_group)[b"entries-read"] == number + 6


def entry_bytes(number: int) -> bytes:
    """The entry's identifier as a key of a tree: both halves in network order."""
    return struct.pack(">QQ", number, number + 1)


def fields_of(reply: Any) -> dict[bytes, Any]:
    """Names and values, which alternate in a reply."""
    return dict(zip(reply[::2], reply[1::2], strict=True))
