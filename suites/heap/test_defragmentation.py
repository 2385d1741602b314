"""Values that active defragmentation moves keep their content, and can still be changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hiredis
import pytest

from suites._shared import link
from suites._shared.keyspace import dataset, server
from suites._shared.keyspace.values import Key, differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest
    from suites._shared.keyspace.dataset import DatasetItem
    from suites._shared.paired_servers import PairedServers

COPIES = 8
"""Number of copies of each value. Only one remains, in database 0, so that the memory around it is free."""
LEAST_REMAINING = 20
"""Minimum number of values. Fewer could all be in the page that the allocator fills next, which is never emptied."""
TYPES = ["string", "list", "set", "zset", "hash", "stream"]
SETTINGS: dict[str, Any] = {
    "active-defrag-ignore-bytes": 1,
    "active-defrag-threshold-lower": 0,
    "active-defrag-threshold-upper": 1,
    "active-defrag-cycle-max": 75,
    "active-defrag-cycle-min": 75,
    # Larger values are moved in parts, between commands.
    "active-defrag-max-scan-fields": 20,
}
LEAST_SHARE = 0.05
"""Minimum share of values that must move. Most values of each type move, but a string moves only if it is alone in its
page.
"""


@pytest.fixture(autouse=True)
def _defragmentation(both: PairedServers, cell: CellSpec) -> Iterator[None]:
    both.guest.pipeline([["CONFIG", "SET", name, value] for name, value in SETTINGS.items()])
    (refused,) = both.guest.pipeline([["CONFIG", "SET", "activedefrag", "yes"]])
    if isinstance(refused, hiredis.ReplyError):
        # A refusal by a server with jemalloc is a fault.
        assert cell.build is None or cell.build.allocator != "jemalloc", repr(refused)
        pytest.skip(f"only with --allocator jemalloc: {refused}")
    both.guest.command("CONFIG", "SET", "activedefrag", "no")
    yield
    both.guest.command("CONFIG", "SET", "activedefrag", "no")


def items_of(kind: str, guest: Guest, family: str) -> list[DatasetItem]:
    """The data set's items of a type. Names of strings have no type as a prefix."""
    prefixes = tuple(f"{one}:".encode() for one in TYPES[1:])

    def fits(item: DatasetItem) -> bool:
        name = item.key.name if b":" in item.key.name else item.key.name + b":"
        return name.startswith(f"{kind}:".encode()) or (kind == "string" and not name.startswith(prefixes))

    every = dataset.items(guest.version, family)
    return [item for item in every if item.key.database == 0 and item.key.name and fits(item)]


@pytest.mark.parametrize("kind", TYPES)
def test_what_is_moved_remains_what_it_was(both: PairedServers, guest: Guest, family: str, kind: str) -> None:
    items = items_of(kind, guest, family)
    remaining = 1 + LEAST_REMAINING // len(items)
    with server.client(guest) as client:
        for item in items:
            for number in range(COPIES * remaining):
                copy = b"%d:%s" % (number, item.key.name)
                client.pipeline([("SELECT", int(number % COPIES > 0))])
                client.pipeline([[copy if word == item.key.name else word for word in one] for one in item.commands])
        client.pipeline([("SELECT", 1), ("FLUSHDB", "SYNC")])
    names = range(0, COPIES * remaining, COPIES)
    expected = {Key(0, b"%d:%s" % (number, item.key.name)): item.entry for item in items for number in names}
    before = link.info(guest, "stats")
    both.guest.command("CONFIG", "SET", "activedefrag", "yes")

    def grown(name: str) -> int:
        return int(link.info(guest, "stats")[name]) - int(before[name])

    link.await_that(
        lambda: grown("active_defrag_key_hits") + grown("active_defrag_key_misses") >= 2 * len(expected),
        [guest],
        "the server to examine every value twice",
    )
    both.guest.command("CONFIG", "SET", "activedefrag", "no")
    moved = grown("active_defrag_key_hits")
    assert moved >= LEAST_SHARE * len(expected), f"{moved} of {len(expected)} values were moved"
    lines = differences(server.without_times(expected, guest), server.snapshot(guest))
    assert not lines, "; ".join(lines[:3])
    both.ask([["FLUSHALL"]])
