"""Connects to a server: over a Unix socket, or through a port on loopback, which is the server's own or leads into a
machine.
"""

from __future__ import annotations

import socket
from pathlib import Path

Address = Path | tuple[str, int]
"""The path of a Unix socket, or a host and a port."""


def held_port(host: str) -> socket.socket:
    """A socket that reserves a port that the kernel has chosen: no other process gets the port while it is open.

    A server may listen there, because both allow others to use the address (SO_REUSEADDR, socket(7)) and this socket
    never listens. After the server has ended, no other process answers in its place.
    """
    holder = socket.socket(socket.AF_INET)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((host, 0))
    return holder


def connect(address: Address, *, deadline_seconds: float | None = None) -> socket.socket:
    """A connection on which every operation has the deadline; without one, operations block. Raises OSError."""
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
