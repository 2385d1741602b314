"""Ports of loopback for servers that others have to reach by their own address."""

from __future__ import annotations

import random
import socket

BUS_DISTANCE = 10000
"""A cluster's bus listens at the port of the clients plus this, in every release."""


def free_pair() -> tuple[int, int]:
    """A port that is free together with its bus port; taken by another program since, the server does not start."""
    while True:
        # Both below 32768, where Linux begins to choose ports for clients (ip(7), ip_local_port_range).
        port = random.SystemRandom().randrange(10000, 32768 - BUS_DISTANCE)
        try:
            for number in (port, port + BUS_DISTANCE):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
        except OSError:
            continue
        return port, port + BUS_DISTANCE
