"""The client's modes that run until the server ends print the server's events, on every machine."""

from __future__ import annotations

import contextlib
import re
import socket
from typing import TYPE_CHECKING, Any

import pytest

from harness.core.target_model import ORACLE
from harness.protocol.resp import Client, info_fields
from suites._shared.keyspace import server
from suites._shared.programs import SECONDS, address

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.protocol.resp import Reply
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.ports import Ports
    from suites._shared.programs import Programs

LEAST = -(1 << 63)
CHANGES: list[tuple[str | bytes | int, ...]] = [
    ("SET", "bytes", bytes(range(256))),
    ("SET", "number", LEAST),
    ("INCRBY", "number", (1 << 63) - 1),
    ("RPUSH", "list", b"", b"\r\n", "x" * 2000),
    ("PEXPIREAT", "list", (1 << 40) + 1),
]


Step = tuple["Callable[[Client], bool]", "Sequence[Sequence[str | bytes | int]]"]
"""A condition under which the server is ready for requests, and the requests."""


@pytest.fixture
def native(start_guest: StartGuest) -> Guest:
    """A native server for one test."""
    return start_guest(target=ORACLE, options=[*server.OPTIONS, "--repl-diskless-sync-delay", "0"])


def in_turn(native: Guest, *steps: Step) -> Callable[[], None]:
    """Returns a function to call while a program runs: it sends the requests of each step once the server is ready for
    them.
    """
    left = list(steps)

    def send() -> None:
        with server.client(native) as client:
            if left and left[0][0](client):
                client.pipeline(left.pop(0)[1])

    return send


def test_a_replica_prints_what_its_primary_does(programs: Programs, native: Guest) -> None:
    def listening(client: Client) -> bool:
        # The replica's last command acknowledges the file.
        replicas: Any = client.command("CLIENT", "LIST", "TYPE", "replica")
        return b"cmd=replconf" in replicas

    printed = []
    for target in (ORACLE, programs.target):
        with server.client(native) as client:
            client.command("FLUSHALL")
        # The server sends the changes to the replica before it answers another client.
        end = (listening, [("CLIENT", "KILL", "TYPE", "replica")])
        change = in_turn(native, (listening, CHANGES), end)
        words = [*address(native), "--replica"]
        result = programs.run("cli", *words, target=target, meanwhile=change)
        printed.append([line for line in result.output.splitlines() if re.match(rb'"(?!ping|SELECT)', line)])
        assert len(printed[-1]) >= len(CHANGES), result.text[-500:]
    assert printed[1] == printed[0]
    assert b'"SET","number","%d"' % LEAST in printed[1]


def test_statistics_are_those_of_the_server(programs: Programs, native: Guest) -> None:
    own = 0
    with server.client(native) as client:
        client.pipeline([("CONFIG", "RESETSTAT"), *(("SET", number, "v" * 100_000) for number in range(20))])

    def reported_twice(client: Client) -> bool:
        nonlocal own
        counts = info_fields(client.command("INFO", "commandstats")).get("cmdstat_info", "calls=0,")
        twice = int(counts.removeprefix("calls=").partition(",")[0]) - own >= 2
        own += 1
        return twice

    refuse = in_turn(native, (reported_twice, [("ACL", "SETUSER", "default", "-info")]))
    words = [*address(native), "--stat", "-i", "0.05"]
    output = programs.run("cli", *words, meanwhile=refuse).text
    with server.client(native) as client:
        client.command("ACL", "SETUSER", "default", "+info")
    rows = [line.split() for line in output.splitlines() if line[:1].isdigit()]
    assert len(rows) >= 2, output
    for keys, memory, clients, blocked, requests, change, connections in rows:
        assert (keys, blocked) == ("20", "0"), output
        # 20 values of 100 kB.
        assert memory.endswith("M"), output
        assert 2 < float(memory[:-1]) < 10, output
        assert 1 <= int(clients) <= 10, output
        assert 20 < int(requests) < 1000, output
        assert re.fullmatch(r"\(\+\d+\)", change), output
        assert 1 <= int(connections) < 1000, output
    counts = [int(row[4]) for row in rows]
    assert counts[1] - counts[0] == int(rows[1][5].strip("(+)")), output


# Without `maxmemory` a 32-bit server writes a limit of 3 GB into the file.
WATCHED = """bind 127.0.0.1
maxmemory 1gb
sentinel monitor watched 127.0.0.1 1 2
sentinel down-after-milliseconds watched 2147483647
sentinel failover-timeout watched 70000
sentinel parallel-syncs watched 3
"""
BEYOND = (1 << 40) + 1
"""Milliseconds that need more than 32 bits."""


def watching(programs: Programs, port: int, target: str) -> dict[bytes, bytes]:
    """Run a sentinel with the file sentinel.conf. Returns the watched primary's fields before the test sets another
    time.
    """
    replies: list[Reply] = []

    timeout = programs.cell.runner.target.host_deadline_seconds(SECONDS)

    def ask() -> None:
        # The sentinel may not listen yet, or no longer.
        with (
            contextlib.suppress(ConnectionError),
            Client(socket.create_connection(("127.0.0.1", port), timeout=timeout)) as client,
        ):
            replies.append(client.command("SENTINEL", "MASTER", "watched"))
            client.command("SENTINEL", "SET", "watched", "failover-timeout", BEYOND)
            client.send(client.pack([("SHUTDOWN", "NOSAVE")]))

    result = programs.run("sentinel", "sentinel.conf", target=target, meanwhile=ask)
    assert replies, result.text[-500:]
    fields: Any = replies[0]
    return dict(zip(fields[::2], fields[1::2], strict=True))


def test_a_sentinel_writes_what_it_is_told(programs: Programs, ports: Ports) -> None:
    kept = []
    for target in (ORACLE, programs.target):
        port = ports.free()
        file = programs.file("sentinel.conf", f"port {port}\n{WATCHED}".encode())
        fields = watching(programs, port, target)
        assert (fields[b"down-after-milliseconds"], fields[b"failover-timeout"]) == (b"2147483647", b"70000")
        lines = sorted(line for line in file.read_text("utf-8").splitlines() if line and line[0] != "#")
        kept.append([re.sub(rf"\b({port}|[0-9a-f]{{40}})\b", "...", line) for line in lines])
    (written,) = [line.rpartition(" ")[2] for line in kept[1] if line.startswith("sentinel failover-timeout ")]
    assert written == str(BEYOND), f"a time of {BEYOND} ms is written as {written} ms"
    assert kept[1] == kept[0]


# This test comes last because every release fails it, and the search for a planted bug ends at the first failure.
def test_a_sentinel_reads_what_it_wrote(programs: Programs, ports: Ports) -> None:
    port = ports.free()
    programs.file("sentinel.conf", f"port {port}\n{WATCHED}".encode())
    watching(programs, port, programs.target)
    timeout = watching(programs, port, programs.target)[b"failover-timeout"]
    assert timeout == b"%d" % BEYOND, f"a time of {BEYOND} ms is read as {timeout.decode()} ms"
