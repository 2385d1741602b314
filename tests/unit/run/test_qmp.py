"""The emulator's control socket: answers between events, and emulators that are not ready yet or have ended."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import InfrastructureError
from harness.run.vm.qmp import Qmp, QmpError

if TYPE_CHECKING:
    from pathlib import Path

GREETING = b'{"QMP": {"version": {}, "capabilities": []}}\n'
DONE = b'{"return": {}}\n'


def emulator(path: Path, *answers: bytes, pause_seconds: float = 0.0) -> threading.Thread:
    """Bind the socket, listen after a pause, greet, answer one command with each of the answers, and close."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))

    def serve() -> None:
        time.sleep(pause_seconds)
        listener.listen()
        connection, _ = listener.accept()
        with connection, listener:
            connection.sendall(GREETING)
            for answer in answers:
                connection.recv(1 << 16)
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def test_a_bound_socket_that_does_not_listen_yet_is_awaited(tmp_path: Path) -> None:
    emulator(tmp_path / "qmp", DONE, pause_seconds=0.3)
    Qmp(tmp_path / "qmp", deadline_seconds=10).__exit__()


def test_a_socket_that_never_listens_is_an_error_at_the_deadline(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "qmp"))
        with pytest.raises(InfrastructureError, match="does not answer"):
            Qmp(tmp_path / "qmp", deadline_seconds=0.2)


def test_events_between_a_command_and_its_answer_are_skipped(tmp_path: Path) -> None:
    emulator(tmp_path / "qmp", DONE, b'{"event": "RESUME"}\n{"return": {"status": "completed"}}\n')
    with Qmp(tmp_path / "qmp", deadline_seconds=10) as qmp:
        assert qmp.execute("query-migrate") == {"status": "completed"}


def test_a_refusal_and_an_emulator_that_has_ended_are_reported(tmp_path: Path) -> None:
    emulator(tmp_path / "qmp", DONE, b'{"error": {"class": "GenericError", "desc": "no such device"}}\n')
    with Qmp(tmp_path / "qmp", deadline_seconds=10) as qmp:
        with pytest.raises(QmpError, match="device_del: no such device"):
            qmp.execute("device_del", id="x")
        with pytest.raises(QmpError):
            qmp.execute("cont")
