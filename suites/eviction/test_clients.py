"""The server disconnects the clients that use the most memory, until the others fit the limit."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from suites._shared.link import await_that
from suites._shared.needs import require

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest
    from suites._shared.paired_servers import PairedServers

MEBIBYTE = 1 << 20
SIZES = {"largest": 8 * MEBIBYTE, "large": 4 * MEBIBYTE, "middle": 2 * MEBIBYTE, "small": MEBIBYTE // 8}
"""Name of a client -> number of bytes of its unfinished request."""


def received(both: PairedServers) -> list[str]:
    """The clients from which the server has received all bytes."""
    text = bytes(both.guest.command("CLIENT", "LIST")).decode()  # type: ignore[arg-type]
    clients = [dict(word.split("=", 1) for word in line.split()) for line in text.splitlines()]
    waiting = {one["name"]: int(one["qbuf"]) for one in clients}
    return [name for name, size in SIZES.items() if waiting.get(name, 0) >= size]


def test_the_largest_clients_are_disconnected_until_the_others_fit(
    both: PairedServers, guest: Guest, cell: CellSpec
) -> None:
    require(cell, "option maxmemory-clients")
    with contextlib.ExitStack() as connections:
        both.guest.command("CLIENT", "NO-EVICT", "ON")
        for name, size in SIZES.items():
            client = guest.client()
            connections.enter_context(client)
            client.command("CLIENT", "SETNAME", name)
            client.send(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % (size + 1) + bytes(size))
        await_that(
            lambda: received(both) == list(SIZES), [guest], "the server to receive every client's part of a request"
        )
        # The limit allows the remaining clients, but not one more.
        for limit, remaining in ((16, 4), (9, 3), (5, 2), (1, 1)):
            both.guest.command("CONFIG", "SET", "maxmemory-clients", limit * MEBIBYTE)
            found, due = received(both), list(SIZES)[-remaining:]
            assert found == due, f"with maxmemory-clients {limit}mb {found} remain, expected {due}"
        both.guest.command("CONFIG", "SET", "maxmemory-clients", 0)
        client.send(b"x\r\n")
        assert client.receive() == bytes(SIZES["small"]) + b"x"
