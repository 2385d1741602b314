"""The events for which a server calls a module back: children, the event loop, ready keys, users, replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from suites._shared import link
from suites._shared.keyspace import server
from suites._shared.link import await_that
from suites._shared.needs import require
from suites.moduleapi.module_server import expect, start

if TYPE_CHECKING:
    from harness.protocol.resp import Client, Reply
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest

LEAST, MOST = -(1 << 63), (1 << 63) - 1


def test_a_child_tells_its_progress_and_how_it_ended(client: Client, with_module: Guest) -> None:
    # The child waits so long that even on a slow machine the test sees its progress first.
    child: Any = client.command("API.FORK", 0, 600_000)

    def progress() -> str:
        return link.info(with_module, "persistence")["current_fork_perc"]

    await_that(lambda: progress() == "25.00", [with_module], "a child to report that it is a quarter done")
    assert client.command("API.FORK", child) == b"OK"
    assert progress() == "0.00"
    for status in (1, 127, 254, 0):
        client.command("API.FORK", status, 0)
        # The data is -1 minus the status: a pointer whose upper half is set.
        due: Reply = [status, 0, -1 - status]
        await_that(lambda due=due: client.command("API.FORK") == due, [with_module], f"a child to end with {status}")  # type: ignore[misc]


def test_the_event_loop_reads_what_it_wrote(client: Client, with_module: Guest) -> None:
    for number in (1, -(1 << 32) - 1, LEAST, MOST - 1):
        events: list[Any] = []

        def read(events: list[Any] = events) -> bool:
            events.append(client.command("API.EVENTS"))
            return b"readable" in b"".join(events)

        assert client.command("API.LOOP", number) == b"OK"
        await_that(read, [with_module], "a pipe to be readable")
        assert b"".join(events) == b"once:%d readable:%d " % (number, number + 1)


def test_a_client_waits_for_keys(client: Client, with_module: Guest, cell: CellSpec) -> None:
    with server.client(with_module) as waiting:
        # More milliseconds than 32 bits hold. Truncated to 32 bits, the timeout would be 0.
        waiting.send(waiting.pack([("API.AWAIT", 1 << 32, "string", "list")]))
        await_that(lambda: link.info(with_module, "clients")["blocked_clients"] == "1", [with_module], "it to wait")
        # The server asks the module when a key is created, and the client continues to wait. When a key grows, it asks
        # only after API.READY.
        client.command("RPUSH", "list", "one")
        client.command("RPUSH", "list", "two")
        client.command("API.READY", "list")
        assert waiting.receive() == [b"list", 2, 1]
        waiting.send(waiting.pack([("API.AWAIT", 0, "list of another name", "string")]))
        await_that(lambda: link.info(with_module, "clients")["blocked_clients"] == "1", [with_module], "it to wait")
        client.command("SET", "string", "text")
        client.command("API.READY", "string")
        assert waiting.receive() == [b"string", 4, 1]
    expect(client, cell, ("API.AWAIT", 50, "absent"), b"timed out")


def test_a_client_has_a_modules_user_until_it_leaves(client: Client, cell: CellSpec) -> None:
    number: Any = client.command("CLIENT", "ID")
    expect(client, cell, ("API.LOGIN", "on +@all -get ~k* &*"), [b"OK", b"%d" % number])
    expect(client, cell, ("ACL", "WHOAMI"), b"guest")
    refused = client.pipeline([("GET", "k"), ("SET", "other", 1), ("SET", "k", 1)])
    assert [str(reply)[:6] for reply in refused[:2]] == ["NOPERM"] * 2, refused
    assert refused[2] == b"OK"
    client.command("AUTH", "default", "")
    # The server passes the client's number to the module, which adds its data.
    expect(client, cell, ("API.LOGIN",), [b"%d" % (number + 1), b"default"])


def test_a_client_waits_for_a_module_to_know_it(client: Client, cell: CellSpec) -> None:
    require(cell, "api RedisModule_RegisterAuthCallback")
    client.command("API.LOGIN", "on +@all ~* &*")
    client.command("AUTH", "default", "")
    expect(client, cell, ("AUTH", "blocked", LEAST), b"OK")
    expect(client, cell, ("ACL", "WHOAMI"), b"guest")
    expect(client, cell, ("GET", "waited"), b"%d" % LEAST)


def test_a_latency_is_kept(client: Client) -> None:
    client.command("CONFIG", "SET", "latency-monitor-threshold", 1)
    most = [1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]
    for number, milliseconds in enumerate(most):
        client.command("API.LATENCY", f"event:{number}", milliseconds)
    latest: Any = client.command("LATENCY", "LATEST")
    kept = {row[0]: row[2:4] for row in latest if row[0].startswith(b"event:")}
    assert kept == {b"event:%d" % number: [one, one] for number, one in enumerate(most)}


@pytest.mark.parametrize("role", ["primary", "replica"])
def test_what_a_module_replicates_arrives_as_it_was_sent(
    companion: str, role: str, start_guest: StartGuest, cell: CellSpec
) -> None:
    own, other = (start(start_guest, cell, target) for target in (cell.runner.target.name, companion))
    primary, replica = (own, other) if role == "primary" else (other, own)
    link.join(replica, primary)
    numbers, text = [LEAST + 1, -(1 << 32) - 1, 0, 1 << 53, MOST], b"\x80\x00\xff"
    sent: dict[str, list[bytes]] = {"replicated": [], "called": [], "verbatim": []}
    with server.client(primary) as source, server.client(replica) as copy:
        for number in numbers:
            digits = b"%d" % number
            sent["replicated"] += [digits, b"%d" % -number, text, text, digits, text]
            sent["called"] += [digits, text]
            sent["verbatim"] += [digits, text, digits]
            assert source.command("API.REPLICATE", number, text) == b"OK"
            assert source.command("API.VERBATIM", number, text) == b"OK"
            assert source.command("API.CALL", "!l", "API.VERBATIM", number)
        link.await_in_step(replica, primary)
        for name, expected in sent.items():
            expect(copy, cell, ("LRANGE", name, 0, -1), expected)  # type: ignore[arg-type]
        # RM_Replicate does nothing on the primary itself.
        assert source.command("LLEN", "replicated") == 0
