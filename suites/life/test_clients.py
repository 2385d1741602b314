"""The output of MONITOR, the state of a client after RESET, and clients that connect over TCP."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

import pytest

from harness.core.sockets import connect
from harness.protocol.command_stream import from_text
from harness.protocol.resp import Client, ServerGoneError
from suites._shared import link
from suites._shared.keyspace import dataset, server
from suites._shared.paired_servers import EDGE_LENGTHS, HEADER_LENGTHS, differing

if TYPE_CHECKING:
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.paired_servers import PairedServers
    from suites._shared.ports import Ports

END = "the last one"
STREAM = rf"""
SET k "\x00\x01\x1f\x20\x7e\x7f\x80\xff\"\\\r\n\t\a\b"
SET k 9223372036854775807
INCRBY k -9223372036854775808
APPEND k ""
SELECT 15
LPUSH list a "\xe4" -1
EVAL "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('INCR', KEYS[2])" 2 a b "\xff"
MULTI
GET k
EXEC
AUTH nobody secret
HELLO 2 AUTH nobody secret SETNAME name
ACL SETUSER user >secret
CONFIG SET requirepass ""
MIGRATE 127.0.0.1 1 none 0 1 AUTH secret
SUBSCRIBE channel
UNSUBSCRIBE channel
NOSUCH command
GET
ACL DELUSER user
FLUSHALL
ECHO "{END}"
"""
_STAMP = re.compile(rb"^[0-9]+\.[0-9]{6} \[([0-9]+) ([^\]]*)\] ")


def heard(guest: Guest) -> list[bytes]:
    """The output of MONITOR during STREAM, with placeholders for times and addresses."""
    lines: list[bytes] = []
    with server.client(guest) as monitor, server.client(guest) as client:
        assert monitor.command("MONITOR") == b"OK"
        for one in from_text(STREAM):
            # One at a time: some releases do not answer a refused AUTH that follows other requests in the same write.
            client.pipeline([one.words])
        while not lines or END.encode() not in lines[-1]:
            line: Any = monitor.receive()
            found = _STAMP.match(line)
            assert found, f"no time, database and address: {line!r:.200}"
            where = b"lua" if found[2] == b"lua" else b"address"
            lines.append(b"[%s %s] %s" % (found[1], where, line[found.end() :]))
    return lines


def test_a_monitor_hears_what_was_called_and_no_password(both: PairedServers, guest: Guest, oracle: Guest) -> None:
    ours, theirs = heard(guest), heard(oracle)
    for line, due in zip(ours, theirs, strict=True):
        if line != due:
            raise differing(("MONITOR",), line, due, both.target)
    assert not any(b"secret" in line for line in ours)
    assert any(b" lua] " in line and b"\\xff" in line for line in ours)


STATE = ["name", "db", "sub", "psub", "ssub", "watch", "flags", "user", "redir", "resp"]
"""Fields of CLIENT INFO. The suite `protocol` checks `multi` (docs/found/multi-of-no-transaction.md)."""
LEFT_BEHIND: list[list[list[Any]]] = [
    [["CLIENT", "SETNAME", "someone"], ["SELECT", 7], ["HELLO", 3]],
    [["WATCH", "a", "b"], ["MULTI"], ["SET", "a", 1], ["SET", "k", "never"]],
    [["SUBSCRIBE", "a", "b"], ["PSUBSCRIBE", "c*"], ["SSUBSCRIBE", "d"]],
    [["CLIENT", "TRACKING", "on", "BCAST", "PREFIX", "a", "PREFIX", "b"]],
    [["CLIENT", "TRACKING", "on", "OPTIN"], ["CLIENT", "CACHING", "yes"]],
    [["MONITOR"]],
    [["CLIENT", "REPLY", "ON"], ["AUTH", "user", "secret"], ["READONLY"]],
]
"""The requests of a client before RESET."""


def about(client: Client) -> dict[str, str]:
    """The fields of CLIENT INFO."""
    reply: Any = client.command("CLIENT", "INFO")
    return dict(word.partition("=")[::2] for word in bytes(reply).decode().split())


def test_a_client_that_is_reset_is_as_a_new_one(both: PairedServers, guest: Guest) -> None:
    both.ask([["ACL", "SETUSER", "user", "on", ">secret", "allkeys", "allchannels", "+@all"]])
    for requests in LEFT_BEHIND:
        with server.client(guest) as client, server.client(guest) as new:
            client.pipeline(requests)
            # Each subscription ends with a push message, before the reply.
            client.send(client.pack([("RESET",), ("PING", "done")]))
            last: Any = None
            while last != b"done":
                last, reply = client.receive(), last
            assert reply == b"RESET", f"{requests}: {reply!r}"
            found, due = ({name: about(one).get(name) for name in STATE} for one in (client, new))
            assert found == due, f"after {requests}"
    assert both.ask([["EXISTS", "k"], ["ACL", "DELUSER", "user"], ["PUBSUB", "CHANNELS"]])[0] == 0


def test_a_client_by_tcp_has_its_address_and_every_value(start_guest: StartGuest, ports: Ports) -> None:
    guest, port = link.on_a_port(start_guest, ports, "")
    with (
        contextlib.closing(connect(("127.0.0.1", port), deadline_seconds=guest.deadline_seconds)) as connection,
        server.client(guest) as other,
    ):
        client = Client(connection)
        address = "{}:{}".format(*connection.getsockname())
        found = about(client)
        assert (found["addr"], found["laddr"]) == (address, f"127.0.0.1:{port}")
        for length in [*EDGE_LENGTHS, *HEADER_LENGTHS]:
            value = dataset.noise(length)
            assert client.pipeline([("SET", "k", value), ("STRLEN", "k"), ("GET", "k")]) == [b"OK", length, value]
        assert other.command("MONITOR") == b"OK"
        client.command("PING")
        assert f" {address}] ".encode() in bytes(other.receive())  # type: ignore[arg-type]
        with server.client(guest) as third:
            assert third.command("CLIENT", "KILL", "ADDR", address, "LADDR", f"127.0.0.1:{port}") == 1
        with pytest.raises(ServerGoneError):
            client.command("PING")


@pytest.mark.parametrize("limit", ["4294967296", "8589934593", "12gb"])
def test_a_client_may_have_as_much_output_as_its_limit_says(both: PairedServers, guest: Guest, limit: str) -> None:
    """Limits whose lower 32 bits are smaller than the output."""
    setting = ("CONFIG", "SET", "client-output-buffer-limit")
    both.ask([("SET", "k", dataset.noise(100_000)), (*setting, f"normal {limit} 0 0")])
    try:
        with server.client(guest) as client:
            # valkey-9.1.2 sends the reply to GET directly from the key: this takes no memory and reaches no limit.
            answer = client.command("GETRANGE", "k", 0, -1)
    except ServerGoneError:
        answer = b"none: the server has closed the connection"
    finally:
        both.ask([(*setting, "normal 0 0 0"), ("DEL", "k")])
    assert answer == dataset.noise(100_000), f"the answer is {answer!r:.60}"
