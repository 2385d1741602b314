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
from suites.fuzz.model import UNPREDICTED, Model
from suites.fuzz.values import KEY_LETTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from harness.protocol.command_stream import Stream
    from harness.protocol.resp import Reply
    from harness.run.server_process import Guest

NATIVE_SECONDS = 20.0
LARGEST_PAYLOAD_BYTES = 5000
"""Size limit of the payloads that RESTORE copies into a new key."""
REFUSED = "refused to start"
DIED = "died"
KEYS = re.compile("[1-9][0-9]* keys ")
"""The start of the result of `taken` if the server has stored a key."""
_CHANCY = (b"stream", b"vectorset")


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


def attempt(guest: Guest, oracle: Guest, stream: Stream, *, checkpoint: bool) -> tuple[Failure | None, list[Reply]]:
    """Send the stream to both servers and compare; then compare the model and, at a checkpoint, all stored data.

    Returns the failure, and the guest's replies as far as they came.
    """
    stream = concluded(stream)
    guest_replies: list[Reply] = []
    native_replies: list[Reply] = []
    known_faults = guest.faults()
    number = clients_of(stream)
    with contextlib.ExitStack() as connections:

        def connected(connect_one: Callable[[], Client]) -> list[Client]:
            return [connections.enter_context(connect_one()) for _ in range(number)]

        def to_native() -> Client:
            return Client.at_socket(oracle.upstream, deadline_seconds=NATIVE_SECONDS)

        natives, clients = connected(to_native), connected(guest.client)
        # The native build runs first: if it dies of the stream, the guest should die too, and its death is recorded.
        died = _ask(native_replies, natives, stream, oracle)
        if error := _ask(guest_replies, clients, stream, guest):
            return gone(guest, known_faults, stream, len(guest_replies), error), guest_replies
        if died:
            return _native_gone(stream, len(native_replies), died), guest_replies
        failure = _compared(stream, guest_replies, native_replies, guest)
        if failure is None and checkpoint:
            stored = _stored(oracle)
            stream += stored
            if number > 1:
                # Of two clients each may have been disconnected, or hear of what the other does.
                number = 1
                natives, clients = connected(to_native), connected(guest.client)
            native_replies += reply_comparison.ask(natives[0], stored)
            if error := _ask(guest_replies, clients, stored, guest):
                return gone(guest, known_faults, stream, len(guest_replies), error), guest_replies
            failure = _compared(stream, guest_replies, native_replies, guest)
    return failure, guest_replies


def concluded(stream: Stream) -> Stream:
    """The stream; if several clients send it, each ends with PING, whose reply brings what it heard of the others."""
    number = clients_of(stream)
    ends = tuple(msgspec.structs.replace(command("PING"), client=client) for client in range(number))
    return stream if number == 1 or stream[-number:] == ends else (*stream, *ends)


def _ask(replies: list[Reply], clients: list[Client], stream: Stream, server: Guest) -> OSError | None:
    try:
        reply_comparison.ask_all_into(
            replies, clients, stream, server.upstream, deadline_seconds=server.deadline_seconds
        )
    except OSError as error:
        return error
    return None


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


def _compared(stream: Stream, guest_replies: list[Reply], native_replies: list[Reply], guest: Guest) -> Failure | None:
    release = release_of(guest.build.server_binary, guest.version)
    difference = reply_comparison.first_difference(stream, guest_replies, native_replies, guest.runner.target, release)
    if difference is not None:
        return Failure(
            index=difference.index,
            label=difference.name,
            wrong_command=difference.command[: reply_comparison.SHOWN],
            message=str(difference),
            sameness=f"difference {difference.name}",
            stream=stream,
        )
    if clients_of(stream) > 1:
        # The model knows of one client.
        return None
    model = Model()
    for index, (one, reply) in enumerate(zip(stream, guest_replies, strict=True)):
        expected = model.answer(one)
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


def _stored(oracle: Guest) -> Stream:
    """Commands that read all data stored by the native build, and copy some of it into new keys with RESTORE."""
    with Client.at_socket(oracle.upstream, deadline_seconds=NATIVE_SECONDS) as client:
        keys = sorted(key for key in client.command("KEYS", "*") if isinstance(key, bytes))  # type: ignore[union-attr]
        types = client.pipeline([["TYPE", key] for key in keys])
        encodings = client.pipeline([["OBJECT", "ENCODING", key] for key in keys])
        dumps = client.pipeline([["DUMP", key] for key in keys])
    commands: list[Command] = [command("SELECT", 0)]
    for key, kind, encoding, payload in zip(keys, types, encodings, dumps, strict=True):
        commands += [command("OBJECT", "ENCODING", key), *reading(kind, key)]
        # A hash table's order differs from run to run, as a skip list's did until Redis 4; a stream's groups contain
        # times, a vector set random levels.
        if encoding in {b"hashtable", b"skiplist"} or kind in _CHANCY or not isinstance(payload, bytes):
            continue
        if key.startswith(KEY_LETTERS["fading"].encode()):
            # Its fields expire relative to now.
            continue
        commands.append(command("DUMP", key))
        if len(payload) < LARGEST_PAYLOAD_BYTES:
            copy = b"restored:" + key
            commands += [command("RESTORE", copy, 0, payload), *reading(kind, copy)]
    return tuple(commands)


def reading(kind: Reply, key: bytes) -> Stream:
    """The command that reads a whole key of the type that TYPE named."""
    commands: dict[Hashable, Command] = {
        b"string": command("GET", key),
        b"list": command("LRANGE", key, 0, -1),
        b"hash": command("HGETALL", key),
        b"set": command("SMEMBERS", key),
        b"zset": command("ZRANGE", key, 0, -1, "WITHSCORES"),
        b"stream": command("XRANGE", key, "-", "+"),
    }
    return (commands[kind],) if isinstance(kind, bytes) and kind in commands else ()


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
