"""What DEBUG prints and reports about values, tables, clients and structures. test_switches.py tests its changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from suites._shared import link
from suites._shared.keyspace import dataset, server
from suites._shared.paired_servers import differing

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest
    from suites._shared.paired_servers import PairedServers

PLAIN_BYTES = 100
"""The length from which an element of a list has its own block."""
INTEGERS = [0, 127, 128, -1, -4096, 4095, 32767, -32768, 8388607, -8388608, 2147483647, -(2**31), 2**63 - 1, -(2**63)]
"""The limits of the integers of 7 to 64 bits in a listpack."""
LENGTHS = [1, 39, 40, 41, 63, 64, 500]
"""The representation shows 40 bytes. The lengths in a listpack have 6, 12 or 32 bits. The server would print an empty
string as an output error, in words that depend on the last error."""
_UNLIKE = re.compile(rb"\baddr: 0x[0-9a-f]+|\battempted_compress: [01]")
"""Addresses, and a bit of list nodes that no release sets before it compresses the node."""
_NUMBER = re.compile(rb"^ *(?:table size|number of (?:elements|entries)): ([0-9]+)$", re.MULTILINE)
REASONS = {
    "ASSERT": "ends the server: upstream's tests",
    "CRASH-AND-RECOVER": "ends the process and starts it again, which an emulated process cannot",
    "OOM": "ends the server: upstream's tests",
    "PANIC": "ends the server: upstream's tests",
    "RESTART": "starts the process again, which an emulated process cannot",
    "SEGFAULT": "ends the server: upstream's tests",
    "LEAK": "loses memory, which a detector reports",
    "STRINGMATCH-TEST": "matches ten million random patterns: minutes on an emulated machine",
    "CONFIG-REWRITE-FORCE-ALL": "test_settings.py",
    "SLEEP": "protocol/server.testsuite",
    "DIGEST": "protocol/debug.testsuite",
    "DIGEST-VALUE": "protocol/debug.testsuite",
    "POPULATE": "protocol/debug.testsuite",
    "PROTOCOL": "protocol/debug.testsuite",
    "SDSLEN": "protocol/debug.testsuite",
    "QUICKLIST-PACKED-THRESHOLD": "protocol/debug.testsuite",
    "MALLCTL": "heap/test_allocator.py",
    "MALLCTL-STR": "heap/test_allocator.py",
    "DROP-CLUSTER-PACKET-FILTER": "upstream's tests",
    "CLUSTERLINK": "upstream's tests",
    "CLOSE-CLUSTER-LINK-ON-PACKET-DROP": "upstream's tests",
    "DISABLE-CLUSTER-RANDOM-PING": "upstream's tests",
    "DISABLE-CLUSTER-RECONNECTION": "upstream's tests",
    "SLOTMIGRATION": "upstream's tests",
    "REPL-PAUSE": "upstream's tests",
    "PAUSE-AFTER-FORK": "upstream's tests",
    "DELAY-RDB-CLIENT-FREE-SECONDS": "upstream's tests",
    "DELAY-RDB-CLIENT-FREE-SECOND": "upstream's tests",
    "DICT-RESIZING": "upstream's tests",
    "HASHTABLE-CAN-ABORT-SHRINK": "upstream's tests",
    "CLIENT-ENFORCE-REPLY-LIST": "upstream's tests",
    "FORCE-FREE-PRIMARY-ASYNC": "upstream's tests",
    "PROTECT-CLIENT": "upstream's tests",
    "FORCE-TLS-WRITE-ERROR": "upstream's tests",
    "SCRIPT": "upstream's tests",
    "INTERNAL_SECRET": "upstream's tests",
    "MARK-INTERNAL-CLIENT": "upstream's tests",
}
"""Subcommand that these tests do not send -> the test that does, or the reason why none does."""
SENT = frozenset(
    [
        "AOF-FLUSH-SLEEP",
        "CHANGE-REPL-ID",
        "CLIENT-EVICTION",
        "ERROR",
        "HELP",
        "HTSTATS",
        "HTSTATS-KEY",
        "LISTPACK",
        "LOADAOF",
        "LOG",
        "OBJECT",
        "PAUSE-CRON",
        "QUICKLIST",
        "RELOAD",
        "REPLICATE",
        "REPLYBUFFER",
        "SET-ACTIVE-EXPIRE",
        "SET-DISABLE-DENY-SCRIPTS",
        "SET-SKIP-CHECKSUM-VALIDATION",
        "STRUCTSIZE",
    ]
)


def test_every_subcommand_is_sent_by_a_test_or_has_a_reason(both: PairedServers) -> None:
    lines: Any = both.guest.command("DEBUG", "HELP")
    # The line of a subcommand is not indented, and begins with its name and its arguments.
    names = {line.split()[0].decode() for line in lines[1:] if line[:1].isalpha() and line.split()[0].isupper()}
    assert {"LISTPACK", "OBJECT", "RELOAD"} <= names, lines
    unknown = sorted(names - SENT - REASONS.keys())
    assert not unknown, f"no test sends DEBUG {', '.join(unknown)}: add a test here, or a reason"


def printed(guest: Guest, *requests: tuple[Any, ...]) -> bytes:
    """The server's standard output, without parts that differ at random. Its log goes there, too."""
    before = guest.evidence.log_bytes()
    with server.client(guest) as client:
        for request in requests:
            reply = client.command(*request)
            assert b"printed on stdout" in bytes(reply), f"{request}: {reply!r}"  # type: ignore[arg-type]
        # The server writes a line of its log at once, together with everything that it printed before.
        client.command("DEBUG", "LOG", "the end")
    mark = b"DEBUG LOG: the end"
    link.await_that(lambda: mark in guest.evidence.log.read_bytes()[before:], [guest], "a line of the log")
    content = guest.evidence.log.read_bytes()[before:]
    # The line of the mark begins with the process, the time and a level sign.
    return _UNLIKE.sub(b"*", content[: content.rindex(b"\n", 0, content.index(mark)) + 1])


def compare_printed(both: PairedServers, guest: Guest, oracle: Guest, *requests: tuple[Any, ...]) -> bytes:
    """The output of both servers, which must be equal."""
    ours, theirs = printed(guest, *requests), printed(oracle, *requests)
    if ours != theirs:
        raise differing(requests[0], ours, theirs, both.target)
    return ours


def test_a_listpack_is_printed_as_it_is(both: PairedServers, guest: Guest, oracle: Guest) -> None:
    both.ask(
        [("CONFIG", "SET", "hash-max-listpack-entries", 1000), ("CONFIG", "SET", "hash-max-listpack-value", 10000)]
    )
    words: list[Any] = [*INTEGERS, *(b"%d:" % length + dataset.noise(length) for length in LENGTHS), "x" * 5000]
    both.ask(
        [("HSET", "hash", *(word for one in words for word in (one, one))), ("ZADD", "zset", 0.5, "a", 2**53, "b")]
    )
    text = compare_printed(both, guest, oracle, ("DEBUG", "LISTPACK", "hash"), ("DEBUG", "LISTPACK", "zset"))
    assert text.count(b"\tindex: ") == 2 * len(words) + 4
    assert b"{num entries %d}" % (2 * len(words)) in text


@pytest.mark.parametrize("compress", [0, 1])
def test_a_list_is_printed_node_by_node(both: PairedServers, guest: Guest, oracle: Guest, compress: int) -> None:
    settings = {"list-max-listpack-size": 4, "list-compress-depth": compress}
    both.ask([("CONFIG", "SET", name, value) for name, value in settings.items()])
    both.ask([("DEBUG", "QUICKLIST-PACKED-THRESHOLD", f"{PLAIN_BYTES}b")])
    # An element with its own block is printed up to the first NUL, which must belong to the element.
    plain = [letter * PLAIN_BYTES + b"\x00" for letter in (b"p", b"q")]
    packed = [*INTEGERS, *(dataset.noise(length) for length in LENGTHS if length < PLAIN_BYTES), b"z" * 90, b"z" * 90]
    both.ask([("RPUSH", "list", *packed, *plain, *packed)])
    try:
        brief = compare_printed(both, guest, oracle, ("DEBUG", "QUICKLIST", "list"))
        full = compare_printed(both, guest, oracle, ("DEBUG", "QUICKLIST", "list", 1))
        assert both.ask([("LRANGE", "list", len(packed), len(packed) + 1)])[0] == plain
    finally:
        both.ask([("DEBUG", "QUICKLIST-PACKED-THRESHOLD", 0), ("CONFIG", "SET", "list-compress-depth", 0)])
        both.ask([("CONFIG", "SET", "list-max-listpack-size", -2)])
    assert b"{count : %d}" % (2 * len(packed) + len(plain)) in brief
    assert full.count(b"container : PLAIN") == brief.count(b"container : PLAIN") == len(plain)
    assert all(b"{ entry : %s }" % one.rstrip(b"\x00") in full for one in plain)
    assert (b"encoding: LZF" in brief) == bool(compress)


def test_what_prints_a_value_refuses_other_values(both: PairedServers) -> None:
    both.ask([("SET", "k", 1), ("RPUSH", "list", "x" * 10000), ("HSET", "hash", "a", 1)])
    requests = [("DEBUG", what, name) for what in ("QUICKLIST", "HTSTATS-KEY") for name in ("k", "hash", "none")]
    requests += [("DEBUG", "LISTPACK", name) for name in ("k", "list", "none")]
    requests += [("DEBUG", what, "none") for what in ("OBJECT", "SDSLEN")]
    replies = both.ask(requests)
    assert all("ERR" in str(reply) for reply in replies), replies


def described(reply: Any) -> dict[str, str]:
    """The fields of DEBUG OBJECT that depend neither on the time nor on addresses."""
    fields = dict(word.partition(":")[::2] for word in bytes(reply).decode().split())
    assert fields.keys() >= {"refcount", "encoding", "serializedlength", "lru", "lru_seconds_idle"}, reply
    assert 0 <= int(fields["lru"]) < 1 << 24, reply
    assert 0 <= int(fields["lru_seconds_idle"]) < 1 << 24, reply
    return {name: value for name, value in fields.items() if not name.startswith(("at", "lru"))}


def test_debug_object_tells_the_same_of_every_value(
    both: PairedServers, guest: Guest, oracle: Guest, family: str, cell: CellSpec
) -> None:
    for one in (guest, oracle):
        server.write(one, family)
    names: Any = both.guest.command("KEYS", "*")
    assert len(names) > 20
    narrow = 0
    for name in sorted(names):
        ours, theirs = (described(one.command("DEBUG", "OBJECT", name)) for one in (both.guest, both.oracle))
        # Integers are stored as a long, which may have 32 bits.
        if cell.runner.target.width_bits == 32 and ours["encoding"] != theirs["encoding"] == "int":
            number: Any = both.guest.command("GET", name)
            assert not -(2**31) <= int(number) < 2**31, name
            narrow += 1
        else:
            assert ours == theirs, name
    assert narrow < len(names) / 2
    # Removing all keys does not remove functions.
    both.ask([("FLUSHALL",), ("FUNCTION", "FLUSH")])


def numbers(reply: Any) -> list[int]:
    """The sizes and counts of elements in a table's statistics, in their order."""
    return [int(one) for one in _NUMBER.findall(bytes(reply))]


def test_statistics_of_tables_count_what_is_there(both: PairedServers) -> None:
    count = 100
    both.ask([("DEBUG", "POPULATE", count)])
    both.ask([("PEXPIREAT", f"key:{number}", 2**42 - 1) for number in range(10)])
    both.ask([("SADD", "set", *(f"member {number}" for number in range(1000)))])
    both.ask([("ZADD", "zset", *(word for number in range(1000) for word in (number, f"member {number}")))])
    for client in (both.guest, both.oracle):
        counts = numbers(client.command("DEBUG", "HTSTATS", 0))
        # While a server moves a table to a larger one, the statistics have two parts.
        assert sum(counts[1::2]) == count + 2 + 10, counts
        for name in ("set", "zset"):
            counts = numbers(client.command("DEBUG", "HTSTATS-KEY", name))
            assert sum(counts[1::2]) == 1000, counts
            assert all(0 < size < 1 << 16 for size in counts[::2]), counts
    replies = both.ask([("DEBUG", "HTSTATS", number) for number in (-1, 16, "x")])
    assert all("ERR" in str(reply) for reply in replies), replies


def test_sizes_of_structures_are_those_of_the_machine(both: PairedServers, cell: CellSpec) -> None:
    reply: Any = both.guest.command("DEBUG", "STRUCTSIZE")
    sizes = {name: int(size) for name, size in (word.split(":") for word in reply.decode().split())}
    headers = {f"sdshdr{bits}": size for bits, size in ((5, 1), (8, 3), (16, 5), (32, 9), (64, 17))}
    assert {name: sizes[name] for name in headers} == headers
    assert sizes["bits"] == cell.runner.target.width_bits
    assert 8 <= sizes["robj"] <= 16


def test_pools_of_clients_are_told_with_their_limits(both: PairedServers) -> None:
    """The server has twenty pools, each for twice as much memory as the one before. Each client must be in one."""
    assert "disabled" in str(both.ask([("DEBUG", "CLIENT-EVICTION")])[0])
    both.ask([("CONFIG", "SET", "maxmemory-clients", "1gb")])
    try:
        reply: Any = both.guest.command("DEBUG", "CLIENT-EVICTION")
    finally:
        both.ask([("CONFIG", "SET", "maxmemory-clients", 0)])
    rows = [line.split() for line in reply.decode().splitlines()]
    # "bucket 0 - 32767: tot-mem: 0, clients: 1"; the last is "bucket N+ : …".
    begins = [int(words[1].rstrip("+")) for words in rows]
    assert begins == [0, *(2**bits for bits in range(15, 15 + len(rows) - 1))], reply
    assert sum(int(words[-1]) for words in rows) >= 1, reply
