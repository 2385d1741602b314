"""A server whose memory blocks all end at a guard page stores, changes, shows, saves and loads data as any other does.
The C library's blocks are longer than requested, which hides accesses slightly beyond the end. Here they fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness.core.target_model import ORACLE
from suites._shared import link
from suites._shared.keyspace import server
from suites._shared.paired_servers import PairedServers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.ports import Ports

LENGTHS = [1, 7, 8, 31, 32, 44, 45, 63, 64, 255, 256, 5000]
"""Lengths around which strings get another header, or values another encoding."""
FUNCTION = "#!lua name=overruns\nredis.register_function('first', function(keys, args) return args[1] end)"
PROGRAM = """\
local made = {}
for i = 1, 200 do made[i] = cjson.encode({i, tostring(i), {n = i / 3}}) end
local packed = cmsgpack.pack(made, 2^40, -1, 'text')
return {#table.concat(made, ','), #packed, redis.sha1hex(packed), struct.pack('>I2i4d', 7, -7, 0.5)}
"""
POINTS = [13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"]
NEAR = ["FROMLONLAT", 15, 37, "BYRADIUS", 300, "km", "ASC", "WITHCOORD", "WITHDIST", "WITHHASH"]
# A release that lacks a command or an option refuses it with the native build's message.
AFFAIRS: dict[str, list[Sequence[Any]]] = {
    "strings": [
        *(["SET", f"s{length}", "x" * length] for length in LENGTHS),
        *(["APPEND", f"s{length}", "y" * length] for length in LENGTHS),
        *(["SETRANGE", f"s{length}", length * 3, "z"] for length in LENGTHS),
        *(["GETRANGE", f"s{length}", length, -2] for length in LENGTHS),
        *(["LCS", f"s{length}", "s64", "IDX"] for length in LENGTHS[:8]),
        ["MSETNX", *[word for length in LENGTHS for word in (f"m{length}", length)]],
        ["INCRBYFLOAT", "m7", "0.5"],
    ],
    "bits": [
        *(["SETBIT", f"b{length}", length * 8 - 1, 1] for length in LENGTHS),
        *(["BITCOUNT", f"b{length}", 1, -1] for length in LENGTHS),
        *(["BITPOS", f"b{length}", 1] for length in LENGTHS),
        *(["BITOP", name, f"r{name}", "b7", "b64", "b5000"] for name in ("AND", "OR", "XOR")),
        *(["BITFIELD", f"b{length}", "GET", "u8", length * 8 - 8, "INCRBY", "i64", 1, -1] for length in LENGTHS),
    ],
    "lists": [
        *(["RPUSH", "l", "x" * length, length] for length in LENGTHS),
        *(["LPUSH", "l", *range(number, number + 40)] for number in (0, 200, 40000)),
        ["LINSERT", "l", "BEFORE", "7", "between"],
        ["LSET", "l", 60, "y" * 300],
        ["LPOS", "l", "31", "RANK", -1],
        ["LREM", "l", 0, "8"],
        ["LTRIM", "l", 1, 100],
        ["LMPOP", "1", "l", "RIGHT", "COUNT", 5],
        ["SORT", "l", "ALPHA", "DESC", "LIMIT", 0, 20, "GET", "#", "GET", "s*"],
        ["LRANGE", "l", 0, -1],
    ],
    "sets and hashes": [
        *(["SADD", f"i{bits}", *(2**bits - number for number in range(20))] for bits in (7, 15, 31, 62)),
        *(["SADD", f"i{bits}", "text"] for bits in (15, 62)),
        ["SINTERSTORE", "both", "i7", "i15"],
        ["SUNIONSTORE", "every", "i7", "i15", "i31"],
        ["SCARD", "every"],
        *(["HSET", f"h{length}", "f" * length, "v" * length, "n", length] for length in LENGTHS),
        *(["HINCRBY", f"h{length}", "n", 2**40] for length in LENGTHS),
        *(["HDEL", f"h{length}", "f" * length] for length in LENGTHS),
    ],
    "sorted sets": [
        *(["ZADD", "z", number / 3, f"member:{number}"] for number in range(150)),
        ["ZINCRBY", "z", 1e9, "member:3"],
        ["ZRANGE", "z", "(3", "(20", "BYSCORE", "WITHSCORES"],
        ["ZREMRANGEBYRANK", "z", 10, 30],
        ["ZUNIONSTORE", "zu", 2, "z", "i7", "WEIGHTS", 2, 0.5],
        ["ZDIFFSTORE", "zd", 2, "zu", "z"],
        ["ZRANGE", "zu", 0, -1, "WITHSCORES"],
        ["GEOADD", "g", *POINTS],
        ["GEOSEARCH", "g", *NEAR],
        ["GEOHASH", "g", "Palermo", "Catania"],
    ],
    "streams": [
        *(["XADD", "x", f"{number}-1", *(["f", number] * (1 + number % 3))] for number in range(1, 150)),
        ["XGROUP", "CREATE", "x", "one", 0],
        ["XREADGROUP", "GROUP", "one", "me", "COUNT", 40, "STREAMS", "x", ">"],
        ["XACK", "x", "one", *(f"{number}-1" for number in range(1, 20))],
        ["XDEL", "x", "30-1", "31-1"],
        ["XTRIM", "x", "MAXLEN", 60],
        ["XAUTOCLAIM", "x", "one", "you", 0, 0, "COUNT", 5, "JUSTID"],
        ["XRANGE", "x", "-", "+", "COUNT", 50],
    ],
    "counters of elements": [
        *(["PFADD", f"p{number % 3}", *range(number * 50, number * 50 + 50)] for number in range(60)),
        ["PFMERGE", "p", "p0", "p1", "p2"],
        ["PFCOUNT", "p"],
        ["PFCOUNT", "p0", "p1"],
        ["GETRANGE", "p", 0, 40],
    ],
    "scripts": [
        ["EVAL", PROGRAM, 0],
        ["EVAL", "return redis.call('SORT', KEYS[1], 'ALPHA')", 1, "i7"],
        ["EVAL", "return redis.pcall('NOTHING', string.rep('x', 300))", 0],
        ["SCRIPT", "LOAD", "return 1"],
        ["SCRIPT", "FLUSH"],
        ["FUNCTION", "LOAD", FUNCTION],
        ["FCALL", "first", 0, "a" * 300],
        ["FUNCTION", "FLUSH"],
    ],
    "transactions and subscriptions": [
        ["WATCH", "s1", "l", "nothing"],
        ["MULTI"],
        *(["INCRBY", f"n{number}", 2**number] for number in range(40)),
        ["EXEC"],
        ["SUBSCRIBE", "channel:0"],
        ["PSUBSCRIBE", "pattern:*"],
        ["PUNSUBSCRIBE", "pattern:*"],
        ["UNSUBSCRIBE", "channel:0"],
        ["PUBLISH", "channel:0", "x" * 300],
    ],
    "users and settings": [
        ["ACL", "SETUSER", "u", "on", ">password", "~a*", "%R~b*", "&c*", "+@all", "-@dangerous", "+config|get"],
        ["ACL", "GETUSER", "u"],
        ["ACL", "DRYRUN", "u", "SET", "c", 1],
        ["ACL", "LIST"],
        ["ACL", "DELUSER", "u"],
        ["CONFIG", "SET", "save", "360000 1000000 36000 10000000"],
        ["CONFIG", "GET", "save"],
        ["CONFIG", "SET", "save", ""],
        ["CONFIG", "GET", "client-output-buffer-limit"],
        ["CLIENT", "SETNAME", "n" * 60],
        ["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "none:"],
        ["CLIENT", "TRACKING", "OFF"],
    ],
    "logs": [
        ["CONFIG", "SET", "slowlog-log-slower-than", 0],
        ["SLOWLOG", "RESET"],
        *(["ECHO", "x" * length] for length in LENGTHS),
        ["SLOWLOG", "LEN"],
        ["SLOWLOG", "RESET"],
        ["CONFIG", "SET", "slowlog-log-slower-than", -1],
        ["CONFIG", "SET", "latency-monitor-threshold", 1],
        ["DEBUG", "SLEEP", 0.01],
        ["LATENCY", "RESET", "command"],
        ["CONFIG", "SET", "latency-monitor-threshold", 0],
    ],
    # A separate list, because redis-8.0.6 does not reply to it after other commands
    # (docs/found/failed-auth-without-reply.md).
    "a wrong password": [["AUTH", "nobody", "wrong"]],
    "keys": [
        ["ACL", "LOG", "RESET"],
        ["COPY", "l", "l:copy"],
        ["RENAME", "z", "z:renamed"],
        ["MOVE", "s45", 1],
        ["SWAPDB", 0, 1],
        ["SWAPDB", 0, 1],
        ["EXPIRE", "l:copy", 1000],
        ["OBJECT", "ENCODING", "l:copy"],
        ["UNLINK", "h5000", "x", "i62"],
        ["DEBUG", "RELOAD"],
        ["DEBUG", "DIGEST"],
        ["FLUSHALL", "ASYNC"],
    ],
}


@pytest.fixture
def guarded(start_guest: StartGuest, oracle: Guest, cell: CellSpec) -> Iterator[PairedServers]:
    """A guarded guest and the oracle, both empty."""
    with start_guest(preload=cell.preload).client() as guest, oracle.client() as native:
        pair = PairedServers(guest, native, target=cell.runner.target.name, seed=cell.seed, tier=cell.tier)
        pair.oracle.command("FLUSHALL")
        yield pair


def test_requests_are_answered_as_in_the_native_build(guarded: PairedServers) -> None:
    for requests in AFFAIRS.values():
        guarded.ask(requests)


def test_the_data_set_is_stored_saved_loaded_and_freed(cell: CellSpec, start_guest: StartGuest, family: str) -> None:
    if cell.tier == "quick" and not cell.patient:
        pytest.skip("it takes an emulated machine half a minute: only in the tiers full and thorough")
    guest = start_guest(preload=cell.preload, options=server.OPTIONS)
    server.write(guest, family)
    stored = server.snapshot(guest)
    second = start_guest(preload=cell.preload, options=server.OPTIONS, files={"dump.rdb": server.saved(guest)})
    assert server.snapshot(second) == stored
    with server.client(second) as client:
        assert client.command("FLUSHALL") == b"OK"


def test_a_sentinel_fails_over(cell: CellSpec, start_guest: StartGuest, ports: Ports) -> None:
    """The sentinel copies the addresses of the servers that it watches. They run natively, without guard pages."""
    primary, port = link.on_a_port(start_guest, ports, ORACLE, *link.WITHOUT_DELAY)
    replica, replica_port = link.on_a_port(start_guest, ports, ORACLE, *link.WITHOUT_DELAY)
    link.join(replica, primary, port=port)
    text = f"sentinel monitor watched 127.0.0.1 {port} 1\n"
    sentinel = start_guest(
        preload=cell.preload, options=["sentinel.conf", "--sentinel"], files={"sentinel.conf": text.encode()}
    )
    everybody = [primary, replica, sentinel]

    def asked(what: str) -> Any:
        with server.client(sentinel) as client:
            return client.pipeline([("SENTINEL", what, "watched")])[0]

    link.await_that(lambda: len(asked("REPLICAS")) == 1, everybody, "the sentinel to know the replica")
    # It refuses until it knows the replica's state.
    link.await_that(lambda: isinstance(asked("FAILOVER"), bytes), everybody, "the sentinel to fail over")
    due = [b"127.0.0.1", str(replica_port).encode()]
    link.await_that(lambda: asked("GET-MASTER-ADDR-BY-NAME") == due, everybody, "the sentinel to know the new primary")
    link.await_that(lambda: len(asked("REPLICAS")) == 1, everybody, "the sentinel to know the old primary as a replica")
