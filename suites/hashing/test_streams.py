"""A stream's index is a radix tree of entry numbers, most significant byte first: entries keep their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from suites._shared.paired_servers import PairedServers

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
    both.expect([["XRANGE", "x", "-", "+"]], [rest[-2:]], "what is left")


@pytest.mark.usefixtures("per_node")
def test_many_entries_are_found_by_their_numbers(both: PairedServers) -> None:
    count = 300 * both.effort
    numbers = sorted({both.random.getrandbits(both.random.randrange(1, 64)) + 1 for _ in range(count)})
    both.ask([["XADD", "x", f"{number}-0", "f", number] for number in numbers])
    some = both.random.sample(numbers, 40)
    expected: list[Any] = [[[b"%d-0" % number, [b"f", b"%d" % number]]] for number in some]
    both.expect([["XRANGE", "x", f"{number}-0", f"{number}-0"] for number in some], expected, f"of {len(numbers)}")
    both.expect([["XLEN", "x"]], [len(numbers)], "all")
