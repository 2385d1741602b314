"""The recording proxy: records every client of a guest, in any language, and is invisible to the client.

It listens on a Unix socket in a private folder. For clients that only support TCP it also listens on a loopback port,
where it rejects the clients of other users. It forwards to the guest byte for byte and chunk for chunk. A client in the
harness' own process needs no proxy: a RecordedConnection leads to the guest and records by itself. Nor does a client in
another process that appends to the recorder's file, as that of Tcl suites does.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from typing import TYPE_CHECKING
from weakref import WeakSet

from harness.core.errors import is_machine_fault, machine_fault
from harness.core.processes import processor_time
from harness.core.sockets import Address, connect
from harness.record import peer_user
from harness.record.transcript import CHUNK_BYTES, Chunk, Direction

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typing_extensions import Buffer

PURPOSE = "proxy"
"""The purpose for which the threads of proxies are counted (harness.core.processes.processor_time)."""
RETRY_SECONDS = 0.1
BACKLOG = 4096
"""Connections that may wait to be accepted. Beyond these a Unix socket rejects clients; a TCP port does not."""


_Noted = tuple[int, Direction, bytes]
"""A chunk in its form while the test runs. Most tests pass, and their chunks are never read."""
_HEAD = struct.Struct("=III")
"""Before each chunk in the file of a client that records by itself: the number that it gives the connection, 1 for a
reply and 0 for a request, and the length of the bytes that follow."""


class RecordedConnection(socket.socket):
    """A connection to a guest that records what it sends and receives, with nothing in between.

    A message through the proxy's threads takes several times the processor time that a guest takes to answer it.
    """

    def __init__(self, connected: socket.socket, number: int, noted: list[_Noted]) -> None:
        """Takes over `connected`. `noted` receives the chunks."""
        deadline_seconds = connected.gettimeout()
        super().__init__(connected.family, connected.type, connected.proto, fileno=connected.detach())
        self.settimeout(deadline_seconds)
        self._number = number
        self._noted = noted

    def sendall(self, data: Buffer, flags: int = 0, /) -> None:
        """Record bytes and send them all. Raises OSError."""
        # First: a guest that dies of a request has received it.
        self._noted.append((self._number, "request", bytes(data)))
        super().sendall(data, flags)

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Receive bytes and record them. Raises OSError."""
        content = super().recv(bufsize, flags)
        if content:
            self._noted.append((self._number, "reply", content))
        return content


class Recorder:
    """A proxy in front of one guest, until it is closed. It listens at `path`, in a folder private to the user."""

    def __init__(self, upstream: Address, path: Path) -> None:
        self.path = path
        self.file = path.with_name(f"{path.name}-record")
        """What clients that record by themselves append to: each chunk in one write(2), behind a head (_HEAD)."""
        self.trouble = ""
        """Why this machine could not accept a client; empty while it can."""
        self.strangers = 0
        """Rejected connections: other users', and those that closed before the kernel reported their owner."""
        self._upstream = upstream
        self._lock = threading.Lock()
        # Threads only append to it, which needs no lock.
        self._chunks: list[_Noted] = []
        self._connections = 0
        self._pump = _Pump(self._chunks)
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
            for number, direction, content in [*self._chunks, *self._filed()]
        ]

    def connection(self, *, deadline_seconds: float | None = None) -> RecordedConnection:
        """A connection to the guest for a client in this process. A guest that is gone has closed it, as the proxy
        does.

        Its operations have the deadline. Raises OSError after `close`, and for a fault of this machine.
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
        self._chunks += self._filed()
        self.file.unlink(missing_ok=True)
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            self._pump.close()
        for each in list(self._made):
            # It is its client's to close.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _filed(self) -> list[_Noted]:
        """The chunks of clients that record by themselves. Of one that was killed, the last may be cut."""
        try:
            content = self.file.read_bytes()
        except FileNotFoundError:
            return []
        found: list[_Noted] = []
        # A client goes on counting from guest to guest and from test to test.
        numbers: dict[int, int] = {}
        at = 0
        while at + _HEAD.size <= len(content):
            number, is_reply, length = _HEAD.unpack_from(content, at)
            at += _HEAD.size
            number = numbers.setdefault(number, self._connections + len(numbers) + 1)
            found.append((number, "reply" if is_reply else "request", content[at : at + length]))
            at += length
        return found

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
        except OSError:
            # The guest is gone: the client sees its connection closed, as it would without a proxy.
            client.close()
            return
        with self._lock:
            self._connections += 1
            number = self._connections
            if not self._closed:
                self._pump.add(number, client, guest)


class _End:
    """One end of a connection through the proxy: the client's, or the guest's."""

    def __init__(self, connected: socket.socket, number: int, direction: Direction) -> None:
        connected.setblocking(False)
        self.socket = connected
        self.number = number
        self.direction = direction
        """Received data."""
        self.sends = True
        """Whether it may send more."""
        self.unsent = b""
        """Data that it has not accepted yet. Meanwhile nothing is received from the other end."""
        self.told = False
        """Whether the other end knows that this one sends no more."""
        self.watched = 0
        """The events for which the poll waits."""


class _Pump:
    """The thread that forwards the data of all connections.

    A thread for each direction would take more processor time to start and end than most connections otherwise need.
    """

    def __init__(self, noted: list[_Noted]) -> None:
        self._noted = noted
        self._ends: dict[int, tuple[_End, _End]] = {}
        """Descriptor -> its end, and the other one."""
        self._new: deque[tuple[_End, _End]] = deque()
        self._stopping = False
        self._poll = select.epoll()
        self._wake = os.eventfd(0)
        self._poll.register(self._wake, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def add(self, number: int, client: socket.socket, guest: socket.socket) -> None:
        """Pass on what two ends send to each other, until the guest closes its own."""
        self._new.append((_End(client, number, "request"), _End(guest, number, "reply")))
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Drop every connection. The thread has ended then, and its time is counted."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        for end in [*(end for end, _ in self._ends.values()), *(end for pair in self._new for end in pair)]:
            with contextlib.suppress(OSError):
                end.socket.shutdown(socket.SHUT_RDWR)
            end.socket.close()
        self._ends.clear()
        self._poll.close()
        os.close(self._wake)

    def _run(self) -> None:
        with processor_time.counted_thread(PURPOSE):
            while not self._stopping:
                for descriptor, _ in self._poll.poll():
                    if descriptor == self._wake:
                        os.eventfd_read(self._wake)
                        self._begin()
                    # An event before it may have closed it.
                    elif pair := self._ends.get(descriptor):
                        self._serve(*pair)

    def _begin(self) -> None:
        while self._new:
            pair = self._new.popleft()
            for end, other in (pair, pair[::-1]):
                self._ends[end.socket.fileno()] = (end, other)
                self._watch(end, other)

    def _serve(self, end: _End, other: _End) -> None:
        """Do what can be done for an end at which something happened."""
        if end.unsent:
            self._send(end, other, end.unsent)
        if end.sends and not other.unsent:
            self._receive(end, other)
        for one, its_other in ((end, other), (other, end)):
            if not one.sends and not one.told and not its_other.unsent:
                # A client that only shuts its sending side still gets its replies.
                one.told = True
                with contextlib.suppress(OSError):
                    its_other.socket.shutdown(socket.SHUT_WR)
                if one.direction == "reply":
                    self._drop(end, other)
                    return
        self._watch(end, other)
        self._watch(other, end)

    def _receive(self, end: _End, other: _End) -> None:
        try:
            content = end.socket.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        if content:
            self._noted.append((end.number, end.direction, content))
            self._send(other, end, content)
        else:
            end.sends = False

    def _send(self, end: _End, other: _End, content: bytes) -> None:
        """Send an end as much as it accepts. If it is gone, the other end has nothing more to send."""
        try:
            sent = end.socket.send(content)
        except BlockingIOError:
            sent = 0
        except OSError:
            sent, other.sends = len(content), False
        end.unsent = content[sent:]

    def _watch(self, end: _End, other: _End) -> None:
        wanted = (select.EPOLLIN if end.sends and not other.unsent else 0) | (select.EPOLLOUT if end.unsent else 0)
        if wanted == end.watched:
            return
        # poll() always reports a closed end, whether requested or not, and would never wait again.
        if not wanted:
            self._poll.unregister(end.socket)
        elif end.watched:
            self._poll.modify(end.socket, wanted)
        else:
            self._poll.register(end.socket, wanted)
        end.watched = wanted

    def _drop(self, *pair: _End) -> None:
        for end in pair:
            del self._ends[end.socket.fileno()]
            end.socket.close()
