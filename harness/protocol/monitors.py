"""Clients that receive every command of a server (MONITOR) and discard it, so that another client is not the only
one.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import TYPE_CHECKING

from harness.core.sockets import connect
from harness.protocol.resp import Client

if TYPE_CHECKING:
    from harness.core.sockets import Address

CHUNK_BYTES = 1 << 20
POLL_SECONDS = 0.1


class Monitors:
    """The given number of monitoring clients, until they are closed or the server is gone.

    The server sends each of them something for almost every command of another client. If a test makes the server drop
    them, they reconnect. Raises OSError if they cannot connect at first.
    """

    def __init__(self, server: Address, number: int, *, deadline_seconds: float) -> None:
        self._server = server
        self._deadline_seconds = deadline_seconds
        self._closed = False
        self._sockets = [self._connect() for _ in range(number)]
        self._thread = threading.Thread(target=self._discard, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Disconnect them."""
        self._closed = True
        for each in list(self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for each in self._sockets:
            each.close()

    def _connect(self) -> socket.socket:
        connection = connect(self._server, deadline_seconds=self._deadline_seconds)
        Client(connection).command("MONITOR")
        return connection

    def _discard(self) -> None:
        while self._sockets and not self._closed:
            for one in select.select(self._sockets, [], [], POLL_SECONDS)[0]:
                with contextlib.suppress(OSError):
                    if one.recv(CHUNK_BYTES) or self._closed:
                        continue
                one.close()
                self._sockets.remove(one)
                with contextlib.suppress(OSError):
                    self._sockets.append(self._connect())
