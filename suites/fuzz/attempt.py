"""One attempt: sends a stream to empty servers, and compares guest, native build and model up to the stored data."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from harness.protocol import pipeline
from harness.protocol.command_stream import clients_of, command, wire
from harness.protocol.resp import Client, UnreadableReplyError
from suites.fuzz.emptying import RESET, awaits_time, leaves_client
from suites.fuzz.failure import differing, gone, mistaken, native_gone
from suites.fuzz.stored_data import LIST_KEYS, listing, stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.protocol.command_stream import Stream
    from harness.protocol.control_connection import ControlConnection
    from harness.protocol.resp import Reply
    from harness.run.server_process import Guest
    from suites.fuzz.emptying import Emptying
    from suites.fuzz.failure import Failure

NATIVE_SECONDS = 20.0


def attempt(
    guest: Guest, oracle: Guest, stream: Stream, emptying: Emptying, *, checkpoint: bool
) -> tuple[Failure | None, list[Reply]]:
    """Empty both servers and send the stream; compare them and the model and, at a checkpoint, all stored data.

    Returns the failure, and the replies that the guest sent. Raises OSError if a server cannot be emptied.
    """
    stream = concluded(stream)
    emptying.empty(guest, oracle)
    if awaits_time(stream):
        emptying.hasten(guest, oracle)
    # Accepting and closing a connection takes a server as long as several commands.
    keeps = checkpoint and leaves_client(guest, stream)
    if not keeps:
        emptying.drop_clients()
    with contextlib.ExitStack() as connections:
        pair = _Pair(guest, oracle, emptying, connections, keeps=keeps)
        failure = pair.failure_of(stream)
        if failure is None and checkpoint:
            failure = pair.failure_of_data(stream)
    return failure, pair.guest.replies


class _Pair:
    """Both servers, empty, and their clients. `connections` closes the clients that are not kept."""

    def __init__(
        self, guest: Guest, oracle: Guest, emptying: Emptying, connections: contextlib.ExitStack, *, keeps: bool
    ) -> None:
        """`keeps`: whether each server's only client is reused for the next stream."""
        self.native = _Side(oracle, lambda: _native_client(oracle), emptying)
        self.guest = _Side(guest, guest.client, emptying)
        self._emptying = emptying
        self._connections = connections
        self._keeps = keeps
        self._known_faults = guest.evidence.faults()
        self._keys: Reply = None
        """The keys of the native build after the stream; None if they are unknown."""

    def failure_of(self, stream: Stream) -> Failure | None:
        """Send the stream, and compare the replies with each other and with the model."""
        sides = self.native, self.guest
        for side in sides:
            side.connect(clients_of(stream), self._connections)
        if clients_of(stream) > 1:
            for side in sides:
                side.converse(stream)
        else:
            writes = pipeline.writes_of(stream)
            self._ask(_listing_keys(writes) if self._keeps else writes, writes)
        if self._keeps and not self.native.error:
            self._keys = self.native.replies.pop()
            self.native.replies.pop()
        # If the stream kills the native build, it should kill the guest too, and the guest's death is recorded.
        if error := self.guest.error:
            both = isinstance(error, UnreadableReplyError) and str(error) == str(self.native.error)
            return msgspec.structs.replace(self._gone(stream, error), natively=both)
        if error := self.native.error:
            return native_gone(stream, len(self.native.replies), error)
        return self._differing(stream) or mistaken(stream, self.guest.replies)

    def failure_of_data(self, stream: Stream) -> Failure | None:
        """Compare all data that the stream has stored. A kept client is then ready for the next stream."""
        sides = self.native, self.guest
        first = RESET if self._keeps else command("SELECT", 0)
        read = (first, *listing(stream), *stored(self.native.control, self._keys))
        if clients_of(stream) > 1:
            # Either of two clients may be disconnected, or may receive messages about the other.
            for side in sides:
                side.connect(1, self._connections)
        content = wire(read)
        restoring = [self._emptying.restoring(side.server, stream) if self._keeps else () for side in sides]
        self._ask(*([(content + wire(after), len(read) + len(after))] for after in restoring))
        if error := self.native.error:
            raise error
        restored = [side.end_of_replies(len(stream + read)) for side in sides]
        if error := self.guest.error:
            return self._gone(stream + read, error)
        failure = self._differing(stream + read)
        if failure is None:
            self._leave(stream, restored)
        return failure

    def _leave(self, stream: Stream, restored: list[list[Reply]]) -> None:
        """Record the stream that both servers have received, or none if clients are kept and everything is restored.

        `restored`: each server's replies to the commands that restore it.
        """
        sides = self.native, self.guest
        if not self._keeps:
            for side in sides:
                self._emptying.sent(side.server, stream)
        elif all(side.replies[len(stream)] == b"RESET" for side in sides) and all(one[0] == b"OK" for one in restored):
            self._connections.pop_all()
            for side in sides:
                side.keep_client()

    def _ask(self, native: list[pipeline.Write], guest: list[pipeline.Write]) -> None:
        """Send each write to both servers, which work in parallel, and wait for their replies before the next write."""
        for (to_native, native_count), (to_guest, guest_count) in zip(native, guest, strict=True):
            self.native.send(to_native)
            self.guest.send(to_guest)
            self.native.receive(native_count)
            self.guest.receive(guest_count)

    def _gone(self, stream: Stream, error: OSError) -> Failure:
        return gone(self.guest.server, self._known_faults, stream, len(self.guest.replies), error)

    def _differing(self, stream: Stream) -> Failure | None:
        return differing(stream, self.guest.server, self.guest.replies, self.native.replies)


def _native_client(oracle: Guest) -> Client:
    deadline = oracle.runner.target.host_deadline_seconds(NATIVE_SECONDS)
    return Client.at_socket(oracle.upstream, deadline_seconds=deadline)


class _Side:
    """One of the two servers, its clients, and all its replies."""

    def __init__(self, server: Guest, connect_one: Callable[[], Client], emptying: Emptying) -> None:
        self.replies: list[Reply] = []
        self.error: OSError | None = None
        """The reason why replies are missing. Nothing more is sent after it."""
        self.server = server
        self._connect_one = connect_one
        self._emptying = emptying
        self._clients: list[Client] = []

    @property
    def control(self) -> ControlConnection:
        """The control connection, which no client of the stream uses."""
        return self._emptying.control(self.server)

    def connect(self, number: int, connections: contextlib.ExitStack) -> None:
        """Connect that many clients. A kept client counts as new. `connections` closes them."""
        kept = self._emptying.take_client(self.server)
        self._clients = [kept or self._connect_one(), *(self._connect_one() for _ in range(number - 1))]
        for client in self._clients:
            connections.enter_context(client)

    def send(self, content: bytes) -> None:
        """Send bytes from the first client."""
        if not self.error:
            try:
                self._clients[0].send(content)
            except OSError as error:
                self.error = error

    def receive(self, count: int) -> None:
        """Receive that many replies."""
        if not self.error:
            try:
                self._clients[0].receive_into(self.replies, count)
            except OSError as error:
                self.error = error

    def converse(self, stream: Stream) -> None:
        """Send a stream of several clients, and receive the replies."""
        seconds = self.server.deadline_seconds
        try:
            pipeline.ask_all_into(self.replies, self._clients, stream, self.control, deadline_seconds=seconds)
        except OSError as error:
            self.error = error

    def end_of_replies(self, count: int) -> list[Reply]:
        """Remove and return the replies after the first `count`."""
        end = self.replies[count:]
        del self.replies[count:]
        return end

    def keep_client(self) -> None:
        """Keep the client for the next stream, and record that the server is empty."""
        self._emptying.keep_client(self.server, self._clients[0])
        self._emptying.sent(self.server, ())


def concluded(stream: Stream) -> Stream:
    """The stream. If it has several clients, each ends with PING, so that messages about the other clients arrive
    first.
    """
    number = clients_of(stream)
    ends = tuple(msgspec.structs.replace(command("PING"), client=client) for client in range(number))
    return stream if number == 1 or stream[-number:] == ends else (*stream, *ends)


def _listing_keys(writes: list[pipeline.Write]) -> list[pipeline.Write]:
    """The writes of a stream, the last one with RESET and KEYS added."""
    content, count = writes[-1]
    return [*writes[:-1], (content + wire((RESET,)) + LIST_KEYS, count + 2)]
