"""Tables that grow and shrink under load keep every element. An iteration over a changing table shows every element
that is present throughout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from suites._shared.paired_servers import PairedServers

ELEMENTS = 1200
BATCH = 75


@dataclass(frozen=True)
class Table:
    """The commands for one kind of table; names are bytes, values numbers."""

    add: Callable[[bytes, int], list[Any]]
    find: Callable[[bytes], list[Any]]
    found: Callable[[int], Any]
    """The reply of `find` to a present element, from its value."""
    absent: Any
    remove: Callable[[bytes], list[Any]]
    size: list[str]
    scan: list[str]
    step: int = 1
    """Number of words for each element in a scan's reply."""


TABLES = {
    "keys": Table(
        add=lambda name, value: ["SET", name, value],
        find=lambda name: ["GET", name],
        found=lambda value: b"%d" % value,
        absent=None,
        remove=lambda name: ["DEL", name],
        size=["DBSIZE"],
        scan=["SCAN"],
    ),
    "fields": Table(
        add=lambda name, value: ["HSET", "t", name, value],
        find=lambda name: ["HGET", "t", name],
        found=lambda value: b"%d" % value,
        absent=None,
        remove=lambda name: ["HDEL", "t", name],
        size=["HLEN", "t"],
        scan=["HSCAN", "t"],
        step=2,
    ),
    "members": Table(
        add=lambda name, _: ["SADD", "t", name],
        find=lambda name: ["SISMEMBER", "t", name],
        found=lambda _: 1,
        absent=0,
        remove=lambda name: ["SREM", "t", name],
        size=["SCARD", "t"],
        scan=["SSCAN", "t"],
    ),
    "scores": Table(
        add=lambda name, value: ["ZADD", "t", value, name],
        find=lambda name: ["ZSCORE", "t", name],
        found=lambda value: b"%d" % value,
        absent=None,
        remove=lambda name: ["ZREM", "t", name],
        size=["ZCARD", "t"],
        scan=["ZSCAN", "t"],
        step=2,
    ),
}

every_table = pytest.mark.parametrize("kind", TABLES)


def some_names(both: PairedServers, count: int) -> dict[bytes, int]:
    """`count` names of 1 to 40 bytes, each with a number."""
    names: dict[bytes, int] = {}
    while len(names) < count:
        names[both.some_bytes(both.random.randrange(1, 41))] = len(names)
    return names


def some_integers(both: PairedServers, count: int) -> dict[bytes, int]:
    """The same for decimal integers, from narrow ones to those that need 16, 32 and 64 bits."""
    names: dict[bytes, int] = {}
    while len(names) < count:
        bits = 8 + 56 * len(names) // count
        names[b"%d" % both.random.randrange(-(2**bits), 2**bits)] = len(names)
    return names


def batches(names: list[bytes]) -> Iterator[list[bytes]]:
    """Small batches, so that lookups happen in tables of every size while the server resizes them."""
    for start in range(0, len(names), BATCH):
        yield names[start : start + BATCH]


def grow_and_shrink(both: PairedServers, table: Table, names: dict[bytes, int]) -> None:
    """Add all names, then remove all but a few, with lookups in between; the model is a dict."""
    there: dict[bytes, int] = {}
    everything = list(names)

    def look_up(sample: list[bytes]) -> None:
        expected = [table.found(there[name]) if name in there else table.absent for name in sample]
        both.expect([*map(table.find, sample), table.size], [*expected, len(there)], f"{len(there)} elements")

    for batch in batches(everything):
        both.ask([table.add(name, names[name]) for name in batch])
        there |= {name: names[name] for name in batch}
        look_up(both.random.choices(everything, k=BATCH // 2))
    look_up(everything)
    both.random.shuffle(everything)
    for batch in batches(everything[len(everything) // 20 :]):
        both.ask([table.remove(name) for name in batch])
        there = {name: value for name, value in there.items() if name not in set(batch)}
        look_up(both.random.choices(everything, k=BATCH // 2))
    look_up(everything)


@every_table
def test_a_table_under_load_finds_what_it_has_and_nothing_else(both: PairedServers, kind: str) -> None:
    grow_and_shrink(both, TABLES[kind], some_names(both, ELEMENTS * both.effort))


def test_a_set_of_integers_finds_what_it_has_while_it_widens_and_becomes_a_table(both: PairedServers) -> None:
    """Up to 512 integers are an array of 16, then 32, then 64 bits each (set-max-intset-entries)."""
    for count in (20, 200, ELEMENTS * both.effort):
        both.ask([["DEL", "t"]])
        grow_and_shrink(both, TABLES["members"], some_integers(both, count))


@pytest.mark.parametrize("edge", [2**7, 2**8, 2**15, 2**16, 2**31, 2**32, 2**63])
def test_integers_at_a_widths_edge_are_ordered_and_distinct(both: PairedServers, edge: int) -> None:
    numbers = [n for n in (edge, -edge, edge - 1, 1 - edge, edge - 2, -edge - 1, 0, 1, -1, 258) if abs(n) < 2**63]
    members = [b"%d" % number for number in dict.fromkeys(numbers)]
    for member in members:
        both.ask([["SADD", "t", member]])
    both.expect([["SISMEMBER", "t", member] for member in members], [1] * len(members), f"around {edge}")
    both.expect([["SCARD", "t"], ["OBJECT", "ENCODING", "t"]], [len(members), b"intset"], f"around {edge}")
    in_order = sorted(members, key=int)
    both.expect([["SORT", "t", "BY", "nosort"], ["SMEMBERS", "t"]], [in_order, in_order], "a sorted array")
    both.expect([*(["SREM", "t", member] for member in members), ["EXISTS", "t"]], [1] * len(members) + [0], "removed")


def scan(both: PairedServers, table: Table, count: int, between: Callable[[], None]) -> set[bytes]:
    """Every name from one iteration over the guest's table. A random seed determines the order."""
    names: set[bytes] = set()
    cursor: Any = 0
    while True:
        (reply,) = both.guest.pipeline([[*table.scan, cursor, "COUNT", count]])
        assert isinstance(reply, list), f"{table.scan}: {reply!r:.200}"
        cursor, words = reply
        assert isinstance(words, list)
        names.update(words[:: table.step])  # type: ignore[arg-type]
        if cursor == b"0":
            return names
        between()


@every_table
@pytest.mark.parametrize("count", [7, 100, 10_000])
def test_an_iteration_shows_every_element_that_is_there_throughout(both: PairedServers, kind: str, count: int) -> None:
    table = TABLES[kind]
    names = list(some_names(both, 900 * both.effort))
    third = len(names) // 3
    staying, leaving, coming = names[:third], names[third : 2 * third], names[2 * third :]
    both.ask([table.add(name, 1) for name in staying + leaving])

    def between() -> None:
        """The table shrinks and then grows during the iteration."""
        some, leaving[:] = leaving[:10], leaving[10:]
        others, coming[:] = ([], coming) if leaving else (coming[:20], coming[20:])
        both.ask([*map(table.remove, some), *(table.add(name, 1) for name in others), table.size])

    shown = scan(both, table, count, between)
    missed, strange = set(staying) - shown, shown - set(names)
    assert not missed, f"{len(missed)} of {len(staying)} elements that stayed were missed, such as {min(missed)!r}"
    assert not strange, f"{len(strange)} elements that never existed were shown, such as {min(strange)!r}"


@every_table
@pytest.mark.parametrize("size", [1, 2, 16, 128, 129, 513])
def test_an_iteration_over_a_table_at_rest_shows_exactly_its_elements(
    both: PairedServers, kind: str, size: int
) -> None:
    """The limits between compact encodings and tables are between these sizes."""
    table, names = TABLES[kind], some_names(both, size)
    both.ask([table.add(name, value) for name, value in names.items()])
    assert scan(both, table, 10, lambda: None) == set(names)


@every_table
def test_what_lists_a_whole_table_lists_each_element_once(both: PairedServers, kind: str) -> None:
    table, names = TABLES[kind], some_names(both, 300)
    both.ask([table.add(name, value) for name, value in names.items()])
    listing = {"keys": ["KEYS", "*"], "fields": ["HKEYS", "t"], "members": ["SMEMBERS", "t"]}
    (reply,) = both.guest.pipeline([listing.get(kind, ["ZRANGE", "t", 0, -1])])
    assert isinstance(reply, list)
    assert len(reply) == len(names)
    assert set(reply) == set(names)


def test_random_elements_are_elements(both: PairedServers) -> None:
    names = some_names(both, 200)
    # A key of this name would replace the set.
    names.pop(b"t", None)
    for table in (TABLES["members"], TABLES["keys"]):
        both.ask([table.add(name, value) for name, value in names.items()])
    drawn = both.guest.pipeline([["SRANDMEMBER", "t"], ["RANDOMKEY"]] * 40)
    assert set(drawn) <= {*names, b"t"}
