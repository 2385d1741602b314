"""Many simultaneous clients get the same replies as a single one, and I/O threads serve them and the earlier suites.
These tests come last in a cell, because the counters cover everything before them. Other suites have one client and two
threads; the tests with many clients have more threads.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from suites._shared import link
from suites._shared.keyspace import dataset, server
from suites._shared.keyspace.values import Key, differences
from suites._shared.paired_servers import EDGE_LENGTHS, HEADER_LENGTHS, differing, moved_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.protocol.resp import Reply
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.paired_servers import PairedServers

CLIENTS = 6
THREADS = 4
BATCH = 200
LARGE_LENGTHS = [16383, 16384, 32767, 32768, 1 << 18]
"""Lengths around the limit of a single read, around the size from which a request has its own buffer, and beyond."""
LEAST_SHARE = 0.5
"""Minimum share of reads and writes that I/O threads must serve. The main thread may serve administrative commands."""
LEAST_SHARE_OF_FEW = 0.01
"""The same for a new server with many clients. Its threads sleep at first, and there are few reads."""


@pytest.fixture
def crowded(start_guest: StartGuest) -> Guest:
    """A server whose threads may outnumber the processors of the host."""
    return start_guest(options=["--io-threads", str(THREADS)])


def at_once(guest: Guest, streams: Sequence[Sequence[Sequence[Any]]]) -> list[list[Reply]]:
    """The replies to each stream. Each stream has its own client, which sends it in several writes; all send at the
    same time.
    """

    def replies(stream: Sequence[Sequence[Any]]) -> list[Reply]:
        with server.client(guest) as client:
            batches = [stream[at : at + BATCH] for at in range(0, len(stream), BATCH)]
            return [reply for batch in batches for reply in client.pipeline(batch)]

    with ThreadPoolExecutor(len(streams)) as pool:
        return list(pool.map(replies, streams))


def compare(
    streams: Sequence[Sequence[Sequence[Any]]], actual: list[list[Reply]], due: list[list[Reply]], target: str
) -> None:
    for stream, ours, theirs in zip(streams, actual, due, strict=True):
        for request, reply, expected in zip(stream, ours, theirs, strict=True):
            if repr(reply) != repr(expected):
                raise differing(request, reply, expected, target)


def test_values_of_every_type_are_written_and_read_by_many(
    both: PairedServers, crowded: Guest, oracle: Guest, family: str
) -> None:
    both.ask([("FLUSHALL",)])
    items = [item for item in dataset.items(crowded.version, family) if item.key.database == 0]
    made = [command for item in items for command in item.commands]
    streams = [[("SELECT", number), *made] for number in range(CLIENTS)]
    compare(streams, at_once(crowded, streams), at_once(oracle, streams), both.target)
    expected = {Key(number, item.key.name): item.entry for item in items for number in range(CLIENTS)}
    with ThreadPoolExecutor(CLIENTS) as pool:
        for found in pool.map(server.snapshot, [crowded] * CLIENTS):
            lines = differences(server.without_times(expected, crowded), found)
            assert not lines, "; ".join(lines[:3])
    assert_served(crowded, LEAST_SHARE_OF_FEW)


def test_values_of_every_length_come_back_to_many_from_every_offset(both: PairedServers, crowded: Guest) -> None:
    streams: list[list[Sequence[Any]]] = []
    due: list[list[Reply]] = []
    for number in range(CLIENTS):
        lengths = [*EDGE_LENGTHS, *HEADER_LENGTHS, *LARGE_LENGTHS]
        both.random.shuffle(lengths)
        values = [both.some_bytes(length) for length in lengths]
        requests = [request for value in values for request in (("SET", number, value), ("GET", number))]
        streams.append(moved_on(requests))
        replies = [reply for value in values for reply in (b"OK", value)]
        # Each request follows an ECHO, which sets its offset.
        due.append(
            [
                reply
                for echo, answer in zip(streams[-1][::2], replies, strict=True)
                for reply in (echo[1].encode(), answer)
            ]
        )
    compare(streams, at_once(crowded, streams), due, both.target)
    assert_served(crowded, LEAST_SHARE_OF_FEW)


def served(guest: Guest) -> dict[str, int]:
    """The numbers of reads and writes of the server, and the numbers of those that its I/O threads served."""
    stats = link.info(guest, "stats")
    return {
        f"{who}_{what}_processed": int(stats[f"{who}_{what}_processed"])
        for who in ("io_threaded", "total")
        for what in ("reads", "writes")
    }


def test_threads_serve_a_client_alone(both: PairedServers, guest: Guest) -> None:
    before = served(guest)
    for _ in range(100):
        both.guest.command("PING")
    after = served(guest)
    for what in ("reads", "writes"):
        name = f"io_threaded_{what}_processed"
        done = after[name] - before[name]
        assert done >= 100 * LEAST_SHARE, f"threads served {done} of 100 {what}"


def assert_served(guest: Guest, least: float) -> None:
    """Require that the I/O threads served at least this share of the server's reads and writes."""
    done = served(guest)
    for what in ("reads", "writes"):
        threaded, total = done[f"io_threaded_{what}_processed"], done[f"total_{what}_processed"]
        assert threaded >= total * least, f"threads served {threaded} of {total} {what}"


def test_threads_served_what_came_before(guest: Guest) -> None:
    assert_served(guest, LEAST_SHARE)
