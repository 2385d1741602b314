"""Many clients of one server in one thread, so that the processors belong to the server's threads.

Each client sends a pipeline, compares the bytes of its replies with those due, and sends the next. None waits for
another: only so do the queues between the server's threads fill up.
"""

from __future__ import annotations

import contextlib
import math
import selectors
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.core.processes import scheduling
from harness.protocol.resp import Client, ServerGoneError
from harness.record.cell_events import ANSWERS_NOBODY

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from harness.run.server_process import Guest

CLIENTS = 200
PIPELINE = 100
"""Commands of a client before it reads a reply. The queues of Valkey 8 have 2048 slots for each thread, and a job for
each command."""
LONGER = 3
"""How many times longer a load takes at most if the server gets little of the processors."""
SILENT_SECONDS = 30.0
"""How long all clients that wait may have no byte, while the server does not wait for a processor. A whole reply of an
emulated server may take longer.
"""
HELD_SLEEPS = 300
"""A thread that sleeps more often in a second of a server without replies may be held: the emulator lets a thread that
pauses sleep a thousand times a second, and its own thread that looks after stores two hundred times.
"""
_LOOKS = 6
"""In how many parts of that time nothing may arrive. A machine that was suspended loses one."""
_AT_ONCE = 1 << 16

OK = b"+OK\r\n"


def bulk(value: bytes) -> bytes:
    """The reply that is a string."""
    return b"$%d\r\n%b\r\n" % (len(value), value)


def integer(value: int) -> bytes:
    """The reply that is a number."""
    return b":%d\r\n" % value


class Exchange(NamedTuple):
    """A pipeline, and the reply due to each of its requests, as bytes."""

    requests: Sequence[tuple[Any, ...]]
    due: Sequence[bytes]


class Member:
    """One client: it knows what it has sent, and what came back."""

    def __init__(self, guest: Guest, number: int, load: Callable[[int, int], Exchange]) -> None:
        """`load`: the number of a client, and that of its pipeline -> what it sends."""
        self._guest = guest
        self._number = number
        self._load = load
        self._rounds = 0
        self.connect()

    def connect(self) -> None:
        """Open a connection."""
        self.connection: socket.socket = self._guest.access.connection()
        self._client = Client(self.connection)

    def close(self) -> None:
        """Close it."""
        self._client.close()

    def send(self) -> None:
        """Send the next pipeline. Raises ServerGoneError."""
        self._exchange = self._load(self._number, self._rounds)
        self._rounds += 1
        self._due = b"".join(self._exchange.due)
        self._got = bytearray()
        self._client.send(Client.pack(self._exchange.requests))

    def receive(self) -> bool:
        """Take what has arrived. Returns whether that is all. Raises ServerGoneError, and AssertionError for the first
        reply that is not due.
        """
        try:
            content = self.connection.recv(_AT_ONCE)
        except ConnectionResetError as error:
            raise ServerGoneError("connection reset by the server while waiting for a reply") from error
        if not content:
            raise ServerGoneError("connection closed by the server while waiting for a reply")
        self._got += content
        if not self._due.startswith(self._got):
            self._refuse()
        return len(self._got) == len(self._due)

    def _refuse(self) -> None:
        at = 0
        for request, due in zip(self._exchange.requests, self._exchange.due, strict=True):
            got = bytes(self._got[at : at + len(due)])
            assert due.startswith(got), f"{request!s:.80}: got {bytes(self._got[at:])!r:.80}, expected {due!r:.80}"
            at += len(due)
        raise AssertionError(f"bytes that no request asked for: {bytes(self._got[at:])!r:.80}")


def crowd(
    guest: Guest,
    load: Callable[[int, int], Exchange],
    *,
    seconds: float,
    clients: int = CLIENTS,
    anew: bool = False,
) -> None:
    """All clients send their load, pipeline after pipeline, for so many seconds. `anew`: each by a new connection. On a
    busy machine the server gets as many seconds of a processor, unless that takes three times as long.

    Raises AssertionError if clients wait whose replies do not come, although the server could have sent them,
    TimeoutError if it is slow, and what Member and Client raise.
    """
    begun, ran = time.monotonic(), _ran_seconds(guest)

    def is_over() -> bool:
        took = time.monotonic() - begun
        return took > LONGER * seconds or (took > seconds and _ran_seconds(guest) - ran > seconds)

    with contextlib.ExitStack() as closing, selectors.DefaultSelector() as selector:
        for number in range(clients):
            member = Member(guest, number, load)
            closing.callback(member.close)
            member.send()
            selector.register(member.connection, selectors.EVENT_READ, member)
        silence = _SilentServer(guest)
        while selector.get_map():
            ready = selector.select(SILENT_SECONDS / _LOOKS)
            if ready:
                silence = _SilentServer(guest)
            else:
                silence.look(len(selector.get_map()))
            for key, _ in ready:
                member = key.data
                if not member.receive():
                    continue
                is_late = is_over()
                if anew or is_late:
                    selector.unregister(member.connection)
                    member.close()
                if is_late:
                    continue
                if anew:
                    member.connect()
                    selector.register(member.connection, selectors.EVENT_READ, member)
                member.send()


def _ran_seconds(guest: Guest) -> float:
    """How long the server had a processor; for ever if it has ended."""
    try:
        return scheduling.ran_seconds(guest.host_pid)
    except OSError:
        return math.inf


class _SilentServer:
    """A server from which no byte has arrived for some time."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._seconds = self._usable_seconds = 0.0
        self._waited: float | None = None
        """How long it had waited for a processor at the last look."""
        self._sleeps: dict[int, int] = {}
        """As of scheduling.sleeps, at the last look."""

    def look(self, waiting: int) -> None:
        """One more look saw nothing. `waiting`: the number of clients. Raises as `crowd` does, if it is enough."""
        if self._guest.reports_crash():
            raise ServerGoneError("the server reports a crash, and keeps its connections open")
        look = SILENT_SECONDS / _LOOKS
        self._usable_seconds += self._usable(look)
        self._seconds += look
        patience = self._guest.spec.patience_seconds
        if self._usable_seconds < SILENT_SECONDS and patience is not None and self._seconds >= patience:
            raise TimeoutError("no byte came, and threads of the server were held")
        if self._usable_seconds < SILENT_SECONDS and self._seconds < self._guest.deadline_seconds:
            return
        # It hangs, or it has lost requests or replies.
        try:
            with self._guest.client(deadline_seconds=SILENT_SECONDS) as client:
                assert client.command("PING") == b"PONG"
        except TimeoutError:
            if self._usable_seconds < SILENT_SECONDS or self._usable(SILENT_SECONDS) < SILENT_SECONDS / 2:
                raise
            self._guest.hung()
            raise AssertionError(
                f"{ANSWERS_NOBODY}: {waiting} clients have no reply, and a new one has none after "
                f"{self._usable_seconds:.0f} s, in which no thread was held"
            ) from None
        raise AssertionError(f"the server answers a new client, and {waiting} others have no reply")

    def _usable(self, seconds: float) -> float:
        """How much of so many seconds since the last call the server could use: none of it if a thread was held. The
        first call has nothing to compare with.
        """
        waited, sleeps = scheduling.waited_seconds(self._guest.host_pid), scheduling.sleeps(self._guest.host_pid)
        usable = seconds - (waited - self._waited) if self._waited is not None else 0.0
        slept = max((count - self._sleeps.get(thread, count) for thread, count in sleeps.items()), default=0)
        self._waited, self._sleeps = waited, sleeps
        return usable if slept <= HELD_SLEEPS * max(usable, 0.0) else 0.0
