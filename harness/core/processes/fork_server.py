"""A fork server: a process that has imported the modules that many processes need, and becomes each of them by fork(2).

That saves the start of an interpreter and the imports for each of them. Such a process is like any other: a child of
the harness with its own session, token and command line. The server forks twice, so that the process becomes an orphan,
which the harness adopts. It writes the token and the words to the place from which the kernel shows them to others
(proc(5)).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

from harness.core.processes import process, process_tree
from harness.core.processes.processor_time import CountedProcess

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping, Sequence

MESSAGE_BYTES = 1 << 16
NUMBER_BYTES = 32
NONE = b"none"
"""The server's answer if it could not fork."""
DEADLINE_SECONDS = 60.0
"""How long the server may take to fork. The first fork waits for the imports."""
COMMAND_LINE_BYTES = 8192
"""Length of the server's last word, which makes room for the words of forked processes."""
_SPAN_FIELDS = slice(45, 49)
"""Indices among the fields of /proc/PID/stat after the name: arg_start, arg_end, env_start, env_end (proc(5))."""


class ForkServer:
    """The harness' side. `spawn` starts processes, from any thread."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        folder: Path,
        environment: Mapping[str, str],
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        """`command`: a program that calls `serve`. It runs in `folder` with this environment, as what it becomes."""
        self._command = [*command, " " * COMMAND_LINE_BYTES]
        self._folder = folder
        self._environment = environment
        self._deadline_seconds = deadline_seconds
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start the server."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(self._deadline_seconds)
        with theirs:
            self._server = process.start(
                self._command, requests=theirs.fileno(), folder=self._folder, environment=self._environment
            )
        return self

    def __exit__(self, *_: object) -> None:
        """End the server. The processes that it became continue."""
        with self._lock:
            self._give_up()
        if self._server is not None:
            process.kill_group(self._server)

    def spawn(self, words: list[str], output: int, token: str) -> CountedProcess | None:
        """Start a process with these words, and both outputs in one descriptor. Returns None if the server can no
        longer fork.
        """
        with self._lock:
            if self._socket is None:
                return None
            try:
                socket.send_fds(self._socket, [json.dumps([words, token]).encode()], [output])
                return _Forked(int(self._socket.recv(NUMBER_BYTES)), words)
            except (OSError, ValueError):
                # It was killed, or the machine no longer lets it fork.
                self._give_up()
                return None

    def _give_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Forked(CountedProcess):
    """A process that the server has started. This process has adopted it, and waits for it like for its own
    children.
    """

    def __init__(self, pid: int, words: list[str]) -> None:
        # Popen's own constructor would start a program. These are the attributes that its other methods use.
        self.pid, self.args = pid, words
        self.returncode = None
        self.stdin = self.stdout = self.stderr = None
        self._child_created = True
        self._sigint_wait_secs = 0.25
        self._waitpid_lock = threading.Lock()


# --- Below: the server's side. ---------------------------------------------------------------------------------------


def serve() -> list[str] | None:
    """Fork whenever standard input requests it. Returns None in the server at the end, and the words in each process
    that it has become.

    The caller must have only one thread, and must not have started a process.
    """
    # The garbage collector would write to every page that the processes share.
    gc.freeze()
    with socket.socket(fileno=os.dup(0)) as requests:
        while True:
            message, descriptors, *_ = socket.recv_fds(requests, MESSAGE_BYTES, 1)
            if not message:
                return None
            words, token = json.loads(message)
            number = _forked(lambda: _become(words, token, descriptors[0]))  # noqa: B023 - it is called at once
            os.close(descriptors[0])
            if number is None:
                return list(words)
            requests.sendall(number or NONE)


def _forked(begin: Callable[[], None]) -> bytes | None:
    """The number of the new process; empty if it could not start. None in the new process itself.

    The intermediate process ends at once, which makes the new one an orphan.
    """
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        os.close(reader)
        with contextlib.suppress(BaseException):
            if os.fork() == 0:
                begin()
                # Only now may the harness kill its group.
                os.write(writer, b"%d" % os.getpid())
                os.close(writer)
                return None
        os._exit(0)
    os.close(writer)
    number = os.read(reader, NUMBER_BYTES)
    os.close(reader)
    os.waitpid(between, 0)
    return number


def _become(words: list[str], token: str, output: int) -> None:
    """Give this process the attributes of a new one: a session, standard streams, a token, a command line."""
    os.setsid()
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output, stream.fileno())
    os.environ[process_tree.MARK] = token
    status = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()
    words_start, words_end, environment_start, _ = map(int, status[_SPAN_FIELDS])
    mark = f"{process_tree.MARK}=".encode()
    at = Path("/proc/self/environ").read_bytes().index(mark) + len(mark)
    line = b"".join(os.fsencode(word) + b"\0" for word in words)[: words_end - words_start - 1]
    with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
        memory.seek(environment_start + at)
        memory.write(token.encode())
        memory.seek(words_start)
        memory.write(line.ljust(words_end - words_start, b"\0"))
