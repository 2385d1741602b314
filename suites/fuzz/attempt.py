"""One attempt: sends a stream to empty servers, and compares guest, native build and model up to the stored data."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from harness.core.model import Record
from harness.protocol import pipeline, reply_comparison
from harness.protocol.allowed_refusals import release_of
from harness.protocol.command_stream import Command, clients_of, command, wire
from harness.protocol.resp import Client
from harness.record import fault_log
from suites.fuzz.emptying import RESET, awaits_time, leaves_client
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
_CHANCY = (b"stream", b"vectorset")
_FADING = KEY_LETTERS["fading"].encode()
_LIST_KEYS = Client.pack([("KEYS", "*")])
_OF_DATABASES = frozenset({"COPY", "MOVE", "SELECT", "SWAPDB"})
"""Commands that streams use for keys of the second database."""


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
    if awaits_time(stream):
        emptying.hasten(guest, oracle)
    # To accept a client and to end it takes a server as long as some commands.
    keeps = checkpoint and leaves_client(guest, stream)
    if not keeps:
        emptying.drop_clients()
    with contextlib.ExitStack() as connections:
        pair = _Pair(guest, oracle, emptying, connections)
        failure = pair.failure_of(stream, keeps=keeps)
        if failure is None and checkpoint:
            failure = pair.failure_of_data(stream, keeps=keeps)
    return failure, pair.guest.replies


class _Pair:
    """Both servers, empty, and the clients that ask them. Clients that are not kept end with `connections`."""

    def __init__(self, guest: Guest, oracle: Guest, emptying: Emptying, connections: contextlib.ExitStack) -> None:
        self.native = _Side(oracle, lambda: _native_client(oracle), emptying)
        self.guest = _Side(guest, guest.client, emptying)
        self._emptying = emptying
        self._connections = connections
        self._known_faults = guest.faults()
        self._keys: Reply = None
        """The keys of the native build after the stream; None where nobody has asked."""

    def failure_of(self, stream: Stream, *, keeps: bool) -> Failure | None:
        """Send the stream, and compare the replies, the model's too."""
        sides = self.native, self.guest
        for side in sides:
            side.connect(clients_of(stream), self._connections)
        if clients_of(stream) > 1:
            for side in sides:
                side.converse(stream)
        else:
            writes = pipeline.writes_of(stream)
            self._ask(_listing_keys(writes) if keeps else writes, writes)
        if keeps and not self.native.error:
            self._keys = self.native.replies.pop()
            self.native.replies.pop()
        # If the native build dies of the stream, the guest should die too, and its death is recorded.
        if error := self.guest.error:
            return self._gone(stream, error)
        if error := self.native.error:
            return _native_gone(stream, len(self.native.replies), error)
        return self._compared(stream) or _mistaken(stream, self.guest.replies)

    def failure_of_data(self, stream: Stream, *, keeps: bool) -> Failure | None:
        """Compare all data that the stream has stored. With `keeps` its client remains for the next one."""
        sides = self.native, self.guest
        first = RESET if keeps else command("SELECT", 0)
        read = (first, *listing(stream), *stored(self.native.control, self._keys))
        if clients_of(stream) > 1:
            # Of two clients each may have been disconnected, or hear of what the other does.
            for side in sides:
                side.connect(1, self._connections)
        content = wire(read)
        restoring = [self._emptying.restoring(side.server, stream) if keeps else () for side in sides]
        self._ask(*([(content + wire(after), len(read) + len(after))] for after in restoring))
        if error := self.native.error:
            raise error
        restored = [side.end_of_replies(len(stream + read)) for side in sides]
        if error := self.guest.error:
            return self._gone(stream + read, error)
        failure = self._compared(stream + read)
        if failure is not None:
            return failure
        if not keeps:
            for side in sides:
                self._emptying.sent(side.server, stream)
        elif all(side.replies[len(stream)] == b"RESET" for side in sides) and all(one[0] == b"OK" for one in restored):
            self._connections.pop_all()
            for side in sides:
                side.keep_client()
        return None

    def _ask(self, native: list[pipeline.Write], guest: list[pipeline.Write]) -> None:
        """Send each write to both servers, which work at the same time, before the next one."""
        for (to_native, native_count), (to_guest, guest_count) in zip(native, guest, strict=True):
            self.native.send(to_native)
            self.guest.send(to_guest)
            self.native.receive(native_count)
            self.guest.receive(guest_count)

    def _gone(self, stream: Stream, error: OSError) -> Failure:
        return gone(self.guest.server, self._known_faults, stream, len(self.guest.replies), error)

    def _compared(self, stream: Stream) -> Failure | None:
        """The first reply of the guest that is not the native build's."""
        # Most streams end here, without a look at single replies.
        if self.guest.replies == self.native.replies:
            return None
        guest = self.guest.server
        release, target = release_of(guest.build.server_binary, guest.version), guest.runner.target
        difference = reply_comparison.first_difference(stream, self.guest.replies, self.native.replies, target, release)
        if difference is None:
            return None
        return Failure(
            index=difference.index,
            label=difference.name,
            wrong_command=difference.command[: reply_comparison.SHOWN],
            message=str(difference),
            sameness=f"difference {difference.name}",
            stream=stream,
        )


def _native_client(oracle: Guest) -> Client:
    return Client.at_socket(oracle.upstream, deadline_seconds=NATIVE_SECONDS)


class _Side:
    """One of the two servers, the clients that ask it, and all its replies."""

    def __init__(self, server: Guest, connect_one: Callable[[], Client], emptying: Emptying) -> None:
        self.replies: list[Reply] = []
        self.error: OSError | None = None
        """Why not all replies came; nothing more is sent then."""
        self.server = server
        self._connect_one = connect_one
        self._emptying = emptying
        self._clients: list[Client] = []

    @property
    def control(self) -> ControlConnection:
        """The connection beside those of the clients."""
        return self._emptying.control(self.server)

    def connect(self, number: int, connections: contextlib.ExitStack) -> None:
        """Take so many clients, which are new or as new. They close with `connections`."""
        kept = self._emptying.take_client(self.server)
        self._clients = [kept or self._connect_one(), *(self._connect_one() for _ in range(number - 1))]
        for client in self._clients:
            connections.enter_context(client)

    def send(self, content: bytes) -> None:
        """Send what the one client sends."""
        if not self.error:
            try:
                self._clients[0].send(content)
            except OSError as error:
                self.error = error

    def receive(self, count: int) -> None:
        """Receive so many replies."""
        if not self.error:
            try:
                self._clients[0].receive_into(self.replies, count)
            except OSError as error:
                self.error = error

    def converse(self, stream: Stream) -> None:
        """Send what several clients send, and receive the replies."""
        seconds = self.server.deadline_seconds
        try:
            pipeline.ask_all_into(self.replies, self._clients, stream, self.control, deadline_seconds=seconds)
        except OSError as error:
            self.error = error

    def end_of_replies(self, count: int) -> list[Reply]:
        """Take away the replies after so many."""
        end = self.replies[count:]
        del self.replies[count:]
        return end

    def keep_client(self) -> None:
        """Keep the client for the next stream, for which all is as before."""
        self._emptying.keep_client(self.server, self._clients[0])
        self._emptying.sent(self.server, ())


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


def _mistaken(stream: Stream, replies: list[Reply]) -> Failure | None:
    """The first reply that is not the model's, which knows of one client, and nothing after SELECT or RESET."""
    if clients_of(stream) > 1 or MODELLED.isdisjoint([one.name for one in stream]):
        return None
    model = Model()
    for index, (one, reply) in enumerate(zip(stream, replies, strict=True)):
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


def _listing_keys(writes: list[pipeline.Write]) -> list[pipeline.Write]:
    """The writes of a stream, and RESET and KEYS with the last one."""
    content, count = writes[-1]
    return [*writes[:-1], (content + wire((RESET,)) + _LIST_KEYS, count + 2)]


def listing(stream: Stream) -> Stream:
    """Commands that list all keys. Of those that the guest alone has, nothing else asks."""
    keys = command("KEYS", "*")
    elsewhere = (command("SELECT", 1), keys, command("SELECT", 0))
    return (keys, *elsewhere) if any(one.name in _OF_DATABASES for one in stream) else (keys,)


def stored(oracle: ControlConnection, listed: Reply) -> Stream:
    """Commands that read all data stored by the native build, and copy some of it into new keys with RESTORE.

    `listed`: its keys, if they are known.
    """
    listed = oracle.ask(_LIST_KEYS, 1)[0] if listed is None else listed
    keys = sorted(key for key in listed if isinstance(key, bytes))  # type: ignore[union-attr]
    if not keys:
        return ()
    commands: list[Command] = []
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
