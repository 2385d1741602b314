"""What INFO counts is the same on every machine where both servers did the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.protocol.resp import info_fields
from suites._shared.paired_servers import differing

if TYPE_CHECKING:
    from harness.protocol.resp import Client
    from suites._shared.paired_servers import PairedServers

SECTIONS = ("memory", "persistence", "stats", "replication", "keyspace", "errorstats", "cluster")
WIDE = {"maxmemory": (1 << 40) + 5, "repl-backlog-size": (1 << 33) + 16384}
"""Settings that INFO tells, and numbers of more than 32 bits for them."""
REQUESTS = [
    ("SET", "key", "value", "PX", 1 << 40),
    ("GET", "key"),
    ("GET", "none"),
    ("RPUSH", "list", *range(300)),
    ("NONE", "such"),
    ("INCR", "list"),
    ("SELECT", 9),
    ("SADD", "set", 1 << 40, "x"),
    ("SELECT", 0),
]
NOT_COUNTED = re.compile(
    r"instantaneous|cpu|(?<!max)mem|rss|frag|alloc|fork|time|usec|seconds|clock|client|id\b|cow|reads_|writes_|net_|connections|"
    r"commands_processed|lazyfree|total_system|eventloop|duration|ttl|lua|script|vm_|functions|peak|io_threads|buffer|"
    r"active_defrag|avg|offset|evicted_scripts|cycle|expires|rdb_bgsave|rdb_last|changes|defrag|migrate"
)
"""Fields that depend on the machine, on time, or on what other tests did before."""
_AVERAGE = re.compile(r",(avg_ttl|subexpiry|keys_with_volatile_items).*")
"""What follows the numbers of keys of a database, and depends on the moment."""


def test_what_is_counted_is_the_same(both: PairedServers) -> None:
    both.ask([("CONFIG", "RESETSTAT"), *(("CONFIG", "SET", name, value) for name, value in WIDE.items()), *REQUESTS])
    try:
        ours, theirs = (fields(client) for client in (both.guest, both.oracle))
    finally:
        both.ask([("CONFIG", "SET", "maxmemory", 0), ("CONFIG", "SET", "repl-backlog-size", 1 << 20)])
    assert theirs["maxmemory"] == str(WIDE["maxmemory"]), theirs["maxmemory"]
    ours, theirs = ({name: _AVERAGE.sub("", value) for name, value in each.items()} for each in (ours, theirs))
    compared = [name for name in theirs if not NOT_COUNTED.search(name)]
    assert {name.replace("-", "_") for name in WIDE} <= set(compared), "what is told of the settings is not compared"
    wrong = [name for name in compared if ours.get(name) != theirs[name]]
    if wrong:
        told = ", ".join(f"{name} {ours.get(name)}, native {theirs[name]}" for name in wrong[:6])
        raise differing(("INFO",), ours.get(wrong[0], "").encode(), theirs[wrong[0]].encode(), both.target, told)


def fields(client: Client) -> dict[str, str]:
    """Field -> value, of the sections that count."""
    found: dict[str, str] = {}
    for section in SECTIONS:
        found |= info_fields(client.command("INFO", section))
    return found
