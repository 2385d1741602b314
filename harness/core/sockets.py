"""Connects to a server: a Unix socket, or a port on loopback that leads into a machine of the kernel tier."""

from __future__ import annotations

import socket
from pathlib import Path

Address = Path | tuple[str, int]
"""The path of a Unix socket, or a host and a port."""


def connect(address: Address, *, deadline_seconds: float | None = None) -> socket.socket:
    """A connection whose operations all have the deadline; without one they block. Raises OSError."""
    if isinstance(address, tuple):
        connection = socket.create_connection(address, timeout=deadline_seconds)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(deadline_seconds)
    try:
        connection.connect(str(address))
    except OSError:
        connection.close()
        raise
    return connection
