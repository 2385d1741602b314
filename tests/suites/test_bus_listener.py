"""A node that waits for a server's packet gives up as soon as the server has ended."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from harness.protocol.resp import ServerGoneError
from harness.run.servers.waits import Waits
from suites.network.bus import PING, Listener

if TYPE_CHECKING:
    from harness.run.server_process import Guest


def guest(*, alive: bool) -> Guest:
    """As much of a server as a listener looks at."""
    return cast("Guest", SimpleNamespace(name="primary", detail="SIGSEGV", alive=lambda: alive, waits=Waits()))


def a_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.mark.parametrize("connects", [False, True])
def test_a_server_that_has_ended_is_not_awaited(*, connects: bool) -> None:
    port, began = a_port(), time.monotonic()
    with Listener(port, guest(alive=False), deadline_seconds=100) as listener:
        if connects:
            socket.create_connection(("127.0.0.1", port)).close()
        with pytest.raises(ServerGoneError, match=r"^primary ended before it connected: SIGSEGV$"):
            listener.receive(PING)
    assert time.monotonic() - began < 50


def test_a_running_server_is_awaited_until_the_deadline() -> None:
    with (
        Listener(a_port(), guest(alive=True), deadline_seconds=0) as listener,
        pytest.raises(TimeoutError, match="did not connect"),
    ):
        listener.receive(PING)
