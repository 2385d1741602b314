"""One function connects to servers, by path and by port, with a deadline. It closes a socket that fails to connect."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

import pytest

from harness.core.sockets import connect, held_port
from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from pathlib import Path

OTHERS = {"harness/record/proxy/peer_user.py": "it connects to itself, to learn what the kernel says of both ends"}


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_both_kinds_of_address_are_connected_with_the_deadline(tmp_path: Path, family: socket.AddressFamily) -> None:
    path = tmp_path / "s"
    with socket.socket(family) as listener:
        listener.bind(str(path) if family == socket.AF_UNIX else ("127.0.0.1", 0))
        listener.listen()
        with connect(path if family == socket.AF_UNIX else listener.getsockname(), deadline_seconds=3.0) as client:
            assert client.family == family
            assert client.gettimeout() == 3.0
            if family == socket.AF_INET:
                assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_socket_that_does_not_connect_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[socket.socket] = []

    class Remembered(socket.socket):
        def __init__(self, family: int) -> None:
            super().__init__(family)
            opened.append(self)

    monkeypatch.setattr(socket, "socket", Remembered)
    with pytest.raises(FileNotFoundError):
        connect(tmp_path / "absent")
    assert [each.fileno() for each in opened] == [-1]


def test_only_a_server_can_use_a_held_port() -> None:
    """The kernel gives the port to no other process, and nothing answers there before the server starts or after it
    ends.
    """
    with held_port("127.0.0.1") as holder:
        place = holder.getsockname()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(place)
        with pytest.raises(ConnectionRefusedError):
            connect(place)
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(place)
            server.listen()
            with connect(place) as client:
                assert client.getpeername() == place
        with pytest.raises(ConnectionRefusedError):
            connect(place)
    with held_port("127.0.0.1") as one, held_port("127.0.0.1") as other:
        assert one.getsockname() != other.getsockname()


def test_no_other_module_of_the_harness_connects() -> None:
    connecting = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "harness").rglob("*.py")
        if re.search(r"\.connect\(|create_connection\(", path.read_text("utf-8"))
    }
    assert connecting - set(OTHERS) == {"harness/core/sockets.py"}
