"""Values that another thread frees are gone, and so is their memory; later values are intact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness.protocol.resp import info_fields
from suites._shared import link
from suites._shared.keyspace import dataset, server
from suites._shared.keyspace.values import (
    ConsumerGroup,
    Fields,
    Key,
    KeyEntry,
    Members,
    Pending,
    Scores,
    Sequence,
    Stream,
    differences,
    score,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.run.server_process import Guest
    from suites._shared.keyspace.values import Value
    from suites._shared.paired_servers import PairedServers

COUNT = 300
"""More elements than LAZYFREE_THRESHOLD (64): another thread frees such a value."""
SLACK_BYTES = 1 << 18
"""Memory in bytes that the server may keep: its tables, and buffers of clients."""
SETTINGS = {"stream-node-max-entries": 1, "maxmemory-policy": "allkeys-random"}
DEFAULTS: dict[str, Any] = {"stream-node-max-entries": 100, "maxmemory-policy": "noeviction", "maxmemory": 0}
LAZY = [f"lazyfree-lazy-{what}" for what in ("eviction", "expire", "server-del", "user-del", "user-flush")]


def values() -> dict[bytes, tuple[list[tuple[Any, ...]], Value]]:
    """Key -> the commands that make its value, and the value. The server frees each of these types differently."""
    texts = [b"%d:" % n + dataset.noise(n % 70) for n in range(COUNT)]
    # Each element exceeds the limit of a list's node.
    long = [b"%d:" % n + dataset.noise(9000) for n in range(80)]
    scores = {text: float(n) for n, text in enumerate(texts)}
    entries = tuple(((1, n), (b"field", text)) for n, text in enumerate(texts, 1))
    group = ConsumerGroup((1, COUNT), {b"consumer": tuple(Pending(one) for one, _ in entries)})
    reading = ("XREADGROUP", "GROUP", "group", "consumer", "STREAMS", "stream", ">")
    return {
        b"list": ([("RPUSH", "list", *long)], Sequence(tuple(long))),
        b"set": ([("SADD", "set", *texts)], Members(frozenset(texts))),
        b"hash": (
            [("HMSET", "hash", *(part for text in texts for part in (text, text)))],
            Fields(dict(zip(texts, texts, strict=True))),
        ),
        b"zset": (
            [("ZADD", "zset", *(part for text, value in scores.items() for part in (value, text)))],
            Scores({text: score(value) for text, value in scores.items()}),
        ),
        b"stream": (
            [
                *(("XADD", "stream", f"{one[0]}-{one[1]}", *flat) for one, flat in entries),
                ("XGROUP", "CREATE", "stream", "group", "0"),
                reading,
            ],
            Stream(entries, (1, COUNT), {b"group": group}),
        ),
    }


KEYS = list(values())
WAYS: dict[str, list[list[Any]]] = {
    "unlink": [["UNLINK", *KEYS]],
    "del": [["DEL", *KEYS]],
    "overwritten": [["SET", key, 1] for key in KEYS],
    "renamed over": [request for key in KEYS for request in (["SET", "short", 1], ["RENAME", "short", key])],
    "expired": [["PEXPIREAT", key, 1] for key in KEYS],
    "flushdb": [["FLUSHDB", "ASYNC"]],
    "flushall": [["FLUSHALL", "ASYNC"]],
    "flushall by setting": [["FLUSHALL"]],
    "evicted": [["CONFIG", "SET", "maxmemory", 1], ["CONFIG", "SET", "maxmemory", 0]],
}


@pytest.fixture(autouse=True)
def _settings(both: PairedServers) -> Iterator[None]:
    lazy = [["CONFIG", "SET", name, "yes"] for name in LAZY]
    assert both.guest.pipeline(lazy) == [b"OK"] * len(lazy)
    both.guest.pipeline([["CONFIG", "SET", name, value] for name, value in SETTINGS.items()])
    yield
    both.guest.pipeline([["CONFIG", "SET", name, "no"] for name in LAZY])
    both.guest.pipeline([["CONFIG", "SET", name, value] for name, value in DEFAULTS.items()])


def memory(both: PairedServers) -> dict[str, int]:
    """The integers in INFO's section `memory`, read on the existing connection: another one would use memory itself."""
    fields = info_fields(both.guest.command("INFO", "memory"))
    return {name: int(value) for name, value in fields.items() if value.isdigit()}


def write(guest: Guest) -> None:
    """Write the values, and read them back."""
    with server.client(guest) as client:
        for commands, _ in values().values():
            client.pipeline(commands)
    expected = {Key(0, key): KeyEntry(value) for key, (_, value) in values().items()}
    lines = differences(expected, server.snapshot(guest))
    assert not lines, "; ".join(lines)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_another_thread_frees_is_gone_with_its_memory(
    both: PairedServers, guest: Guest, way: list[list[Any]]
) -> None:
    # The server allocates some memory with the first values and keeps it. That memory does not belong to the values.
    write(guest)
    both.guest.command("FLUSHALL", "SYNC")
    before = memory(both)
    write(guest)
    full = memory(both)["used_memory"]
    both.guest.pipeline(way)
    # A server deletes an expired key when a command accesses it.
    both.guest.pipeline([["EXISTS", *KEYS], ["FLUSHDB", "SYNC"]])
    assert full - before["used_memory"] > 2 * SLACK_BYTES, "the values are too small for the test"
    # The server frees the buffers of disconnected clients a little later.
    link.await_that(
        lambda: memory(both)["lazyfree_pending_objects"] == 0, [guest], "the other thread to free all values"
    )
    link.await_that(
        lambda: memory(both)["used_memory"] < before["used_memory"] + SLACK_BYTES, [guest], "the memory to be freed"
    )
    freed = memory(both)["lazyfreed_objects"] - before["lazyfreed_objects"]
    assert freed == len(KEYS), f"another thread freed {freed} of {len(KEYS)} values"
    write(guest)
    both.guest.command("FLUSHALL")
