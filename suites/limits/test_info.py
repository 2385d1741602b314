"""INFO reports the same counts on every machine if the servers did the same."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from harness.protocol.resp import info_fields
from suites._shared.needs import require
from suites._shared.paired_servers import differing

if TYPE_CHECKING:
    from harness.protocol.resp import Client
    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest
    from suites._shared.paired_servers import PairedServers

SECTIONS = ("memory", "persistence", "stats", "replication", "keyspace", "errorstats", "cluster")
WIDE = {"maxmemory": (1 << 40) + 5, "repl-backlog-size": (1 << 33) + 16384}
"""Settings that INFO reports -> values of more than 32 bits."""
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
FAR = 1 << 40
"""Milliseconds."""
WAIT_SECONDS = 30.0
"""Time limit: a server looks for expired keys every tenth of a second."""
NOT_COUNTED = re.compile(
    r"instantaneous|cpu|(?<!max)mem|rss|frag|alloc|fork|time|usec|seconds|clock|client|id\b|cow|reads_|writes_|net_|connections|"
    r"commands_processed|lazyfree|total_system|eventloop|duration|ttl|lua|script|vm_|functions|peak|io_threads|buffer|"
    r"active_defrag|avg|offset|evicted_scripts|cycle|expires|rdb_bgsave|rdb_last|changes|defrag|migrate"
)
"""Fields that depend on the machine, on time, or on what other tests did before."""
_AVERAGE = re.compile(r",(avg_ttl|subexpiry|keys_with_volatile_items).*")
"""The part after a database's numbers of keys, which depends on the time."""


def test_what_is_counted_is_the_same(both: PairedServers, cell: CellSpec) -> None:
    both.ask([("CONFIG", "RESETSTAT"), *(("CONFIG", "SET", name, value) for name, value in WIDE.items()), *REQUESTS])
    try:
        ours, theirs = (fields(client) for client in (both.guest, both.oracle))
    finally:
        both.ask([("CONFIG", "SET", "maxmemory", 0), ("CONFIG", "SET", "repl-backlog-size", 1 << 20)])
    settings = {name.replace("-", "_"): str(value) for name, value in WIDE.items()}
    settings = {name: value for name, value in settings.items() if not cell.lacks(f"info {name}")}
    assert {name: theirs.get(name) for name in settings} == settings
    ours, theirs = ({name: _AVERAGE.sub("", value) for name, value in each.items()} for each in (ours, theirs))
    compared = [name for name in theirs if not NOT_COUNTED.search(name)]
    assert settings.keys() <= set(compared), "a setting's field is not compared"
    wrong = [name for name in compared if ours.get(name) != theirs[name]]
    if wrong:
        message = ", ".join(f"{name} {ours.get(name)}, native {theirs[name]}" for name in wrong[:6])
        raise differing(("INFO",), ours.get(wrong[0], "").encode(), theirs[wrong[0]].encode(), both.target, message)


def test_what_tracking_and_sanitising_count_is_the_same(both: PairedServers, cell: CellSpec) -> None:
    require(cell, "option sanitize-dump-payload")
    both.ask([("CONFIG", "RESETSTAT"), ("CONFIG", "SET", "sanitize-dump-payload", "yes"), ("DEL", "copy", "packed")])
    payload = both.ask([("RPUSH", "packed", "a", 1), ("DUMP", "packed")])[1]
    both.ask([("RESTORE", "copy", 0, payload)])
    counted = ("tracking_total_keys", "tracking_total_items", "tracking_total_prefixes", "dump_payload_sanitizations")
    counts = [_tracked(client, counted) for client in (both.guest, both.oracle)]
    both.ask([("CONFIG", "SET", "sanitize-dump-payload", "no"), ("DEL", "copy", "packed")])
    assert counts == [[1, 1, 3, 1]] * 2


def _tracked(client: Client, counted: tuple[str, ...]) -> list[int]:
    """A server's counts after a client has read a key with tracking on, and then tracks three prefixes."""
    redirect = ("CLIENT", "TRACKING", "ON", "REDIRECT", client.command("CLIENT", "ID"))
    client.pipeline([redirect, ("GET", "none"), ("CLIENT", "TRACKING", "OFF")])
    client.pipeline([(*redirect, "BCAST", "PREFIX", "a", "PREFIX", "b", "PREFIX", "c")])
    stats = info_fields(client.command("INFO", "stats"))
    client.command("CLIENT", "TRACKING", "OFF")
    return [int(stats[name]) for name in counted]


def test_the_average_time_to_live_is_told(both: PairedServers, cell: CellSpec) -> None:
    both.ask([("SELECT", 7), ("SET", "key", "value", "PX", FAR), ("SELECT", 0)])
    deadline = time.monotonic() + cell.runner.target.host_deadline_seconds(WAIT_SECONDS)
    while not (average := _average(both.guest)) and time.monotonic() < deadline:
        time.sleep(0.05)
    both.ask([("SELECT", 7), ("DEL", "key"), ("SELECT", 0)])
    assert FAR - 3_600_000 < average <= FAR


def test_clients_tell_what_they_listen_to_and_what_they_queue(guest: Guest, oracle: Guest) -> None:
    for server in (guest, oracle):
        with server.client() as listener, server.client() as queueing, server.client() as asking:
            listener.command("CLIENT", "SETNAME", "listener")
            listener.pipeline([("SUBSCRIBE", "a"), ("SUBSCRIBE", "b"), *(("PSUBSCRIBE", name) for name in "xyz")])
            queueing.pipeline([("CLIENT", "SETNAME", "queueing"), ("MULTI",), *[("GET", "none")] * 300])
            lines = bytes(asking.command("CLIENT", "LIST")).decode().splitlines()  # type: ignore[arg-type]
        clients = [dict(word.split("=", 1) for word in line.split(" ")) for line in lines]
        counts = {one["name"]: [one[name] for name in ("sub", "psub", "multi")] for one in clients if one["name"]}
        assert counts == {"listener": ["2", "3", "-1"], "queueing": ["0", "0", "300"]}, server.name


def _average(client: Client) -> int:
    """The average time to live of the keys of database 7, in milliseconds; 0 before the server has sampled one."""
    found = re.search(r"avg_ttl=(\d+)", info_fields(client.command("INFO", "keyspace"))["db7"])
    assert found is not None
    return int(found[1])


def fields(client: Client) -> dict[str, str]:
    """Field -> value, from the sections with counts."""
    found: dict[str, str] = {}
    for section in SECTIONS:
        found |= info_fields(client.command("INFO", section))
    return found
