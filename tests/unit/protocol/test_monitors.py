"""The clients that keep a server's I/O threads busy: their number, and their reconnection after they are dropped."""

from __future__ import annotations

import socket
import tempfile
import threading
from pathlib import Path

import pytest

from harness.protocol.monitors import Monitors
from harness.run.servers.start_options import monitors_for_threads

DEADLINE_SECONDS = 10.0


@pytest.mark.parametrize(
    ("version", "options", "number"),
    [
        ((7, 0, 15), ["--io-threads", "4", "--io-threads-do-reads", "yes"], 7),
        ((6, 0, 16), ["--databases", "16", "--io-threads", "2"], 3),
        ((7, 0, 15), ["--io-threads", "2", "--io-threads-do-reads", "yes", "--io-threads", "4"], 7),
        ((8, 0, 6), ["--io-threads", "4"], 0),
        ((7, 0, 15), ["--databases", "16"], 0),
    ],
)
def test_threads_that_sleep_get_twice_as_many_clients(
    version: tuple[int, ...], options: list[str], number: int
) -> None:
    assert monitors_for_threads(version, options) == number


def test_dropped_monitors_reconnect_and_end_when_closed() -> None:
    with tempfile.TemporaryDirectory(prefix="plumbline-test-") as folder, socket.socket(socket.AF_UNIX) as server:
        server.settimeout(DEADLINE_SECONDS)
        path = Path(folder) / "s"
        server.bind(str(path))
        server.listen()

        def accepted() -> socket.socket:
            one, _ = server.accept()
            one.settimeout(DEADLINE_SECONDS)
            assert b"MONITOR" in one.recv(100)
            one.sendall(b"+OK\r\n")
            return one

        first: list[socket.socket] = []
        accepting = threading.Thread(target=lambda: first.extend([accepted(), accepted()]))
        accepting.start()
        monitors = Monitors(path, 2, deadline_seconds=DEADLINE_SECONDS)
        accepting.join()
        first[0].sendall(b'+1.0 [0 unix:s] "PING"\r\n' * 100_000)
        first[1].close()
        again = accepted()
        monitors.close()
        assert (first[0].recv(100), again.recv(100)) == (b"", b"")
        first[0].close()
        again.close()
