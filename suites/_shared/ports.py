"""Loopback ports for servers that other servers reach by address."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from typing import Self

BUS_DISTANCE = 10000
"""Distance of a cluster's bus port from the port for clients, in every release."""


class Ports:
    """Ports that no other test, in any cell or run, takes while this object is open."""

    def __init__(self) -> None:
        self._held = ExitStack()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the ports."""
        self._held.close()

    def free(self) -> int:
        """A port that is free, as is its bus port. If another program takes it first, the server does not start."""
        while True:
            # Both below 32768, where Linux begins to choose ports for clients (ip(7), ip_local_port_range).
            port = random.SystemRandom().randrange(10000, 32768 - BUS_DISTANCE)
            with ExitStack() as claimed:
                try:
                    for number in (port, port + BUS_DISTANCE):
                        # Another cell may check the port before this server has started. No server uses UDP, so holding
                        # the UDP port of the same number marks the port as taken.
                        sign = claimed.enter_context(socket.socket(type=socket.SOCK_DGRAM))
                        sign.bind(("127.0.0.1", number))
                        with socket.socket() as probe:
                            probe.bind(("127.0.0.1", number))
                except OSError:
                    continue
                self._held.push(claimed.pop_all())
            return port
