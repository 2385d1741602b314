"""gdb's commands, and the relay that turns its interrupt into a signal."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis import symbols
from harness.run.server_process import Guest
from harness.run.servers.server_spec import ServerSpec
from harness.workflows.debug import gdb_relay
from harness.workflows.debug.gdb_relay import Interrupts, Relay
from tests.support import fakes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = 10.0
PACKETS = st.binary(max_size=20).map(lambda data: b"$" + data.replace(b"#", b"}") + b"#\x03\x03")
"""Packets with the byte of an interrupt in the data, and in place of the checksum."""


@given(parts=st.lists(st.one_of(PACKETS, st.just(b"\x03"), st.just(b"+")), max_size=8), cut=st.integers(1, 7))
def test_an_interrupt_is_found_between_packets_and_never_in_one_however_the_bytes_arrive(
    parts: list[bytes], cut: int
) -> None:
    interrupts, whole = Interrupts(), b"".join(parts)
    answers = [interrupts.split(whole[at : at + cut]) for at in range(0, len(whole), cut)]
    assert b"".join(kept for kept, _ in answers) == b"".join(part for part in parts if part != b"\x03")
    assert sum(number for _, number in answers) == parts.count(b"\x03")


class Stub:
    """Listens like an emulator's stub, and echoes what it receives."""

    def __init__(self, path: Path) -> None:
        self.heard = b""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        peer, _ = self._listener.accept()
        while content := peer.recv(100):
            self.heard += content
            peer.sendall(content)
        peer.close()


@pytest.fixture
def interrupted() -> threading.Event:
    return threading.Event()


@pytest.fixture
def client(tmp_path: Path, interrupted: threading.Event) -> Iterator[socket.socket]:
    """Gdb's end of a relay to a stub."""
    Stub(tmp_path / "stub")
    relay = Relay(tmp_path / "gdb", tmp_path / "stub", interrupted.set)
    with socket.socket(socket.AF_UNIX) as connected:
        connected.settimeout(SECONDS)
        connected.connect(str(tmp_path / "gdb"))
        yield connected
    relay.close()


def test_the_relay_passes_packets_both_ways_and_keeps_interrupts(
    client: socket.socket, interrupted: threading.Event
) -> None:
    client.sendall(b"+$g#67")
    assert client.recv(100) == b"+$g#67"
    assert not interrupted.is_set()
    client.sendall(b"\x03")
    assert interrupted.wait(SECONDS)
    client.sendall(b"$?#3f")
    assert client.recv(100) == b"$?#3f"


def guest(folder: Path, *, preload: Path | None = None, options: tuple[str, ...] = ()) -> Guest:
    """A guest that is not started, in the folder guest-1. Its binary has no debug information."""
    fakes.write(folder / "redis-server", "no real binary\n")
    build = msgspec.structs.replace(fakes.build(folder), preload=preload)
    runner = fakes.unemulated(fakes.target())
    return Guest(ServerSpec(build=build, version=(6,), options=options), runner, folder / "guest-1", sockets=folder)


def test_gdb_gets_the_paths_of_binary_sources_and_libraries(tmp_path: Path) -> None:
    tree = fakes.opened(tmp_path / "my tree")
    script = gdb_relay.remote_script(guest(tmp_path), tree, tmp_path / "root", running=False)
    assert script.splitlines() == [
        "set confirm off",
        f"file {tmp_path / 'redis-server'}",
        f"directory {tree.path / 'src'}",
        f"set sysroot {tmp_path / 'root'}",
        f"target remote {tmp_path / 'gdb'}",
        "tbreak main",
        "continue",
    ]
    assert "tbreak" not in gdb_relay.remote_script(guest(tmp_path), tree, tmp_path, running=True)


def test_a_native_server_is_started_by_gdb_with_its_words_quoted(tmp_path: Path) -> None:
    one = guest(tmp_path, options=("--save", "", "--loglevel", "a b"), preload=tmp_path / "guard.so")
    lines = gdb_relay.native_script(one, fakes.opened(tmp_path), running=True).splitlines()
    words = next(line for line in lines if line.startswith("set args "))
    assert words.endswith(f" --save '' --loglevel 'a b' > {tmp_path / 'guest-1' / 'log'} 2>&1")
    assert f"set exec-wrapper env LD_PRELOAD={tmp_path / 'guard.so'}" in lines
    assert lines[-1] == "run"


@pytest.mark.parametrize(
    ("path", "top"),
    [
        ("/cache/work/1/tree/src", "/cache/work/1/tree"),
        ("/cache/work/1/tree/deps/lua/src", "/cache/work/1/tree"),
        ("/cache/work/1/tree/src/../deps/hiredis", "/cache/work/1/tree"),
        ("/build/glibc/source/elf", ""),
        ("/usr/src", ""),
    ],
)
def test_the_top_of_a_tree_is_recognised_in_a_compilers_path(path: str, top: str) -> None:
    assert symbols.tree_in(path) == top
