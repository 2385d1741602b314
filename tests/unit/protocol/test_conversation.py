"""Clients take turns: a freed client's reply comes before the next command, and a silent one is an error."""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import TYPE_CHECKING

import hiredis
import msgspec
import pytest

from harness.protocol.command_stream import command, from_text
from harness.protocol.control_connection import ControlConnection
from harness.protocol.conversation import UNANSWERED, Conversation, name_of
from harness.protocol.resp import Client
from tests.unit.record.test_recording_proxy import RecordedServer

if TYPE_CHECKING:
    import socket

    from harness.protocol.command_stream import Stream
    from harness.protocol.resp import Reply

FIRST_NUMBER = 101


class SmallServer(RecordedServer):
    """Some commands wait until something is pushed; of most others it sends the words back.

    `held`: so many questions for its clients pass between a push and the reply to the client that waited for it.
    """

    def __init__(self, *, held: int = 0) -> None:
        self._held = held
        self._waiting: list[socket.socket] = []
        self._waits, self._pushed = threading.Event(), False
        self._numbers = itertools.count(FIRST_NUMBER)
        super().__init__(bytes)

    def _talk(self, connection: socket.socket) -> None:
        reader = hiredis.Reader()
        with connection, contextlib.suppress(OSError):
            while piece := connection.recv(65536):
                reader.feed(piece)
                while words := reader.gets():
                    connection.sendall(self._answer_of(words, connection))

    def _answer_of(self, words: list[bytes], connection: socket.socket) -> bytes:
        match words:
            case [b"CLIENT", b"ID"]:
                return b":%d\r\n" % next(self._numbers)
            case [b"BLPOP" | b"XREAD", *_]:
                self._waiting.append(connection)
                self._waits.set()
                return b""
            case [b"LPUSH", *_]:
                self._pushed = True
                self._free()
                return b":1\r\n"
            case [b"INFO", *_]:
                # It may be asked before the other connection's command has been read.
                self._waits.wait(20)
                if self._pushed:
                    self._free()
                return _bulk(b"blocked_clients:%d\r\n" % (0 if self._pushed else len(self._waiting)))
            case _:
                return _bulk(b" ".join(words))

    def _free(self) -> None:
        self._held -= 1
        if self._held < 0:
            for connection in self._waiting:
                connection.sendall(_bulk(b"pushed"))
            self._waiting = []


def _bulk(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


def replies_to(stream: Stream, *, held: int = 0, deadline_seconds: float = 20) -> list[Reply]:
    """The replies to two clients."""
    replies: list[Reply] = []
    with SmallServer(held=held) as server, contextlib.ExitStack() as connections:
        clients = [connections.enter_context(Client.at_socket(server.path, deadline_seconds=20)) for _ in range(2)]
        control = connections.enter_context(ControlConnection(server.path, deadline_seconds=20))
        Conversation(clients, control, deadline_seconds=deadline_seconds).ask_into(replies, stream)
    return replies


@pytest.mark.parametrize("waiting", ["BLPOP l 0", "XREAD COUNT 1 BLOCK 0 STREAMS l $"])
def test_a_freed_clients_reply_takes_the_place_of_its_command(waiting: str) -> None:
    assert replies_to(from_text(f"ECHO a\n@2 {waiting}\n")) == [b"ECHO a", UNANSWERED]
    assert replies_to(from_text(f"@2 {waiting}\nLPUSH l a\n@2 PING\n")) == [b"pushed", 1, b"PING"]


def test_a_command_names_another_client_by_the_number_that_the_server_gave_it() -> None:
    stream = (command("ECHO", name_of(1), name_of(0)), msgspec.structs.replace(command("PING"), client=1))
    assert replies_to(stream) == [b"ECHO %d %d" % (FIRST_NUMBER + 1, FIRST_NUMBER), b"PING"]


def test_a_client_that_is_freed_and_gets_no_reply_is_an_error() -> None:
    """The server asks for patience a thousand times, for which the deadline has no time."""
    with pytest.raises(TimeoutError, match="no longer blocked"):
        replies_to(from_text("@2 BLPOP l 0\nLPUSH l a\n"), held=1000, deadline_seconds=0.1)
