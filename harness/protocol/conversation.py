"""Sends a stream of several clients, who take turns: each command waits for its reply, or until its client is blocked.

Two servers that are used in this way do the same in the same order, however slow they are. If a command frees a blocked
client, that client's reply comes before the next command.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from typing import TYPE_CHECKING

import hiredis
import msgspec

from harness.protocol.command_stream import command, wire
from harness.protocol.resp import INCOMPLETE, ServerGoneError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.protocol.command_stream import Command, Stream
    from harness.protocol.control_connection import ControlConnection
    from harness.protocol.resp import Client, Reply

UNANSWERED = b"(its client is blocked)"
UNSENT = b"(not sent)"
CLOSED = b"(its connection is closed)"
"""A placeholder for a reply."""
ASK_NUMBER = command("CLIENT", "ID")
NUMBER = re.compile(rb"<client-([1-9])>")
"""A placeholder for a client's number."""
SUBSCRIBING = frozenset({"PSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUBSCRIBE", "SUNSUBSCRIBE", "UNSUBSCRIBE"})
_TORN = frozenset({"MULTI", "XREADGROUP"})
"""Commands that cause messages while their replies are written: those of a transaction, and a new consumer. A server
before 7.2 writes a message of RESP3 into the middle of the reply of the client that receives it.
"""
_CONFIRMATIONS = frozenset(name.lower().encode() for name in SUBSCRIBING)
_MESSAGES = frozenset({b"invalidate", b"message", b"pmessage", b"smessage", b"tracking-redir-broken"})
_POLL_SECONDS = 0.002


def name_of(client: int) -> bytes:
    """The placeholder for the number of a client, counted from 0."""
    return b"<client-%d>" % (client + 1)


class Conversation:
    """The clients of one server. `control` leads to it, too, and is not recorded."""

    def __init__(self, clients: list[Client], control: ControlConnection, *, deadline_seconds: float) -> None:
        self._clients = clients
        self._control = control
        self._deadline_seconds = deadline_seconds
        self._replies: list[Reply] = []
        self._heard: list[list[Reply]] = [[] for _ in clients]
        """The messages to each client besides replies: those of channels, and keys that are no longer valid."""
        self._waiting: dict[int, int] = {}
        """Client -> index of the command that blocks it."""
        self._closed: set[int] = set()
        self._queueing: set[int] = set()
        """Clients inside of a transaction."""
        self._speaks_resp3: set[int] = set()
        self._subscribed: set[int] = set()
        """Clients that have subscribed to anything, and may have given it up since."""

    def ask_into(self, replies: list[Reply], stream: Stream) -> None:
        """Send the stream, and append each reply to a list as it arrives.

        Messages to a client about others come with the reply to its last command. Raises OSError if the server is gone,
        or does not reply before the deadline; `replies` then ends there.
        """
        self._replies = replies
        numbers = self._numbers(stream)
        for one in stream:
            # In a transaction each channel is confirmed separately, in an array whose length counts commands.
            confused = one.name in SUBSCRIBING and one.client in self._queueing
            torn = one.name in _TORN and one.client in self._speaks_resp3 & self._subscribed
            if one.client in self._waiting or confused or torn:
                replies.append(UNSENT)
            elif one.client in self._closed:
                replies.append(CLOSED)
            else:
                self._send(_named(one, numbers))
        for client, heard in enumerate(self._heard):
            if heard:
                last = max(place for place, one in enumerate(stream) if one.client == client)
                replies[last] = [*heard, replies[last]]

    def _numbers(self, stream: Stream) -> list[bytes]:
        """The number of each client, if the stream names one. A server before 5.0 has none."""
        if not any(NUMBER.fullmatch(word) for one in stream for word in one.words):
            return []
        replies = []
        for client in self._clients:
            client.send(wire((ASK_NUMBER,)))
            replies.append(client.receive())
        return [b"%d" % reply if isinstance(reply, int) else b"0" for reply in replies]

    def _send(self, one: Command) -> None:
        try:
            self._clients[one.client].send(wire((one,)))
            reply = self._reply_or_blocked(one.client) if _may_block(one) else self._reply(one)
        except ServerGoneError:
            # Another client may have ended this one's connection. If the server is gone, this raises.
            self._control.blocked_clients()
            self._closed.add(one.client)
            self._hear_rest(one.client)
            reply = CLOSED
        self._replies.append(reply)
        self._note_state(one, reply)
        self._receive_freed()

    def _note_state(self, one: Command, reply: Reply) -> None:
        """A command's changes to its client."""
        if one.name == "MULTI" and reply == b"OK":
            self._queueing.add(one.client)
        elif one.name in {"DISCARD", "EXEC", "RESET"}:
            self._queueing.discard(one.client)
        if one.name == "HELLO" and one.words[1:2] == (b"3",) and not isinstance(reply, Exception):
            self._speaks_resp3.add(one.client)
        elif one.name == "RESET" or (one.name == "HELLO" and one.words[1:2] == (b"2",)):
            self._speaks_resp3.discard(one.client)
        if one.name in SUBSCRIBING:
            self._subscribed.add(one.client)

    def _reply(self, one: Command) -> Reply:
        """The reply; the confirmations of a subscription together."""
        due = len(one.words) - 1 if one.name in SUBSCRIBING else 0
        confirmed: list[Reply] = []
        while True:
            reply = self._clients[one.client].receive()
            if due and _kind(reply) in _CONFIRMATIONS:
                confirmed.append(reply)
                if len(confirmed) == due:
                    return confirmed
            elif _is_message(reply):
                self._heard[one.client].append(reply)
            else:
                return self._untorn(one.client, reply)

    def _hear_rest(self, client: int) -> None:
        """Receive what was on its way to a client when its connection was closed.

        Sending fails if the server has already closed the connection, and succeeds just before that. What the client
        received is the same in both cases, and must not depend on the timing.
        """
        with contextlib.suppress(ServerGoneError):
            while True:
                if _is_message(reply := self._clients[client].receive()):
                    self._heard[client].append(reply)

    def _untorn(self, client: int, reply: Reply) -> Reply:
        """A reply without the messages that a server before 7.2 has written into the middle of it.

        An array counts its elements and not the messages among them, so that its last elements follow it. They would be
        mistaken for the replies to later commands. Source: RESP3's push type, and the tracking of keys with REDIRECT.
        """

        def following() -> Iterator[Reply]:
            while True:
                yield self._clients[client].receive()

        def whole(torn: Reply, after: Iterator[Reply]) -> Reply:
            if not isinstance(torn, list) or isinstance(torn, hiredis.PushNotification):
                return torn
            elements: list[Reply] = []
            rest = itertools.chain(torn, after)
            while len(elements) < len(torn):
                element = next(rest)
                if isinstance(element, hiredis.PushNotification) and _kind(element) not in _CONFIRMATIONS:
                    self._heard[client].append(element)
                else:
                    elements.append(whole(element, rest))
            return elements

        return whole(reply, following())

    def _reply_or_blocked(self, client: int) -> Reply:
        deadline = time.monotonic() + self._deadline_seconds
        while time.monotonic() < deadline:
            reply = self._next(client, _POLL_SECONDS)
            if reply is not INCOMPLETE:
                return reply  # type: ignore[return-value]
            if self._control.blocked_clients() > len(self._waiting):
                self._waiting[client] = len(self._replies)
                return UNANSWERED
        raise TimeoutError("neither a reply nor a blocked client")

    def _receive_freed(self) -> None:
        """The replies of the clients that the last command has freed."""
        deadline = time.monotonic() + self._deadline_seconds
        while self._waiting and self._control.blocked_clients() < len(self._waiting):
            if time.monotonic() > deadline:
                raise TimeoutError("a client is no longer blocked but has no reply")
            for client in list(self._waiting):
                try:
                    reply = self._next(client, _POLL_SECONDS)
                except ServerGoneError:
                    self._closed.add(client)
                    reply = CLOSED
                if reply is not INCOMPLETE:
                    self._replies[self._waiting.pop(client)] = reply  # type: ignore[call-overload]

    def _next(self, client: int, seconds: float) -> Reply | object:
        """The client's next reply, or INCOMPLETE."""
        while _is_message(reply := self._clients[client].receive_within(seconds)):
            self._heard[client].append(reply)  # type: ignore[arg-type]
        return reply if reply is INCOMPLETE else self._untorn(client, reply)  # type: ignore[arg-type]


def _named(one: Command, numbers: list[bytes]) -> Command:
    """The command with the numbers of the clients that it names."""
    words = [
        numbers[int(found[1]) - 1] if (found := NUMBER.fullmatch(word)) and int(found[1]) <= len(numbers) else word
        for word in one.words
    ]
    return msgspec.structs.replace(one, words=tuple(words))


_BLOCKING = frozenset({"BLMOVE", "BLPOP", "BRPOP", "BRPOPLPUSH", "BZPOPMAX", "BZPOPMIN"})


def _may_block(one: Command) -> bool:
    """Whether it may block its client without an end."""
    words = one.words
    if one.name in {"BLMPOP", "BZMPOP"}:
        return words[1:2] == (b"0",)
    if one.name in {"XREAD", "XREADGROUP"}:
        return any(word.upper() == b"BLOCK" and after == b"0" for word, after in itertools.pairwise(words))
    return one.name in _BLOCKING and words[-1] == b"0"


def _kind(reply: Reply | object) -> bytes:
    return reply[0] if isinstance(reply, list) and reply and isinstance(reply[0], bytes) else b""


def _is_message(reply: Reply | object) -> bool:
    return isinstance(reply, hiredis.PushNotification) or _kind(reply) in _MESSAGES
