"""A server keeps time correctly if its clock shows years after 2038 and 2106, if its machine has run for years, and if
its clock jumps by weeks.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import hiredis
import pytest

from harness.protocol.resp import info_fields
from suites._shared import link
from suites._shared.formats import rdb
from suites._shared.keyspace import server
from suites._shared.keyspace.values import Key
from suites._shared.needs import require
from suites.clock.moved_clock import (
    AHEAD,
    MOMENTS,
    SILENCES,
    SLACK,
    SLEEPS,
    UPTIMES,
    machine_running_for,
    near,
    wall_clock_at,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.ports import Ports

LASTING = 5000
"""The keys' time to live in seconds. It begins before seconds exceed 31 bits, and ends after that."""
LRU_PERIOD = 1 << 24
"""Seconds after which the clock of idle times wraps (redis.conf, maxmemory-samples)."""
LFU_PERIOD = 60 << 16
"""Seconds after which the clock of frequencies wraps, which counts minutes (evict.c, lrulfu.c)."""
FREQUENCY = 200
MINUTES = 20
"""The minutes that pass. A frequency loses one in each (lfu-decay-time)."""
DAY_SECONDS = 24 * 3600
SLOW_COMMANDS = [3, 4295, 4295 * 1000]
"""Seconds that do not fit 32 bits as nanoseconds, as microseconds and as milliseconds."""
LIMIT = 30_000
"""Milliseconds after which a script counts as slow. Even on a busy machine, other scripts of the test take less."""
NODES = """\
{me} 127.0.0.1:1@10001 myself,master - 0 0 1 connected 0-8191
{other} 127.0.0.1:2@10002 master - 1 0 2 disconnected 8192-16383
vars currentEpoch 2 lastVoteEpoch 0
"""
every_moment = pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)


def reads_moved_clock(about: Mapping[str, str]) -> bool:
    """Whether a server of which INFO says this measures durations with the clock that is moved. A processor's own
    counter is not ahead. Valkey 9 reads it on x86-64 and AArch64.
    """
    return "POSIX" in about.get("monotonic_clock", "POSIX")


def slow(guest: Guest) -> bool:
    """Whether the server has noticed a slow script."""
    return b"slow script" in guest.evidence.log.read_bytes().lower()


@pytest.fixture
def start_at(cell: CellSpec, start_guest: StartGuest) -> Callable[..., Guest]:
    """Starts a server whose clock now shows a given time, in seconds since 1970."""

    def start(moment: int, **files: bytes) -> Guest:
        if moment + 60 > 1 << 31 and cell.runner.target.time_bits == 32:
            pytest.skip("time_t has 32 bits here")
        return start_guest(preload=cell.preload, files={AHEAD: wall_clock_at(moment), **files})

    return start


@every_moment
def test_the_time_is_told_everywhere(start_at: Callable[..., Guest], moment: int) -> None:
    with server.client(start_at(moment)) as client:
        client.command("CONFIG", "SET", "slowlog-log-slower-than", 0)
        seconds, microseconds = client.command("TIME")  # type: ignore[misc]
        assert near(seconds, moment), f"TIME says {seconds!r}"
        assert 0 <= int(microseconds) < 1_000_000  # type: ignore[arg-type]
        assert near(client.command("LASTSAVE"), moment)
        about = info_fields(client.command("INFO"))
        assert near(about["rdb_last_save_time"], moment)
        if "server_time_usec" in about:
            assert near(int(about["server_time_usec"]) / 10**6, moment)
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
            if not cell.lacks("command expiretime"):
                assert near(client.command("EXPIRETIME", name), moment + LASTING)
        # An access expires the first. The server expires the other by itself.
        client.pipeline([("SET", "short", 1, "PX", 20), ("SET", "unseen", 1, "PX", 20)])
        time.sleep(0.1)
        assert client.command("GET", "short") is None
        deadline = time.monotonic() + SLACK
        while client.command("DBSIZE") != 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert client.command("DBSIZE") == 2


@every_moment
def test_a_field_lives_as_long_as_it_was_given(start_at: Callable[..., Guest], moment: int, cell: CellSpec) -> None:
    require(cell, "command hpexpire")
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
    """The clock of idle times has 24 bits. Its last wrap before 2038 is in July 2037."""
    with server.client(start_at((1 << 31) - LRU_PERIOD - 2)) as client:
        client.command("SET", "k", "text")
        payload = client.command("DUMP", "k")
        assert isinstance(payload, bytes)
        client.command("RESTORE", "old", 0, payload, "IDLETIME", 5000)
        time.sleep(3)
        idle, old = client.pipeline([("OBJECT", "IDLETIME", "k"), ("OBJECT", "IDLETIME", "old")])
    assert 1 <= idle <= SLACK, f"a key is idle for 3 s, reported as {idle!r} s"  # type: ignore[operator]
    # Before 7.0, the server assumes twice the period at the wrap. Without a moved clock nothing shows that.
    if cell.version >= (7,):
        assert 5000 <= old <= 5000 + SLACK, f"a key is idle for 5003 s, reported as {old!r} s"  # type: ignore[operator]


def test_a_frequency_decays_where_its_clock_wraps(start_at: Callable[..., Guest]) -> None:
    """The clock of frequencies counts minutes in 16 bits. Its last wrap before 2038 is in January of that year."""
    with server.client(start_at((1 << 31) // LFU_PERIOD * LFU_PERIOD - 90)) as client:
        client.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
        client.command("SET", "k", "text")
        payload = client.command("DUMP", "k")
        assert isinstance(payload, bytes)
        client.command("RESTORE", "old", 0, payload, "FREQ", FREQUENCY)
        assert client.command("OBJECT", "FREQ", "old") == FREQUENCY
        client.command("DEBUG", "SLEEP", MINUTES * 60)
        # A timer of the server reads this clock ten times a second. At the wrap, servers count a minute less.
        time.sleep(0.5)
        left: Any = client.command("OBJECT", "FREQ", "old")
    due = FREQUENCY - MINUTES
    assert due - 1 <= left <= due + 1, f"the frequency after {MINUTES} minutes is {left!r}"


@pytest.mark.parametrize("uptime", UPTIMES.values(), ids=UPTIMES)
def test_durations_are_told_however_long_the_machine_has_run(
    cell: CellSpec, start_guest: StartGuest, uptime: int
) -> None:
    """The server uses the monotonic clock to time scripts, commands, timeouts and evictions."""
    if uptime > 1 << 30 and cell.runner.target.time_bits == 32:
        pytest.skip("time_t has 32 bits here")
    guest = start_guest(preload=cell.preload, files={AHEAD: machine_running_for(uptime)})
    limit = "lua-time-limit" if cell.lacks("option busy-reply-threshold") else "busy-reply-threshold"
    loop = "local n = 0 for i = 1, 300000 do n = n + i end return n"
    with server.client(guest) as client:

        def ask(*words: Any) -> Any:
            return client.command(*words)

        ask("CONFIG", "SET", "slowlog-log-slower-than", 0)
        ask("CONFIG", "SET", "latency-monitor-threshold", 20)
        ask("CONFIG", "SET", limit, LIMIT)
        assert ask("EVAL", loop, 0) == 300000 * 300001 // 2
        assert not slow(guest), f"a script is slow before its limit of {LIMIT} ms"
        ask("CONFIG", "SET", limit, 1)
        ask("EVAL", loop.replace("300000", "3000000"), 0)
        assert slow(guest), "a script is never slow"
        started = time.monotonic()
        assert ask("BLPOP", "nothing", 1 if cell.lacks("form BLPOP with a fraction of a second") else "0.2") is None
        assert 0.15 <= time.monotonic() - started <= SLACK
        ask("DEBUG", "SLEEP", "0.05")
        (entry,) = ask("SLOWLOG", "GET", 1)
        assert 50_000 <= entry[2] <= SLACK * 10**6, f"SLOWLOG says {entry!r}"
        events = {bytes(event[0]): event[2:4] for event in ask("LATENCY", "LATEST")}
        assert b"command" in events
        assert all(20 <= value <= SLACK * 1000 for event in events.values() for value in event), f"LATENCY: {events}"
        ask("CONFIG", "SET", "maxmemory", 1)
        assert isinstance(client.pipeline([("SET", "k", 1)])[0], hiredis.ReplyError)
        stats = info_fields(ask("INFO", "stats"))
        for name in ("current_eviction_exceeded_time", "total_eviction_exceeded_time"):
            assert 0 <= int(stats.get(name, 0)) <= SLACK * 1000, f"INFO says {name}:{stats[name]}"
        for name, words in info_fields(ask("INFO", "commandstats")).items():
            usec = int(words.split(",")[1].partition("=")[2])
            assert 0 <= usec <= SLACK * 10**6, f"INFO says {name}:{words}"


@pytest.mark.parametrize("silence", SILENCES.values(), ids=SILENCES)
def test_a_node_is_suspected_however_long_it_was_silent(
    cell: CellSpec, start_guest: StartGuest, ports: Ports, silence: int
) -> None:
    names = {"me": "a" * 40, "other": "b" * 40}
    files = {"nodes.conf": NODES.format(**names).encode()}
    options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "3600000"]
    guest = start_guest(preload=cell.preload, options=["--port", str(ports.free()), *options], files=files)

    def suspected() -> bool:
        with server.client(guest) as client:
            lines = bytes(client.command("CLUSTER", "NODES")).decode().splitlines()  # type: ignore[arg-type]
        (flags,) = [words[2] for words in map(str.split, lines) if words[0] == names["other"]]
        return "fail" in flags

    # The node checks the others ten times a second.
    time.sleep(0.5)
    assert not suspected()
    with server.client(guest) as client:
        client.command("DEBUG", "SLEEP", silence)
    link.await_that(suspected, [guest], "the node to suspect the other")


@pytest.mark.parametrize("weeks", SILENCES.values(), ids=SILENCES)
def test_weeks_that_pass_are_told_and_end_what_they_must(cell: CellSpec, start_guest: StartGuest, weeks: int) -> None:
    """The clock jumps while the server runs: ages, idle times and timeouts, in seconds and in milliseconds."""
    guest = start_guest(preload=cell.preload)
    with server.client(guest) as client, guest.access.connection() as brief, guest.access.connection() as patient:

        def ask(*words: Any) -> Any:
            reply = client.command(*words)
            assert not isinstance(reply, hiredis.ReplyError), f"{words!r:.100}: {reply}"
            return reply

        ask("CONFIG", "RESETSTAT")
        ask("SET", "brief", 1, "PX", (weeks - 100) * 1000)
        ask("SET", "patient", "text", "PX", (weeks + LASTING) * 1000)
        ask("XADD", "s", "1-1", "f", "v")
        ask("XGROUP", "CREATE", "s", "g", 0)
        ask("XREADGROUP", "GROUP", "g", "me", "STREAMS", "s", ">")
        if not cell.lacks("command acl|log"):
            assert isinstance(client.pipeline([("AUTH", "nobody", "wrong")])[0], hiredis.ReplyError)
        brief.sendall(b"BLPOP nothing %d\r\n" % (weeks - 100))
        patient.sendall(b"BLPOP nothing %d\r\n" % (weeks + LASTING))
        link.await_that(
            lambda: info_fields(ask("INFO", "clients"))["blocked_clients"] == "2", [guest], "both clients to block"
        )
        ask("DEBUG", "SLEEP", weeks)
        link.await_that(
            lambda: info_fields(ask("INFO", "clients"))["blocked_clients"] == "1", [guest], "one client's timeout"
        )
        assert brief.recv(100) == b"*-1\r\n"
        assert ask("EXISTS", "brief") == 0
        assert LASTING - SLACK <= ask("TTL", "patient") <= LASTING
        # A timer of the server reads this clock ten times a second.
        link.await_that(lambda: near(ask("OBJECT", "IDLETIME", "patient"), weeks), [guest], "the key's idle time")
        about = info_fields(ask("INFO", "server"))
        assert near(about["uptime_in_seconds"], weeks)
        assert int(about["uptime_in_days"]) == int(about["uptime_in_seconds"]) // DAY_SECONDS
        if reads_moved_clock(about):
            assert_long_command_is_told(ask, weeks)
        listed = [
            dict(word.split("=", 1) for word in line.split()) for line in ask("CLIENT", "LIST").decode().splitlines()
        ]
        assert all(near(one["age"], weeks) for one in listed), f"CLIENT LIST says {listed}"
        assert near(max(int(one["idle"]) for one in listed), weeks), f"CLIENT LIST says {listed}"
        ((_, _, idle, _),) = ask("XPENDING", "s", "g", "-", "+", 10)
        assert near(idle / 1000, weeks), f"XPENDING says {idle}"
        (consumer,) = ask("XINFO", "CONSUMERS", "s", "g")
        idle = dict(zip(consumer[::2], consumer[1::2], strict=True))[b"idle"]
        assert near(idle / 1000, weeks), f"XINFO CONSUMERS says {consumer}"
        if not cell.lacks("command acl|log"):
            (entry,) = ask("ACL", "LOG")
            age = dict(zip(entry[::2], entry[1::2], strict=True))[b"age-seconds"]
            assert near(age, weeks), f"ACL LOG says {entry}"
        assert ask("XCLAIM", "s", "g", "you", (weeks + SLACK) * 1000, "1-1", "JUSTID") == []
        assert ask("XCLAIM", "s", "g", "you", (weeks - 100) * 1000, "1-1", "JUSTID") == [b"1-1"]


def assert_long_command_is_told(ask: Callable[..., Any], seconds: float) -> None:
    """SLOWLOG, and the statistics of commands and of the event loop, report how long DEBUG took, in microseconds."""
    durations = [entry[2] for entry in ask("SLOWLOG", "GET", 10) if bytes(entry[3][0]).upper() == b"DEBUG"]
    assert len(durations) == 1, f"SLOWLOG has {len(durations)} entries of DEBUG"
    assert near(durations[0] / 10**6, seconds), f"SLOWLOG says {durations}"
    stats = info_fields(ask("INFO", "commandstats"))
    # Since 7.0 the subcommands of a container have their own statistics.
    told = next(stats[name] for name in ("cmdstat_debug", "cmdstat_debug|sleep") if name in stats)
    counted = dict(word.split("=", 1) for word in told.split(","))
    assert near(int(counted["usec"]) / 10**6, seconds), f"INFO says {counted}"
    assert near(float(counted["usec_per_call"]) * int(counted["calls"]) / 10**6, seconds), f"INFO says {counted}"
    loop = info_fields(ask("INFO", "stats"))
    for name in ("eventloop_duration_sum", "eventloop_duration_cmd_sum"):
        assert name not in loop or near(int(loop[name]) / 10**6, seconds), f"INFO says {name}:{loop[name]}"


@pytest.mark.parametrize("seconds", SLOW_COMMANDS)
def test_a_slow_command_is_in_the_last_class_of_its_histogram(
    cell: CellSpec, start_guest: StartGuest, seconds: int
) -> None:
    """LATENCY HISTOGRAM counts in nanoseconds, up to a second."""
    require(cell, "command latency|histogram")
    with server.client(start_guest(preload=cell.preload)) as client:
        if not reads_moved_clock(info_fields(client.command("INFO", "server"))):
            pytest.skip("the server reads the processor's own counter, which the test cannot move")
        _, _, told = client.pipeline([("CONFIG", "RESETSTAT"), ("DEBUG", "SLEEP", seconds), ("LATENCY", "HISTOGRAM")])
    histograms = dict(zip(told[::2], told[1::2], strict=True))  # type: ignore[index,arg-type]
    # Since 7.0 the subcommands of a container may have their own.
    found = next(histograms[name] for name in (b"debug|sleep", b"debug") if name in histograms)
    counts = dict(zip(found[::2], found[1::2], strict=True))[b"histogram_usec"]
    assert len(counts) == 2, f"DEBUG SLEEP {seconds} is in several classes: {counts}"
    assert (counts[0] >= 10**6, counts[1]) == (True, 1), f"DEBUG SLEEP {seconds} is in the class of {counts[0]} us"


@pytest.mark.parametrize("seconds", SLEEPS)
def test_a_sleep_is_as_long_as_it_was_asked_for(cell: CellSpec, start_guest: StartGuest, seconds: str) -> None:
    with server.client(start_guest(preload=cell.preload)) as client:
        before, _, after = client.pipeline([("TIME",), ("DEBUG", "SLEEP", seconds), ("TIME",)])
    elapsed = int(after[0]) - int(before[0])  # type: ignore[index,arg-type]
    assert near(elapsed, int(seconds.partition(".")[0])), f"a sleep of {seconds} s lasts {elapsed} s"
