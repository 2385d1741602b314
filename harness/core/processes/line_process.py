"""A process that is talked to: it answers one line after another, each with a deadline."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

from harness.core.processes import process

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path


class Answer(NamedTuple):
    """What a process said to one question."""

    text: str
    """All it printed since the question; bytes that are no UTF-8 are escaped."""
    end: Literal["complete", "expired", "ended"]
    """complete: it printed the last line; expired: the deadline passed before; ended: it closed its output before."""


class LineProcess:
    """A process that answers one line after another, each with a deadline; for programs whose start costs too much.

    Whoever opens it closes it. After an answer that is not complete it is of no more use: close it, and open another.
    """

    def __init__(self, command: Sequence[str | Path]) -> None:
        self._socket, theirs = socket.socketpair()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = process.start(command, output=theirs.fileno(), questions=theirs.fileno())
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()

    def ask(self, line: str, *, last: str, deadline_seconds: float) -> Answer:
        """Send a line; what is printed until the line `last`, which is left out."""
        until = time.monotonic() + deadline_seconds
        mark = f"\n{last}\n".encode()
        said = b"\n"
        end: Literal["complete", "expired", "ended"] = "ended"
        with contextlib.suppress(OSError):
            self._socket.settimeout(deadline_seconds)
            self._socket.sendall(line.encode() + b"\n")
        while not said.endswith(mark):
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
            said += content
        if said.endswith(mark):
            said, end = said[: -len(mark) + 1], "complete"
        process.refuse_after_stop()
        return Answer(said[1:].decode("utf-8", "backslashreplace"), end)

    def close(self) -> None:
        """End the process, whatever it does. Harmless a second time."""
        self._socket.close()
        running, self._process = self._process, None
        if running is not None:
            process.kill_group(running)


READ_BYTES = 65536
