"""A process that answers requests line by line, each within a deadline."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

from harness.core.processes import process

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from pathlib import Path


AnswerEnd = Literal["complete", "expired", "ended"]
"""complete: the process printed the last line; expired: the deadline passed first; ended: it closed its output first.
"""


class Answer(NamedTuple):
    """The answer of a process to one request."""

    text: str
    """Everything that it printed since the request. Bytes that are not UTF-8 are escaped."""
    end: AnswerEnd


class LineProcess:
    """A process that answers requests line by line, for programs that are slow to start.

    The caller must close it. After an incomplete answer it is of no use: close it and open another.
    """

    def __init__(self, command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None) -> None:
        self._socket, child_end = socket.socketpair()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = process.start(
                command, output=child_end.fileno(), requests=child_end.fileno(), environment=environment
            )
        except BaseException:
            self._socket.close()
            raise
        finally:
            child_end.close()

    def ask(self, line: str, *, last: str, deadline_seconds: float) -> Answer:
        """Send a line. Returns the output of the process up to, but not including, the line `last`."""
        until = time.monotonic() + deadline_seconds
        with contextlib.suppress(OSError):
            self._socket.settimeout(deadline_seconds)
            self._socket.sendall(line.encode() + b"\n")
        return self._read(last, until)

    def read(self, *, last: str, deadline_seconds: float) -> Answer:
        """The output of the process before the line `last`, without a request."""
        return self._read(last, time.monotonic() + deadline_seconds)

    def _read(self, last: str, until: float) -> Answer:
        mark = f"\n{last}\n".encode()
        output = b"\n"
        end: AnswerEnd = "ended"
        while not output.endswith(mark):
            self._socket.settimeout(max(0.001, until - time.monotonic()))
            try:
                content = self._socket.recv(READ_BYTES)
            except TimeoutError:
                end = "expired"
                break
            except OSError:
                break
            if not content:
                break
            output += content
        if output.endswith(mark):
            output, end = output[: -len(mark) + 1], "complete"
        process.refuse_after_stop()
        return Answer(output[1:].decode("utf-8", "backslashreplace"), end)

    def close(self) -> None:
        """End the process in any state. A second call does nothing."""
        self._socket.close()
        running, self._process = self._process, None
        if running is not None:
            process.kill_group(running)


READ_BYTES = 65536
