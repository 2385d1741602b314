"""`plumb shell` on a real server: gdb stops where the server dies, with sources and a stack. Ctrl-C stops the guest.
No process is left behind.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.core import json_codec
from harness.core.sockets import connect
from harness.core.strict_toml import ROOT
from harness.judge.reproducer import Reproducer
from harness.workflows.replay.replay import from_stream
from tests.end_to_end.support.plumb_runs import GONE_SECONDS, PLUMB, processes_of, run, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.end_to_end
SHELL = ("shell", "armv5", "--server", "redis-3.2.6")
SECONDS = 300.0
MISALIGNED = (
    "SETRANGE a 0 123456789012345678901234567890\nSETRANGE b 0 123456789012345678901234567890\nBITOP AND c a b\n"
)


@pytest.fixture
def reproducer(tmp_path: Path) -> Path:
    """BITOP on two strings, as a run would have kept it."""
    stream = tmp_path / "bitop.stream"
    stream.write_text(MISALIGNED, "utf-8")
    read = from_stream(stream, target="armv5", server="redis-3.2.6")
    assert isinstance(read, Reproducer)
    path = tmp_path / "bitop.json"
    path.write_bytes(json_codec.encode(read))
    return path


def test_gdb_stops_at_the_access_with_source_and_stack(reproducer: Path) -> None:
    """Without `--server`, because the reproducer names the server."""
    ended = run(
        *("shell", "armv5", "--run", reproducer, "--trust", "--running", "--"),
        *("-batch", "-ex", "bt", "-ex", "info source", "-ex", "p server.port"),
    )
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"received signal SIGBUS, Bus error\.\n.*\n\d+\t +\S", ended.stdout), ended.stdout
    assert "in bitopCommand (c=0x" in ended.stdout
    assert re.search(r"Located in /\S+/src/\w+\.c", ended.stdout), ended.stdout
    assert "$1 = 0" in ended.stdout


def test_a_breakpoint_in_a_command_function_is_reached(reproducer: Path) -> None:
    ended = run(
        *("shell", "armv5", "--run", reproducer, "--trust", "--policy", "fixup", "--"),
        *("-batch", "-ex", "break bitopCommand", "-ex", "continue", "-ex", "p c->argc"),
    )
    assert "Temporary breakpoint 1, main (" in ended.stdout, ended.stdout + ended.stderr
    assert re.search(r"Breakpoint 2, bitopCommand \(c=0x\w+\) at bitops\.c:\d+", ended.stdout), ended.stdout
    assert "$1 = 5" in ended.stdout


def test_a_native_server_runs_in_gdb_itself(reproducer: Path) -> None:
    ended = run(
        *("shell", "native", "--run", reproducer, "--trust", "--"),
        *("-batch", "-ex", "break bitopCommand", "-ex", "continue", "-ex", "bt 1"),
    )
    assert re.search(r"#0  bitopCommand \(c=0x\w+\) at bitops\.c:\d+", ended.stdout), ended.stdout + ended.stderr


class Terminal:
    """`plumb shell` at a terminal."""

    def __init__(self, *words: object) -> None:
        self.master, slave = pty.openpty()
        self.output = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", LEAD, *PLUMB, *map(str, words)],
            cwd=ROOT,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "dumb"},
        )
        os.close(slave)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait until the output since the last match contains the text."""
        deadline = time.monotonic() + SECONDS
        while not (found := re.search(pattern, self.output)):
            assert time.monotonic() < deadline, f"no {pattern} in:\n{self.output}"
            if select.select([self.master], [], [], 0.2)[0]:
                self.output += os.read(self.master, 65536).decode("utf-8", "replace")
        self.output = self.output[found.end() :]
        return found

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.master)


LEAD = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes the terminal the session's controlling terminal, as in a terminal window, so that Ctrl-C is a signal."""


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    opened = Terminal(*SHELL, "--running")
    yield opened
    opened.close()


def ping(path: str) -> bytes:
    """The reply to a PING; empty while the server is stopped or does not listen yet."""
    with contextlib.suppress(OSError), connect(Path(path), deadline_seconds=2) as client:
        client.sendall(b"PING\r\n")
        return client.recv(16)
    return b""


def test_ctrl_c_stops_the_guest_and_neither_gdb_nor_plumb(terminal: Terminal) -> None:
    path = terminal.expect(r"redis-cli -s (/\S+/r)\b")[1]
    folder = str(Path(path).parent)
    for _ in range(2):
        assert wait_for(lambda: ping(path) == b"+PONG\r\n", seconds=SECONDS)
        terminal.type("\x03")
        terminal.expect(r"received signal SIGINT")
        terminal.expect(r"\(gdb\) ")
        assert ping(path) == b""
        terminal.type("continue\n")
        terminal.expect(r"Continuing")
    assert wait_for(lambda: ping(path) == b"+PONG\r\n", seconds=SECONDS)
    terminal.type("\x03")
    terminal.expect(r"\(gdb\) ")
    # At the prompt, Ctrl-C does not affect the guest.
    terminal.type("\x03")
    terminal.expect(r"Quit")
    terminal.type("quit\n")
    assert terminal.process.wait(GONE_SECONDS) == 0
    assert wait_for(lambda: not processes(folder), seconds=GONE_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killing_plumb_also_ends_gdb_and_the_guest(terminal: Terminal, number: signal.Signals) -> None:
    path = terminal.expect(r"redis-cli -s (/\S+/r)\b")[1]
    folder = str(Path(path).parent)
    assert wait_for(lambda: ping(path) == b"+PONG\r\n", seconds=SECONDS)
    assert len(processes(folder)) == 2
    terminal.process.send_signal(number)
    assert wait_for(lambda: not processes(folder), seconds=GONE_SECONDS), processes(folder)


def processes(folder: str) -> list[object]:
    """The processes of gdb and of the emulator, whose command lines contain the shell's folder."""
    return list(processes_of(Path(folder)))
