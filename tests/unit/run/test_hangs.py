"""A server hangs if it does not answer. A test that reaches its time limit does not prove that."""

from __future__ import annotations

import contextlib
import socketserver
import threading
import time
from typing import TYPE_CHECKING, Self

import pytest

from harness.run.session.cell_servers import hangs

if TYPE_CHECKING:
    from pathlib import Path

WAITED = "TimeoutError: timed out waiting for the nodes to agree"


class Answering(socketserver.ThreadingUnixStreamServer):
    """A socket that answers each request after some seconds."""

    def __init__(self, path: Path, *, after_seconds: float = 0.0) -> None:
        super().__init__(str(path), OnePong)
        self.after_seconds = after_seconds
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
    """A connection that gets one answer."""

    def handle(self) -> None:
        self.request.recv(64)
        assert isinstance(self.server, Answering)
        time.sleep(self.server.after_seconds)
        with contextlib.suppress(BrokenPipeError):
            self.request.sendall(b"+PONG\r\n")


def test_a_server_that_answers_does_not_hang_although_a_test_times_out(tmp_path: Path) -> None:
    with Answering(tmp_path / "s"):
        assert not hangs(WAITED, tmp_path / "s")
    assert hangs(WAITED, tmp_path / "s"), "the server has stopped answering"


@pytest.mark.parametrize(("probe_seconds", "hanging"), [(0.1, True), (60.0, False)])
def test_a_server_hangs_if_it_does_not_answer_while_the_probe_waits(
    tmp_path: Path, probe_seconds: float, *, hanging: bool
) -> None:
    with Answering(tmp_path / "s", after_seconds=0.5):
        assert hangs(WAITED, tmp_path / "s", probe_seconds=probe_seconds) == hanging


@pytest.mark.parametrize("message", ["TimeoutError: no reply", "the connection timed out"])
def test_a_missing_reply_is_a_hang_even_if_the_server_answers_others(tmp_path: Path, message: str) -> None:
    with Answering(tmp_path / "s"):
        assert hangs(message, tmp_path / "s")


def test_another_failure_is_no_hang(tmp_path: Path) -> None:
    assert not hangs("assert 1 == 2", tmp_path / "s")
