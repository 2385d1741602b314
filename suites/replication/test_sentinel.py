"""A sentinel watches servers of another byte order or width, and replaces a silent primary."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from harness.protocol.resp import ServerGoneError
from suites._shared import link
from suites._shared.formats.handmade import of_primary
from suites._shared.keyspace import dataset, server
from suites._shared.needs import require

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.ports import Ports

OFFSET = 1 << 33
"""An offset in a primary's replication stream that needs more than 32 bits."""
EPOCH = (1 << 40) + 3
"""An epoch that needs more than 32 bits."""
SILENCE_MILLISECONDS = 600_000
DOWN_MILLISECONDS = 3_000
"""Silence after which the sentinel considers the primary down: far more than an emulator's delays."""
CONFIGURATION = """
sentinel monitor watched 127.0.0.1 {port} {quorum}
sentinel down-after-milliseconds watched {down}
sentinel failover-timeout watched 60000
"""
CONFIGURATION += f"sentinel current-epoch {EPOCH}\n"


def follow(primary: Guest, port: int, replica: Guest) -> None:
    """Write a value to the primary, and wait until the replica follows it and is up to date."""
    with server.client(primary) as client:
        client.command("SET", "noise", dataset.noise(300))
    link.join(replica, primary, port=port)


@pytest.mark.parametrize("own", ["sentinel", "servers"])
def test_a_sentinel_replaces_a_primary_that_is_silent(
    companion: str, own: str, cell: CellSpec, start_guest: StartGuest, ports: Ports
) -> None:
    require(cell, "command replicaof")
    served, watching = (companion, "") if own == "sentinel" else ("", companion)
    # Since 7.0 a primary continues at the offset in its file, which only a start with a file shows. Sentinels choose
    # the replica with the greatest offset.
    files = {"dump.rdb": of_primary(OFFSET)} if cell.version >= (7,) else None
    primary, port = link.on_a_port(start_guest, ports, served, *link.WITHOUT_DELAY, files=files)
    replica, replica_port = link.on_a_port(start_guest, ports, served, *link.WITHOUT_DELAY)
    follow(primary, port, replica)
    text = CONFIGURATION.format(port=port, quorum=1, down=DOWN_MILLISECONDS)
    sentinel = start_guest(
        target=watching, options=["sentinel.conf", "--sentinel"], files={"sentinel.conf": text.encode()}
    )
    everybody = [primary, replica, sentinel]

    def known_replicas() -> int:
        with server.client(sentinel) as client:
            reply = client.command("SENTINEL", "REPLICAS", "watched")
        assert isinstance(reply, list)
        return len(reply)

    link.await_that(lambda: known_replicas() == 1, everybody, "the sentinel to know the replica")
    if cell.version >= (7,):

        def offset() -> int:
            (of_replica,) = table(sentinel, "REPLICAS")
            return int(of_replica["slave-repl-offset"])

        link.await_that(lambda: offset() > 0, everybody, "the sentinel to know the replica's offset")
        assert OFFSET < offset() < OFFSET + (1 << 20)
    with server.client(primary) as client:
        client.command("CLIENT", "PAUSE", SILENCE_MILLISECONDS)

    def promoted() -> bool:
        # A sentinel makes a new primary drop its clients (CLIENT KILL), which may include this one.
        with contextlib.suppress(ServerGoneError):
            return link.info(replica, "replication")["role"] == "master"
        return False

    link.await_that(promoted, [replica, sentinel], "the failover")

    def address() -> object:
        with server.client(sentinel) as client:
            return client.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "watched")

    due = [b"127.0.0.1", str(replica_port).encode()]
    link.await_that(lambda: address() == due, [replica, sentinel], "the sentinel to report the new primary")
    assert own_view(sentinel)["config-epoch"] == str(EPOCH + 1)
    with server.client(replica) as client:
        assert client.command("GET", "noise") == dataset.noise(300)


@pytest.mark.parametrize("leads", ["own", "companion"])
def test_sentinels_of_different_machines_vote(
    companion: str, leads: str, cell: CellSpec, start_guest: StartGuest, ports: Ports
) -> None:
    """Three sentinels, two of whose votes decide. One or two of them run on the peer."""
    require(cell, "command replicaof")
    if cell.tier == "quick" and not cell.patient:
        pytest.skip("it waits about 15 s for time-outs: only in the tiers full and thorough")
    machines = ["", "", companion] if leads == "own" else [companion, companion, ""]
    primary, port = link.on_a_port(start_guest, ports, machines[0], *link.WITHOUT_DELAY)
    replica, replica_port = link.on_a_port(start_guest, ports, machines[2], *link.WITHOUT_DELAY)
    follow(primary, port, replica)
    sentinels = [a_sentinel(start_guest, ports, machine, port, quorum=2) for machine in machines]
    everybody = [primary, replica, *(guest for guest, _ in sentinels)]
    numbers = {str(number) for _, number in sentinels}

    def introduced() -> bool:
        return all(
            {one["port"] for one in table(guest, "SENTINELS")} == numbers - {str(number)}
            and [one["port"] for one in table(guest, "REPLICAS")] == [str(replica_port)]
            for guest, number in sentinels
        )

    link.await_that(introduced, everybody, "each sentinel to know the others and the replica")
    for guest, _ in sentinels:
        with server.client(guest) as client:
            assert bytes(client.command("SENTINEL", "CKQUORUM", "watched")).startswith(b"OK 3 usable Sentinels")  # type: ignore[arg-type]
    with server.client(primary) as client:
        client.command("CLIENT", "PAUSE", SILENCE_MILLISECONDS)
    watching = [guest for guest, _ in sentinels]

    def reported() -> bool:
        due = [b"127.0.0.1", str(replica_port).encode()]
        for guest in watching:
            with server.client(guest) as client:
                if client.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "watched") != due:
                    return False
        return True

    link.await_that(reported, [replica, *watching], "every sentinel to report the new primary")
    epochs = {own_view(guest)["config-epoch"] for guest in watching}
    assert len(epochs) == 1, f"the sentinels report the epochs {epochs}"
    # An election that no candidate wins is repeated in the next epoch.
    assert 1 <= int(epochs.pop()) - EPOCH < 10
    with contextlib.suppress(ServerGoneError), server.client(replica) as client:
        assert client.command("GET", "noise") == dataset.noise(300)


def a_sentinel(start_guest: StartGuest, ports: Ports, target: str, port: int, *, quorum: int) -> tuple[Guest, int]:
    """A sentinel on a loopback port, and that port."""
    number = ports.free()
    text = CONFIGURATION.format(port=port, quorum=quorum, down=DOWN_MILLISECONDS)
    options = ["sentinel.conf", "--sentinel", "--port", str(number), "--bind", "127.0.0.1"]
    return start_guest(target=target, options=options, files={"sentinel.conf": text.encode()}), number


def table(sentinel: Guest, what: str) -> list[dict[str, str]]:
    """What a sentinel knows about the primary's replicas, or about other sentinels."""
    with server.client(sentinel) as client:
        reply: Any = client.command("SENTINEL", what, "watched")
    return [fields(one) for one in reply]


def own_view(sentinel: Guest) -> dict[str, str]:
    """What a sentinel knows about the primary."""
    with server.client(sentinel) as client:
        return fields(client.command("SENTINEL", "MASTER", "watched"))


def fields(reply: Any) -> dict[str, str]:
    """A reply in which names and values alternate, as a dictionary."""
    words = [bytes(word).decode() for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))
