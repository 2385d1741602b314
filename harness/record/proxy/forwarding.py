"""The thread that forwards the data of all proxied connections unchanged, chunk for chunk, and notes each chunk."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING

from harness.core.processes import processor_time
from harness.record.transcript import CHUNK_BYTES

if TYPE_CHECKING:
    from harness.record.proxy.self_recording import Noted
    from harness.record.transcript import Direction

PURPOSE = "proxy"
"""The purpose for which the threads of proxies are counted (harness.core.processes.processor_time)."""


class _ConnectionEnd:
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


class Forwarder:
    """The thread that forwards the data of all connections.

    A thread for each direction would take more processor time to start and end than most connections otherwise need.
    """

    def __init__(self, noted: list[Noted]) -> None:
        self._noted = noted
        self._ends: dict[int, tuple[_ConnectionEnd, _ConnectionEnd]] = {}
        """Descriptor -> its end, and the other one."""
        self._new: deque[tuple[_ConnectionEnd, _ConnectionEnd]] = deque()
        self._stopping = False
        self._poll = select.epoll()
        self._wake = os.eventfd(0)
        self._poll.register(self._wake, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def add(self, number: int, client: socket.socket, guest: socket.socket) -> None:
        """Pass on what two ends send to each other, until the guest closes its own."""
        self._new.append((_ConnectionEnd(client, number, "request"), _ConnectionEnd(guest, number, "reply")))
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

    def _serve(self, end: _ConnectionEnd, other: _ConnectionEnd) -> None:
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

    def _receive(self, end: _ConnectionEnd, other: _ConnectionEnd) -> None:
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

    def _send(self, end: _ConnectionEnd, other: _ConnectionEnd, content: bytes) -> None:
        """Send an end as much as it accepts. If it is gone, the other end has nothing more to send."""
        try:
            sent = end.socket.send(content)
        except BlockingIOError:
            sent = 0
        except OSError:
            sent, other.sends = len(content), False
        end.unsent = content[sent:]

    def _watch(self, end: _ConnectionEnd, other: _ConnectionEnd) -> None:
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

    def _drop(self, *pair: _ConnectionEnd) -> None:
        for end in pair:
            del self._ends[end.socket.fileno()]
            end.socket.close()
