"""Makes, awaits and breaks replication links between a primary and a replica."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from harness.protocol.resp import ServerGoneError, info_fields
from suites._shared.keyspace import server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.ports import Ports

POLL_SECONDS = 0.05
WITHOUT_DELAY = ["--repl-diskless-sync-delay", "0"]
"""The primary does not wait for a second replica before it synchronises the first."""
PATIENCE_SECONDS = 20.0
"""Time limit for machines to agree, before a target's slowdown: servers check their links every second or two."""
MAXIMUM_CRASHES = 3
"""The number of crashed children after which waiting ends. Until the deadline, the server would fork more of them."""


def join(replica: Guest, primary: Guest, *, port: int = 0) -> None:
    """Make the replica follow the primary, and wait until it is up to date. `port`: the primary's own port, by which a
    sentinel knows the primary; by default, the recorder's port.
    """
    host, port = ("127.0.0.1", port) if port else primary.access.endpoint
    with server.client(replica) as client:
        # Every release knows this command.
        client.command("SLAVEOF", host, port)
    await_in_step(replica, primary)


def on_a_port(
    start_guest: StartGuest,
    ports: Ports,
    target: str,
    *options: str,
    files: Mapping[str, bytes] | None = None,
    port_option: str = "--port",
) -> tuple[Guest, int]:
    """A server that others can reach on a loopback port, and the port. `port_option` is `--tls-port` for a server with
    TLS.
    """
    port = ports.free()
    listening = [port_option, str(port), "--bind", "127.0.0.1"]
    return start_guest(target=target, options=[*listening, *options], files=files), port


def info(guest: Guest, section: str) -> dict[str, str]:
    """A section of INFO."""
    with server.client(guest) as client:
        return info_fields(client.command("INFO", section))


def await_in_step(replica: Guest, primary: Guest) -> None:
    """Wait until the replica has everything that the primary has sent so far. Raises TimeoutError."""

    def in_step() -> bool:
        replication = info(replica, "replication")
        offset = replication.get("slave_repl_offset", replication.get("replica_repl_offset", ""))
        return (
            replication["master_link_status"] == "up" and offset == info(primary, "replication")["master_repl_offset"]
        )

    await_that(in_step, [primary, replica], "the replica to be up to date")


def await_that(condition: Callable[[], bool], guests: Sequence[Guest], what: str) -> None:
    """Poll until a condition holds. Raises TimeoutError, which names the condition, and ServerGoneError when a guest
    ends. If two tests have awaited it in vain, the time limit is shorter, and the error a BlockedError.

    It gives up early if the guests' children crash repeatedly, because servers retry each failed synchronisation.
    """
    waits = guests[0].waits
    patience = max(one.runner.target.deadline_seconds(PATIENCE_SECONDS) for one in guests)
    deadline = time.monotonic() + waits.limit(what, patience)

    def crashed() -> int:
        return sum(one.evidence.crashed_children(one.first_pid) for one in guests)

    before = crashed()
    while not condition():
        for guest in guests:
            if not guest.alive():
                raise ServerGoneError(f"{guest.name} ended while waiting for {what}: {guest.detail}")
        if (recent := crashed() - before) >= MAXIMUM_CRASHES:
            raise waits.expired(what, f": gave up because {recent} children crashed")
        if time.monotonic() > deadline:
            raise waits.expired(what)
        time.sleep(POLL_SECONDS)


def cut(replica: Guest) -> None:
    """Break the replica's link, as a network failure does. The replica reconnects by itself."""
    with server.client(replica) as client:
        ended = client.command("CLIENT", "KILL", "TYPE", "master")
    assert ended == 1, f"CLIENT KILL broke {ended!r} links to a primary, expected 1"
