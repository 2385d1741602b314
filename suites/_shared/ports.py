"""Ports of loopback for servers that others have to reach by their own address."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from typing import Self

BUS_DISTANCE = 10000
"""A cluster's bus listens at the port of the clients plus this, in every release."""


class Ports:
    """Ports that no other test of ours is given while this is open, in whatever cell or run it is."""

    def __init__(self) -> None:
        self._held = ExitStack()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Others may have them."""
        self._held.close()

    def free(self) -> int:
        """A port that is free together with its bus port; taken by another program since, the server does not start."""
        while True:
            # Both below 32768, where Linux begins to choose ports for clients (ip(7), ip_local_port_range).
            port = random.SystemRandom().randrange(10000, 32768 - BUS_DISTANCE)
            with ExitStack() as claimed:
                try:
                    for number in (port, port + BUS_DISTANCE):
                        # Between this look and the server's start a cell beside this one may look as well: the same
                        # number of UDP, which no server takes, is the sign that it is somebody's.
                        sign = claimed.enter_context(socket.socket(type=socket.SOCK_DGRAM))
                        sign.bind(("127.0.0.1", number))
                        with socket.socket() as probe:
                            probe.bind(("127.0.0.1", number))
                except OSError:
                    continue
                self._held.push(claimed.pop_all())
            return port
