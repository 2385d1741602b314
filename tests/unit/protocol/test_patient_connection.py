"""A connection that never waits sends what the socket accepts, and reads the replies that have arrived."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import hiredis
import pytest

from harness.protocol.patient_connection import PatientConnection
from harness.protocol.resp import ServerGoneError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[PatientConnection, socket.socket]]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        connection = PatientConnection(tmp_path / "s")
        server, _ = listening.accept()
        with server:
            yield connection, server
        connection.close()


def test_more_than_a_buffer_is_sent_in_parts(pair: tuple[PatientConnection, socket.socket]) -> None:
    connection, server = pair
    content = bytes(range(256)) * 40_000
    connection.ask(content, 1)
    received = b""
    while len(received) < len(content):
        received += server.recv(1 << 20)
        connection.send()
        assert not connection.done
    assert received == content
    server.sendall(b"+OK\r\n")
    connection.receive()
    assert connection.done
    assert connection.replies == [b"OK"]


def test_a_reply_may_come_in_parts_and_only_expected_replies_are_awaited(
    pair: tuple[PatientConnection, socket.socket],
) -> None:
    connection, server = pair
    connection.ask(b"PING\r\nPING\r\n", 2)
    connection.receive()
    assert not connection.done
    server.sendall(b"+PONG\r\n+PO")
    connection.receive()
    assert not connection.done
    server.sendall(b"NG\r\n")
    connection.receive()
    assert connection.done


def test_an_error_reply_and_a_closed_connection_are_reported(pair: tuple[PatientConnection, socket.socket]) -> None:
    connection, server = pair
    connection.ask(b"NONSENSE\r\n", 1)
    server.sendall(b"-ERR unknown command\r\n")
    with pytest.raises(hiredis.ReplyError, match="unknown command"):
        connection.receive()
    server.close()
    connection.ask(b"", 1)
    with pytest.raises(ServerGoneError):
        connection.receive()
