"""One small key of each encoding. A file of them takes a few hundred system calls, so that each can fail once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hiredis

from suites._shared.keyspace import dataset, server

if TYPE_CHECKING:
    from harness.run.server_process import Guest

# More than 64 bytes, so that a set, a sorted set or a hash with this element is a table.
LONG = dataset.noise(70)
LATER = 33_000_000_000_123
COMMANDS: list[tuple[Any, ...]] = [
    *[("SET", "integer", 12), ("SET", "embedded", "text"), ("SET", "raw", LONG), ("SET", "packed", "plumb" * 40)],
    *[("SET", "long ago", 1), ("PEXPIREAT", "long ago", LATER)],
    *[("RPUSH", "list", "a", 2, LONG), ("RPUSH", "long list", *[LONG * 40] * 4)],
    *[("SADD", "integers", 1, 2, 3), ("SADD", "words", "a", "b"), ("SADD", "table", LONG, "b")],
    *[("ZADD", "pairs", 1.5, "a"), ("ZADD", "tree", 0.1, LONG, 2, "b")],
    *[("HSET", "fields", "a", 1), ("HSET", "map", "a", LONG)],
    *[("XADD", "stream", "1-1", "f", "v"), ("XADD", "stream", "2-1", "f", "v"), ("XDEL", "stream", "1-1")],
    *[("XGROUP", "CREATE", "stream", "g", 0), ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "stream", ">")],
    *[("XGROUP", "CREATECONSUMER", "stream", "g", "idle"), ("XGROUP", "CREATE", "empty", "g", "$", "MKSTREAM")],
    *[("SELECT", 1), ("SET", "elsewhere", 1), ("SELECT", 0), ("FUNCTION", "LOAD", dataset.FUNCTION)],
]


def write(guest: Guest) -> None:
    """Write the keys. An error reply raises AssertionError."""
    with server.client(guest) as client:
        for request, reply in zip(COMMANDS, client.pipeline(COMMANDS), strict=True):
            assert not isinstance(reply, hiredis.ReplyError), f"{request!s:.100}: {reply}"


def digest(guest: Guest) -> tuple[Any, Any]:
    """A digest of all keys and functions: it changes if any of them does."""
    with server.client(guest) as client:
        return client.command("DEBUG", "DIGEST"), server.functions(guest)
