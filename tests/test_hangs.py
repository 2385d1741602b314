"""A server hangs if it does not answer. A test that reaches its time limit does not prove that."""

from __future__ import annotations

import socketserver
import threading
from typing import TYPE_CHECKING, Self

import pytest

from harness.run.session.cell_servers import hangs

if TYPE_CHECKING:
    from pathlib import Path

WAITED = "TimeoutError: timed out waiting for the nodes to agree"


class Answering(socketserver.ThreadingUnixStreamServer):
    """A socket that answers requests."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), OnePong)
        self._thread = threading.Thread(target=self.serve_forever)

    def __enter__(self) -> Self:
        """Begin to answer."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.shutdown()
        self._thread.join()
        self.server_close()


class OnePong(socketserver.BaseRequestHandler):
    """A connection that is answered once."""

    def handle(self) -> None:
        self.request.recv(64)
        self.request.sendall(b"+PONG\r\n")


def test_a_server_that_answers_does_not_hang_where_a_test_waits_in_vain(tmp_path: Path) -> None:
    with Answering(tmp_path / "s"):
        assert not hangs(WAITED, tmp_path / "s")
    assert hangs(WAITED, tmp_path / "s"), "it has stopped to answer"


@pytest.mark.parametrize("message", ["TimeoutError: no reply", "the connection timed out"])
def test_a_reply_that_does_not_come_is_a_hang_whatever_else_is_answered(tmp_path: Path, message: str) -> None:
    with Answering(tmp_path / "s"):
        assert hangs(message, tmp_path / "s")


def test_another_failure_is_no_hang(tmp_path: Path) -> None:
    assert not hangs("assert 1 == 2", tmp_path / "s")
