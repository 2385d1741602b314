"""The small client distinguishes replies from silence, and a dead server from a slow one."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import hiredis
import pytest

from harness.protocol.resp import Client, ServerGoneError, UnreadableReplyError

if TYPE_CHECKING:
    from collections.abc import Iterator


def client_at(port: int, seconds: float) -> Client:
    return Client(socket.create_connection(("127.0.0.1", port), timeout=seconds))


@contextlib.contextmanager
def answering(reply: bytes, *, close: bool = False) -> Iterator[int]:
    """A server that answers the first bytes that it receives."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(reply)
                    if not close:
                        connection.recv(65536)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"+OK\r\n", b"OK"),
        (b":-1\r\n", -1),
        (b"$-1\r\n", None),
        (b"*2\r\n:1\r\n$1\r\na\r\n", [1, b"a"]),
        (b"#t\r\n", True),
        (b"#f\r\n", False),
    ],
)
def test_every_kind_of_reply_is_received(raw: bytes, expected: object) -> None:
    with answering(raw) as port, client_at(port, 1) as client:
        assert expected == client.command("X")


def test_what_is_no_reply_ends_the_connection_and_is_no_fault_of_the_client() -> None:
    """Regression: a server that sent a stray byte ended the whole test with an error of the parser."""
    with answering(b"+OK\r\n\0") as port, client_at(port, 1) as client:
        client.send(client.pack([["X"]]))
        assert client.receive() == b"OK"
        with pytest.raises(UnreadableReplyError, match=r'the server sent no reply: .*"\\x00"'):
            client.receive()


def test_an_error_reply_is_raised_alone_and_returned_in_a_pipeline() -> None:
    with (
        answering(b"-ERR no\r\n") as port,
        client_at(port, 1) as client,
        pytest.raises(hiredis.ReplyError, match="ERR no"),
    ):
        client.command("X")
    with answering(b"-ERR no\r\n:1\r\n") as port, client_at(port, 1) as client:
        first, second = client.pipeline([["X"], ["Y"]])
        assert (isinstance(first, hiredis.ReplyError), second) == (True, 1)


def test_a_server_that_closes_is_gone_not_slow() -> None:
    with (
        answering(b"$5\r\nab", close=True) as port,
        client_at(port, 2) as client,
        pytest.raises(ServerGoneError, match="closed by the server"),
    ):
        client.command("X")


def test_a_server_that_says_nothing_times_out() -> None:
    with (
        answering(b"") as port,
        client_at(port, 0.1) as client,
        pytest.raises(TimeoutError),
    ):
        client.command("X")


def test_error_replies_are_equal_by_their_text_also_inside_of_others() -> None:
    raw = b"-ERR no\r\n*1\r\n-ERR no\r\n-ERR other\r\n"
    received = []
    for _ in range(2):
        with answering(raw) as port, client_at(port, 1) as client:
            received.append(client.pipeline([["X"], ["Y"], ["Z"]]))
    first, second = received
    assert first == second
    assert first[0] != first[2]
    assert first[0] != b"ERR no"
    assert repr(first[0]) == "ReplyError('ERR no')"
