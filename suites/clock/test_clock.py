"""A server whose clock is in the years after 2038 and 2106 keeps time as any other does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from suites._shared.formats import rdb
from suites._shared.keyspace import server
from suites._shared.keyspace.values import Key

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest

# An hour before the end of 31 bits of seconds; a minute after it, after that of 32 bits, and after that of 33.
MOMENTS = {"before 2038": (1 << 31) - 3700, "2038": (1 << 31) + 60, "2106": (1 << 32) + 60, "2242": (1 << 33) + 60}
LASTING = 5000
"""Seconds that keys live: from before the end of 31 bits until after it."""
SLACK = 30
"""Seconds that a slow server may take from one command to the next."""
LRU_PERIOD = 1 << 24
"""Seconds after which the clock of idle times wraps (redis.conf, maxmemory-samples)."""
every_moment = pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)


@pytest.fixture
def start_at(cell: CellSpec, start_guest: StartGuest) -> Callable[..., Guest]:
    """Starts a server whose clock shows a moment now, in seconds since 1970."""

    def start(moment: int, **files: bytes) -> Guest:
        if moment + 60 > 1 << 31 and cell.runner.target.time_bits == 32:
            pytest.skip("time_t has 32 bits here")
        ahead = b"%d" % (moment - int(time.time()))
        return start_guest(preload=cell.preload, files={"ahead": ahead, **files})

    return start


def near(actual: Any, due: float) -> bool:
    """Whether a time in seconds is due, or a little later."""
    return due - 1 <= float(actual) <= due + SLACK


@every_moment
def test_the_time_is_told_everywhere(start_at: Callable[..., Guest], moment: int) -> None:
    with server.client(start_at(moment)) as client:
        client.command("CONFIG", "SET", "slowlog-log-slower-than", 0)
        seconds, microseconds = client.command("TIME")  # type: ignore[misc]
        assert near(seconds, moment), f"TIME says {seconds!r}"
        assert 0 <= int(microseconds) < 1_000_000  # type: ignore[arg-type]
        assert near(client.command("LASTSAVE"), moment)
        identifier = bytes(client.command("XADD", "stream", "*", "f", 1))  # type: ignore[arg-type]
        assert near(int(identifier.partition(b"-")[0]) / 1000, moment), f"XADD says {identifier!r}"
        (entry, *_) = client.command("SLOWLOG", "GET", 1)  # type: ignore[misc]
        assert near(entry[1], moment), f"SLOWLOG says {entry!r}"  # type: ignore[index]
        words = bytes(client.command("CLIENT", "LIST")).decode().split()  # type: ignore[arg-type]
        listed = dict(word.split("=", 1) for word in words)
        assert 0 <= int(listed["age"]) <= SLACK
        assert 0 <= int(listed["idle"]) <= SLACK
        client.command("SET", "k", "text")
        assert 0 <= client.command("OBJECT", "IDLETIME", "k") <= SLACK  # type: ignore[operator]


@every_moment
def test_a_key_lives_as_long_as_it_was_given(start_at: Callable[..., Guest], moment: int, cell: CellSpec) -> None:
    with server.client(start_at(moment)) as client:
        client.pipeline([("SET", "relative", 1, "EX", LASTING), ("SET", "absolute", 1), ("SET", "over", 1)])
        client.pipeline([("EXPIREAT", "absolute", moment + LASTING), ("EXPIREAT", "over", moment - 1)])
        assert client.command("EXISTS", "over") == 0
        for name in ("relative", "absolute"):
            assert LASTING - SLACK <= client.command("TTL", name) <= LASTING  # type: ignore[operator]
            if cell.version >= (7,):
                assert near(client.command("EXPIRETIME", name), moment + LASTING)
        # An access ends the first; the server ends the other by itself.
        client.pipeline([("SET", "short", 1, "PX", 20), ("SET", "unseen", 1, "PX", 20)])
        time.sleep(0.1)
        assert client.command("GET", "short") is None
        deadline = time.monotonic() + SLACK
        while client.command("DBSIZE") != 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert client.command("DBSIZE") == 2


@every_moment
def test_a_field_lives_as_long_as_it_was_given(
    start_at: Callable[..., Guest], moment: int, cell: CellSpec, family: str
) -> None:
    if cell.version < ((7, 4) if family == "redis" else (9,)):
        pytest.skip("fields expire since Redis 7.4 and Valkey 9.0")
    with server.client(start_at(moment)) as client:
        client.command("HSET", "i", "short", 1, "long", 2, "stays", 3)
        client.pipeline([("HPEXPIRE", "i", 20, "FIELDS", 1, "short"), ("HEXPIRE", "i", LASTING, "FIELDS", 1, "long")])
        time.sleep(0.1)
        assert client.command("HMGET", "i", "short", "long", "stays") == [None, b"2", b"3"]
        (left,), (over,) = client.pipeline([(name, "i", "FIELDS", 1, "long") for name in ("HTTL", "HEXPIRETIME")])  # type: ignore[misc]
        assert LASTING - SLACK <= left <= LASTING  # type: ignore[operator]
        assert near(over, moment + LASTING)
        assert client.command("HPEXPIREAT", "i", (moment - 1) * 1000, "FIELDS", 1, "long") == [2]
        assert client.command("HKEYS", "i") == [b"stays"]


@every_moment
def test_what_was_saved_then_is_loaded_then(start_at: Callable[..., Guest], moment: int) -> None:
    guest = start_at(moment)
    with server.client(guest) as client:
        client.pipeline([("SET", "k", "v"), ("PEXPIREAT", "k", moment * 1000 + 987_654), ("SET", "stays", 1)])
    content = server.saved(guest)
    found = rdb.read(content)
    assert found.entries[Key(0, b"k")].expires == moment * 1000 + 987_654
    assert near(found.auxiliary[b"ctime"], moment)
    with server.client(start_at(moment, **{"dump.rdb": content})) as client:
        assert 987 - SLACK <= client.command("TTL", "k") <= 988  # type: ignore[operator]
    with server.client(start_at(moment + 2000, **{"dump.rdb": content})) as client:
        assert client.command("KEYS", "*") == [b"stays"]


def test_a_key_lives_across_the_end_of_31_bits_of_seconds(start_at: Callable[..., Guest]) -> None:
    end = 1 << 31
    with server.client(start_at(end - 2)) as client:
        client.pipeline([("SET", "first", 1, "EX", 1), ("SET", "second", 1, "EX", 5), ("SET", "third", 1, "EX", 1000)])
        time.sleep(3)
        assert int(client.command("TIME")[0]) >= end  # type: ignore[index,arg-type]
        assert client.command("GET", "first") is None
        assert 900 < client.command("TTL", "third") <= 998  # type: ignore[operator]
        time.sleep(3)
        assert client.pipeline([("GET", "second"), ("GET", "third")]) == [None, b"1"]


def test_an_idle_time_is_right_where_its_clock_wraps(start_at: Callable[..., Guest], cell: CellSpec) -> None:
    """The clock of idle times has 24 bits: the last wrap before 2038 comes in July 2037."""
    with server.client(start_at((1 << 31) - LRU_PERIOD - 2)) as client:
        client.command("SET", "k", "text")
        payload = client.command("DUMP", "k")
        assert isinstance(payload, bytes)
        client.command("RESTORE", "old", 0, payload, "IDLETIME", 5000)
        time.sleep(3)
        idle, old = client.pipeline([("OBJECT", "IDLETIME", "k"), ("OBJECT", "IDLETIME", "old")])
    assert 1 <= idle <= SLACK, f"a key of 3 seconds is told as {idle!r}"  # type: ignore[operator]
    # Before 7.0 the server takes twice the period for the wrap.
    if cell.version >= (7,):
        assert 5000 <= old <= 5000 + SLACK, f"a key of 5003 seconds is told as {old!r}"  # type: ignore[operator]
