"""No other user's connection reaches a guest: the kernel reports the owner, and a cell has a private network."""

from __future__ import annotations

import errno
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]
import pytest

from harness.core.errors import InfrastructureError
from harness.core.processes import process
from harness.core.sockets import connect
from harness.core.strict_toml import ROOT
from harness.record.proxy import peer_user
from harness.record.proxy.recorder import Recorder
from harness.run import private_network
from harness.workflows import run_folders

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 20.0
STRANGER = 65534
"""Debian's user `nobody`; any other number works too, even one without a user."""
ATTEMPTS = 40

AS_A_STRANGER = f"""
import os, socket, sys
port, attempts = map(int, sys.argv[1:])
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({STRANGER})
    os.setuid({STRANGER})
for attempt in range(attempts):
    with socket.socket() as client:
        client.settimeout({SECONDS})
        client.connect(("127.0.0.1", port))
        try:
            client.sendall(b"CONFIG SET dir /root\\r\\n")
            # Half of the connections close before the recorder checks their owner.
            answer = client.recv(100) if attempt % 2 else b""
        except (ConnectionResetError, BrokenPipeError):
            answer = b""
        assert answer == b"", answer
"""


class EchoServer:
    """Replies OK to everything, and stores the received bytes."""

    def __init__(self, path: Path) -> None:
        self.received: list[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            client, _ = self._listener.accept()
            with client:
                while chunk := client.recv(100):
                    self.received.append(chunk)
                    client.sendall(b"+OK\r\n")


@pytest.fixture
def folder() -> Iterator[Path]:
    # A Unix socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="plumbline-test-") as made:
        yield Path(made)


@pytest.fixture
def server(folder: Path) -> EchoServer:
    return EchoServer(folder / "s")


@pytest.fixture
def recorder(folder: Path, server: EchoServer) -> Iterator[Recorder]:
    del server
    made = Recorder(folder / "s", folder / "r")
    yield made
    made.close()


def test_another_users_connection_reaches_no_guest(
    recorder: Recorder, server: EchoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer_user.way_to_ask()
    if os.geteuid() != 0:
        # Only root can become another user. Otherwise the recorder itself is made to belong to another user.
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    program = [sys.executable, "-I", "-c", AS_A_STRANGER, str(recorder.port), str(ATTEMPTS)]
    ended = process.run(program, deadline_seconds=SECONDS)
    assert (ended.code, ended.text) == (0, "")
    assert (recorder.strangers, server.received, recorder.chunks()) == (ATTEMPTS, [], [])


def test_the_users_own_connection_is_served(recorder: Recorder) -> None:
    for address in (recorder.path, (peer_user.HOST, recorder.port)):
        with connect(address, deadline_seconds=SECONDS) as client:
            client.sendall(b"PING\r\n")
            assert client.recv(100) == b"+OK\r\n"
    assert recorder.strangers == 0


def test_without_a_client_that_needs_one_no_port_is_open(recorder: Recorder) -> None:
    def ports() -> int:
        return sum(one.status == psutil.CONN_LISTEN for one in psutil.Process().net_connections("tcp"))

    before = ports()
    with connect(recorder.path, deadline_seconds=SECONDS) as client:
        client.sendall(b"PING\r\n")
        assert client.recv(100) == b"+OK\r\n"
    assert ports() == before
    assert recorder.port
    assert ports() == before + 1


WAYS = [peer_user.by_request, peer_user.by_table]
Way = Callable[[peer_user.End, peer_user.End], int | None]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection on loopback: the client's, the server's."""
    with socket.create_server((peer_user.HOST, 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    with client, accepted:
        yield client, accepted


@pytest.mark.parametrize("ask", WAYS)
def test_the_kernel_reports_the_owner_of_a_connection(ask: Way, pair: tuple[socket.socket, socket.socket]) -> None:
    _, accepted = pair
    assert ask(accepted.getpeername(), accepted.getsockname()) == os.geteuid()


@pytest.mark.parametrize("ask", WAYS)
def test_a_closed_connection_has_no_owner_and_not_root(ask: Way, pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    client.close()
    assert ask(accepted.getpeername(), accepted.getsockname()) is None
    assert not peer_user.is_ours(accepted)


@pytest.mark.parametrize("ask", WAYS)
def test_a_connection_that_does_not_exist_has_no_owner(ask: Way) -> None:
    assert ask((peer_user.HOST, 1), (peer_user.HOST, 2)) is None


def test_without_the_fast_interface_the_table_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_there: peer_user.End, _here: peer_user.End) -> int | None:
        raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))

    monkeypatch.setattr(peer_user, "by_request", refuses)
    peer_user.way_to_ask.cache_clear()
    try:
        assert peer_user.way_to_ask() == peer_user.by_table
    finally:
        peer_user.way_to_ask.cache_clear()


def test_a_kernel_that_reports_no_owner_is_the_machines_fault(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_user, "by_request", lambda _there, _here: None)
    monkeypatch.setattr(peer_user, "_TABLE", Path("/absent"))
    peer_user.way_to_ask.cache_clear()
    try:
        with pytest.raises(InfrastructureError, match="does not report the owner"):
            assert recorder.port
    finally:
        peer_user.way_to_ask.cache_clear()


# The private network.

ENTER = """
import socket, sys
from harness.run import private_network
allowed = private_network.enter()
def reaches(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
with socket.create_server(("127.0.0.1", 0)) as listener:
    own = reaches(listener.getsockname()[1])
print(allowed, own, reaches(int(sys.argv[1])))
"""


def test_in_a_private_network_a_process_reaches_only_itself() -> None:
    with socket.create_server((peer_user.HOST, 0)) as listener:
        port = str(listener.getsockname()[1])
        ended = process.run([sys.executable, "-c", ENTER, port], deadline_seconds=SECONDS, folder=ROOT)
    allowed, own, ours = ended.text.split()
    assert own == "True"
    assert ours == ("False" if allowed == "True" else "True"), "the network must be either private or unchanged"


def test_without_the_permission_the_network_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(private_network, "_call", refused)
    before = Path("/proc/self/ns/net").readlink()
    assert not private_network.enter_as_root()
    assert not private_network.enter_as_user()
    assert Path("/proc/self/ns/net").readlink() == before


# Run folders.


@pytest.mark.parametrize(
    "make", [run_folders.new_run_folder, lambda parent: run_folders.empty_run_folder(parent / "named")]
)
def test_a_run_folder_is_accessible_only_to_its_user(make: Callable[[Path], Path], tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = make(tmp_path / "runs")
    finally:
        os.umask(before)
    assert made.stat().st_mode & 0o777 == 0o700
