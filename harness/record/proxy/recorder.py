"""The recorder of one guest: it lets clients in, numbers their connections, and holds what was recorded of them.

It listens on a Unix socket in a private folder. For clients that only support TCP it also listens on a loopback port,
where it rejects the clients of other users.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import socket
import threading
import time
from typing import TYPE_CHECKING
from weakref import WeakSet

from harness.core.errors import is_machine_fault, machine_fault
from harness.core.processes import processor_time
from harness.core.sockets import Address, connect
from harness.record.proxy import peer_user
from harness.record.proxy.forwarding import PURPOSE, Forwarder
from harness.record.proxy.self_recording import Noted, RecordedConnection, read_file
from harness.record.transcript import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RETRY_SECONDS = 0.1
BACKLOG = 4096
"""Connections that may wait to be accepted. Beyond these a Unix socket rejects clients; a TCP port does not."""


class Recorder:
    """A proxy in front of one guest, until it is closed. It listens at `path`, in a folder private to the user."""

    def __init__(self, upstream: Address, path: Path) -> None:
        self.path = path
        self.file = path.with_name(f"{path.name}-record")
        """What clients that record by themselves append to: each chunk in one write(2), behind a head
        (self_recording.HEAD)."""
        self.trouble = ""
        """Why the host could not accept a client; empty while it can."""
        self.strangers = 0
        """Rejected connections: other users', and those that closed before the kernel reported their owner."""
        self._upstream = upstream
        self._lock = threading.Lock()
        # Threads only append to it, which needs no lock.
        self._chunks: list[Noted] = []
        self._connections = 0
        self._forwarder = Forwarder(self._chunks)
        # A client that is forgotten closes its connection.
        self._made: WeakSet[socket.socket] = WeakSet()
        self._listeners: list[socket.socket] = []
        self._port = 0
        self._closed = False
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(BACKLOG)
        self._listen(listener, self._serve)

    @property
    def port(self) -> int:
        """A loopback port for this user's clients, opened on first use. Raises InfrastructureError."""
        if not self._port:
            peer_user.way_to_ask()
            listener = socket.create_server((peer_user.HOST, 0), backlog=BACKLOG)
            self._port = listener.getsockname()[1]
            self._listen(listener, self._serve_our_own)
        return self._port

    def begin(self) -> None:
        """Discard the recording. A new test starts, and its reproducer needs only its own requests."""
        self._chunks.clear()
        with contextlib.suppress(FileNotFoundError):
            os.truncate(self.file, 0)

    def chunks(self) -> list[Chunk]:
        """The chunks recorded since `begin`."""
        return [
            Chunk(connection=number, direction=direction, data=base64.b64encode(content).decode())
            for number, direction, content in [*self._chunks, *read_file(self.file, after=self._connections)]
        ]

    def connection(self, *, deadline_seconds: float | None = None) -> RecordedConnection:
        """A connection to the guest for a client in this process. A guest that is gone has closed it, as the proxy
        does.

        Its operations have the deadline. Raises OSError after `close`, and if the host lacks a resource.
        """
        if self._closed:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        try:
            connected = connect(self._upstream)
        except OSError as error:
            if is_machine_fault(error):
                raise
            connected, gone = socket.socketpair()
            gone.close()
        connected.settimeout(deadline_seconds)
        with self._lock:
            self._connections += 1
            made = RecordedConnection(connected, self._connections, self._chunks)
            self._made.add(made)
        return made

    def close(self) -> None:
        """Stop listening and drop every connection."""
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.path.unlink(missing_ok=True)
        self._chunks += read_file(self.file, after=self._connections)
        self.file.unlink(missing_ok=True)
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            self._forwarder.close()
        for each in list(self._made):
            # It is its client's to close.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _listen(self, listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        self._listeners.append(listener)
        threading.Thread(target=self._accept, args=(listener, serve), daemon=True).start()

    def _accept(self, listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError as error:
                if not is_machine_fault(error):
                    return
                # Clients wait while descriptors are exhausted. Failures that they then report are not the server's.
                self.trouble = str(machine_fault(error))
                time.sleep(RETRY_SECONDS)
                continue
            # Finding out its owner takes longer than forwarding a few commands.
            with processor_time.counted_thread(PURPOSE):
                serve(client)

    def _serve_our_own(self, client: socket.socket) -> None:
        """Serve a TCP client, unless another user owns the connection."""
        if not peer_user.is_ours(client):
            self.strangers += 1
            client.close()
            return
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        try:
            guest = connect(self._upstream)
        except OSError as error:
            # The guest is gone: the client sees its connection closed, as it would without a proxy.
            client.close()
            if is_machine_fault(error):
                self.trouble = str(machine_fault(error))
            return
        with self._lock:
            self._connections += 1
            number = self._connections
            if not self._closed:
                self._forwarder.add(number, client, guest)
