"""Loopback ports: two tests that run at the same time never get the same port."""

from __future__ import annotations

import random
import socket
from typing import TYPE_CHECKING

from suites._shared.ports import BUS_DISTANCE, Ports

if TYPE_CHECKING:
    import pytest


def test_a_port_in_use_is_not_given_to_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    with Ports() as here, Ports() as there:
        port = here.free()
        other = there.free()
        drawn = iter([port, other])
        monkeypatch.setattr(random.SystemRandom, "randrange", lambda *_: next(drawn))
        there.__exit__()
        assert there.free() == other
        again = iter([port])
        monkeypatch.setattr(random.SystemRandom, "randrange", lambda *_: next(again))
        here.__exit__()
        assert there.free() == port


def test_a_server_can_listen_at_both_while_they_are_held() -> None:
    with Ports() as ports:
        port = ports.free()
        for number in (port, port + BUS_DISTANCE):
            with socket.socket() as server:
                server.bind(("127.0.0.1", number))
                server.listen()


def test_a_port_where_a_server_listens_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with Ports() as ports, socket.socket() as server, socket.socket() as bus:
        taken, taken_bus, port = ports.free(), ports.free(), ports.free()
        ports.__exit__()
        server.bind(("127.0.0.1", taken))
        bus.bind(("127.0.0.1", taken_bus + BUS_DISTANCE))
        drawn = iter([taken, taken_bus, port])
        monkeypatch.setattr(random.SystemRandom, "randrange", lambda *_: next(drawn))
        assert ports.free() == port
