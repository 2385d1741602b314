"""One attempt: sends a stream to empty servers, and compares guest, native build and model up to the stored data."""

from __future__ import annotations

import contextlib
import re
import socket
from typing import TYPE_CHECKING

import msgspec

from harness.core.model import Record
from harness.core.sockets import connect
from harness.protocol import reply_comparison
from harness.protocol.allowed_refusals import release_of
from harness.protocol.command_stream import Command, clients_of, command
from harness.protocol.resp import Client
from harness.record import fault_log
from harness.run.server_process import PANIC, StartError
from suites.fuzz.model import MODELLED, UNPREDICTED, Model
from suites.fuzz.values import KEY_LETTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from harness.protocol.command_stream import Stream
    from harness.protocol.control_connection import ControlConnection
    from harness.protocol.resp import Reply
    from harness.run.server_process import Guest
    from suites.fuzz.emptying import Emptying

NATIVE_SECONDS = 20.0
LARGEST_PAYLOAD_BYTES = 5000
"""Size limit of the payloads that RESTORE copies into a new key."""
REFUSED = "refused to start"
DIED = "died"
KEYS = re.compile("[1-9][0-9]* keys ")
"""The start of the result of `taken` if the server has stored a key."""
_CHANCY = (b"stream", b"vectorset")
_FADING = KEY_LETTERS["fading"].encode()
_LIST_KEYS = Client.pack([("KEYS", "*")])


class Failure(Record, frozen=True):
    """A failure of a stream."""

    index: int
    """The failing command, or the first without an answer."""
    label: str
    """The command's name, and the kind of failure unless it was the reply: a part of the finding's name."""
    wrong_command: str
    """The command that was answered wrongly; empty if it was not answered."""
    message: str
    sameness: str
    """Equal for two failures that count as the same."""
    stream: Stream
    """The commands that were sent, those of the checkpoint included."""


def attempt(
    guest: Guest, oracle: Guest, stream: Stream, emptying: Emptying, *, checkpoint: bool
) -> tuple[Failure | None, list[Reply]]:
    """Empty both servers and send the stream; compare them and the model and, at a checkpoint, all stored data.

    Returns the failure, and the guest's replies as far as they came. Raises OSError where a server cannot be emptied.
    """
    stream = concluded(stream)
    emptying.empty(guest, oracle)
    known_faults = guest.faults()
    with contextlib.ExitStack() as connections:
        native_side = _Side(oracle, lambda: Client.at_socket(oracle.upstream, deadline_seconds=NATIVE_SECONDS))
        guest_side = _Side(guest, guest.client)
        sides = native_side, guest_side
        replies = guest_side.replies
        comparison = _Comparison(guest, replies, native_side.replies)
        for side in sides:
            side.connect(clients_of(stream), connections)
        writes = _writes_of(stream)
        # The native build runs first: if it dies of the stream, the guest should die too, and its death is recorded.
        died = native_side.ask(stream, writes, emptying)
        if error := guest_side.ask(stream, writes, emptying):
            return gone(guest, known_faults, stream, len(replies), error), replies
        if died:
            return _native_gone(stream, len(native_side.replies), died), replies
        failure = comparison.failure(stream)
        if failure is None and checkpoint:
            stored = _stored(emptying.control(oracle))
            if clients_of(stream) > 1:
                # Of two clients each may have been disconnected, or hear of what the other does.
                for side in sides:
                    side.connect(1, connections)
            stream += stored
            writes = _writes_of(stored)
            if error := native_side.ask(stored, writes, emptying):
                raise error
            if error := guest_side.ask(stored, writes, emptying):
                return gone(guest, known_faults, stream, len(replies), error), replies
            failure = comparison.failure(stream)
    return failure, replies


def _writes_of(stream: Stream) -> list[reply_comparison.Write]:
    """What one client sends to either server; nothing if several take turns."""
    return reply_comparison.writes_of(stream) if clients_of(stream) == 1 else []


class _Side:
    """One of the two servers, the clients that ask it, and all its replies."""

    def __init__(self, server: Guest, connect_one: Callable[[], Client]) -> None:
        self.replies: list[Reply] = []
        self._server = server
        self._connect_one = connect_one
        self._clients: list[Client] = []

    def connect(self, number: int, connections: contextlib.ExitStack) -> None:
        """Take so many new clients, which close with `connections`."""
        self._clients = [connections.enter_context(self._connect_one()) for _ in range(number)]

    def ask(self, stream: Stream, writes: list[reply_comparison.Write], emptying: Emptying) -> OSError | None:
        """Send a stream, of which `writes` are the bytes if one client sends it. Returns why not all replies came."""
        try:
            if writes:
                reply_comparison.ask_writes_into(self.replies, self._clients[0], writes)
            else:
                reply_comparison.ask_all_into(
                    self.replies,
                    self._clients,
                    stream,
                    emptying.control(self._server),
                    deadline_seconds=self._server.deadline_seconds,
                )
        except OSError as error:
            return error
        return None


def concluded(stream: Stream) -> Stream:
    """The stream; if several clients send it, each ends with PING, whose reply brings what it heard of the others."""
    number = clients_of(stream)
    ends = tuple(msgspec.structs.replace(command("PING"), client=client) for client in range(number))
    return stream if number == 1 or stream[-number:] == ends else (*stream, *ends)


def _native_gone(stream: Stream, answered: int, error: OSError) -> Failure:
    name = stream[min(answered, len(stream) - 1)].name
    return Failure(
        index=min(answered, len(stream) - 1),
        label=f"{name}-native-end",
        wrong_command="",
        message=f"the native build died of it, the guest did not: {error}",
        sameness=f"native end {name}",
        stream=stream,
    )


class _Comparison:
    """Compares the guest's replies with the native build's and the model's, as they become more."""

    def __init__(self, guest: Guest, guest_replies: list[Reply], native_replies: list[Reply]) -> None:
        self._guest = guest
        self._guest_replies = guest_replies
        self._native_replies = native_replies
        self._model = Model()
        self._modelled = 0
        """The number of commands that the model has answered."""

    def failure(self, stream: Stream) -> Failure | None:
        """The first wrong reply to a stream that begins with the one before."""
        difference = None
        # Most streams end here, without a look at single replies.
        if self._guest_replies != self._native_replies:
            release = release_of(self._guest.build.server_binary, self._guest.version)
            target = self._guest.runner.target
            difference = reply_comparison.first_difference(
                stream, self._guest_replies, self._native_replies, target, release
            )
        if difference is not None:
            return Failure(
                index=difference.index,
                label=difference.name,
                wrong_command=difference.command[: reply_comparison.SHOWN],
                message=str(difference),
                sameness=f"difference {difference.name}",
                stream=stream,
            )
        # The model knows of one client.
        return self._mistaken(stream) if clients_of(stream) == 1 else None

    def _mistaken(self, stream: Stream) -> Failure | None:
        """The first reply that is not the model's."""
        if not self._modelled and not any(one.name in MODELLED for one in stream):
            return None
        for index in range(self._modelled, len(stream)):
            one, reply = stream[index], self._guest_replies[index]
            expected = self._model.answer(one)
            if expected is not UNPREDICTED and expected != reply:
                says = f"the model says {expected!r:.200}; the native build answers as the guest does"
                message = f"{one!s:.200}: got {reply_comparison.shown(reply)}, {says}"
                return Failure(
                    index=index,
                    label=f"{one.name}-model",
                    wrong_command=f"{one!s:.200}",
                    message=message,
                    sameness=f"model {one.name}",
                    stream=stream,
                )
        self._modelled = len(stream)
        return None


def gone(guest: Guest, known_faults: int, stream: Stream, answered: int, error: OSError) -> Failure:
    """The failure of a guest that died or hangs, identified by the place of its first fault, or by its end."""
    if isinstance(error, TimeoutError) and not guest.died_of_fault(known_faults):
        guest.hung()
    guest.settle()
    faults = [fault for fault in fault_log.read_faults(guest.fault_log)[known_faults:] if fault.event == "fault"]
    place = f"{faults[0].signal} at {faults[0].pc:#x}" if faults else guest.detail
    index = min(answered, len(stream) - 1)
    return Failure(
        index=index,
        label=f"{stream[index].name}-end",
        wrong_command="",
        message=f"{type(error).__name__}: {error}",
        sameness=f"end {place}",
        stream=stream,
    )


def _stored(oracle: ControlConnection) -> Stream:
    """Commands that read all data stored by the native build, and copy some of it into new keys with RESTORE."""
    listed = oracle.ask(_LIST_KEYS, 1)[0]
    keys = sorted(key for key in listed if isinstance(key, bytes))  # type: ignore[union-attr]
    commands: list[Command] = [command("SELECT", 0)]
    if not keys:
        return tuple(commands)
    questions = [words for key in keys for words in (("TYPE", key), ("OBJECT", "ENCODING", key), ("DUMP", key))]
    answers = oracle.ask(Client.pack(questions), len(questions))
    for key, kind, encoding, payload in zip(keys, answers[::3], answers[1::3], answers[2::3], strict=True):
        commands += [Command(words=(b"OBJECT", b"ENCODING", key)), *reading(kind, key)]
        # A hash table's order differs from run to run, as a skip list's did until Redis 4; a stream's groups contain
        # times, a vector set random levels.
        if encoding in {b"hashtable", b"skiplist"} or kind in _CHANCY or not isinstance(payload, bytes):
            continue
        if key.startswith(_FADING):
            # Its fields expire relative to now.
            continue
        commands.append(Command(words=(b"DUMP", key)))
        if len(payload) < LARGEST_PAYLOAD_BYTES:
            copy = b"restored:" + key
            commands += [Command(words=(b"RESTORE", copy, b"0", payload)), *reading(kind, copy)]
    return tuple(commands)


_READERS: dict[Hashable, tuple[bytes, tuple[bytes, ...]]] = {
    b"string": (b"GET", ()),
    b"list": (b"LRANGE", (b"0", b"-1")),
    b"hash": (b"HGETALL", ()),
    b"set": (b"SMEMBERS", ()),
    b"zset": (b"ZRANGE", (b"0", b"-1", b"WITHSCORES")),
    b"stream": (b"XRANGE", (b"-", b"+")),
}
"""Type -> the name of the command that reads a whole key, and the words after the key."""


def reading(kind: Reply, key: bytes) -> Stream:
    """The command that reads a whole key of the type that TYPE named."""
    if not isinstance(kind, bytes) or kind not in _READERS:
        return ()
    name, rest = _READERS[kind]
    return (Command(words=(name, key, *rest)),)


def shout(guest: Guest, content: bytes) -> Failure | None:
    """Send bytes that need not be valid protocol, disconnect, and check that the guest still serves others."""
    known_faults = guest.faults()
    try:
        _send_and_hang_up(guest, content)
        with guest.client() as client:
            client.command("PING")
    except OSError as error:
        return gone(guest, known_faults, (command("PING"),), 0, error)
    return None


def _send_and_hang_up(guest: Guest, content: bytes) -> None:
    with (
        contextlib.closing(guest.connection()) as connection,
        # After a protocol error the server closes the connection, perhaps before everything is sent.
        contextlib.suppress(ConnectionError),
    ):
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


def taken(start: Callable[[], Guest]) -> str:
    """The result of starting a server with files: its stored data, REFUSED, or how it DIED."""
    try:
        return _contents(start())
    except StartError as error:
        # The server panics with this text at a duplicate key, which counts as a refusal.
        refused = error.detail.startswith("exit status 1;") or PANIC in error.log
        return REFUSED if refused else f"{DIED}: {error}"
    except OSError as error:
        return f"{DIED}: {type(error).__name__}: {error}"


def _contents(server: Guest) -> str:
    with contextlib.closing(connect(server.upstream, deadline_seconds=server.deadline_seconds)) as connection:
        client = Client(connection)
        keys = sorted(key for key in client.command("KEYS", "*") if isinstance(key, bytes))  # type: ignore[union-attr]
        types = client.pipeline([["TYPE", key] for key in keys])
        stream = tuple(one for key, kind in zip(keys, types, strict=True) for one in reading(kind, key))
        replies = reply_comparison.ask(client, stream)
    contents = [
        (one.words[1], reply_comparison.comparable(one.name, reply)) for one, reply in zip(stream, replies, strict=True)
    ]
    return f"{len(keys)} keys {contents!r}"
