"""The control connection survives commands that end all connections, and never takes a late reply for a later one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from harness.protocol.control_connection import ControlConnection
from harness.protocol.resp import ServerGoneError
from tests.unit.record.test_recording_proxy import RecordedServer

if TYPE_CHECKING:
    from collections.abc import Callable

PING = b"PING\r\n"


def control(server: RecordedServer, *, deadline_seconds: float = 5.0) -> ControlConnection:
    return ControlConnection(server.path, deadline_seconds=deadline_seconds)


def closing_at(*questions: int) -> tuple[Callable[[bytes], bytes | None], list[bytes]]:
    """The replies of a server that closes the connection at these requests, counted from 0, and the requests that it
    received.
    """
    asked: list[bytes] = []

    def answer(question: bytes) -> bytes | None:
        asked.append(question)
        return None if len(asked) - 1 in questions else b"+%d\r\n" % (len(asked) - 1)

    return answer, asked


def test_a_connection_that_others_have_ended_is_reopened() -> None:
    answer, asked = closing_at(1)
    with RecordedServer(answer) as server, control(server) as connection:
        assert connection.ask(PING, 1) == [b"0"]
        assert connection.ask(PING, 1) == [b"2"]
    assert asked == [PING] * 3


def test_a_server_that_ends_new_connections_is_gone() -> None:
    answer, asked = closing_at(0, 2, 3)
    with RecordedServer(answer) as server, control(server) as connection:
        with pytest.raises(ServerGoneError):
            connection.ask(PING, 1)
        assert connection.ask(PING, 1) == [b"1"]
        with pytest.raises(ServerGoneError):
            connection.ask(PING, 1)
    assert len(asked) == 4
    with pytest.raises(OSError, match="No such file"):
        connection.ask(PING, 1)


def test_a_late_reply_is_not_taken_for_that_to_the_next_request() -> None:
    def slow_at_first(question: bytes) -> bytes:
        if question == b"FIRST\r\n":
            time.sleep(0.3)
        return b"+" + question

    with RecordedServer(slow_at_first) as server, control(server, deadline_seconds=0.1) as connection:
        with pytest.raises(TimeoutError):
            connection.ask(b"FIRST\r\n", 1)
        assert connection.ask(b"SECOND\r\n", 1) == [b"SECOND"]


def test_waiting_for_a_blocked_client_has_a_deadline() -> None:
    blocked = b"blocked_clients:1\r\n"
    with (
        RecordedServer(lambda _: b"$%d\r\n%s\r\n" % (len(blocked), blocked)) as server,
        control(server, deadline_seconds=0.2) as connection,
    ):
        assert connection.blocked_clients() == 1
        with pytest.raises(TimeoutError, match="still blocked"):
            connection.await_no_blocked_client()
