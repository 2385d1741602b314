"""The emulator's own control socket (QEMU's docs/interop/qmp-spec): one command at a time, answered before the next."""

from __future__ import annotations

import contextlib
import shlex
import time
from typing import TYPE_CHECKING, Any, Self

from harness.core import json_codec
from harness.core.errors import InfrastructureError
from harness.core.sockets import connect

if TYPE_CHECKING:
    import socket
    from pathlib import Path


POLL_SECONDS = 0.01


class QmpError(Exception):
    """The emulator refused a command, or has died."""


def _connect(path: Path, deadline_seconds: float) -> socket.socket:
    """Connect, and retry while the emulator has bound its socket but does not listen yet. Raises OSError."""
    deadline = time.monotonic() + deadline_seconds
    while True:
        try:
            return connect(path, deadline_seconds=deadline_seconds)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
        time.sleep(POLL_SECONDS)


class Qmp:
    """A connected control socket; a context manager that closes it."""

    def __init__(self, path: Path, *, deadline_seconds: float) -> None:
        with contextlib.ExitStack() as opened:
            try:
                self._socket = opened.enter_context(_connect(path, deadline_seconds))
                self._stream = self._socket.makefile("rwb")
                self._read()
                self.execute("qmp_capabilities")
            except (OSError, QmpError) as error:
                raise InfrastructureError(
                    "the emulator's control socket does not answer", because=str(error)
                ) from error
            opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Data that can no longer be sent does not matter.
        with contextlib.suppress(OSError):
            self._stream.close()
        self._socket.close()

    def execute(self, command: str, **arguments: Any) -> Any:
        """The return value of a command. Raises QmpError when it is refused, or the emulator ends."""
        try:
            self._stream.write(json_codec.encode({"execute": command, "arguments": arguments}) + b"\n")
            self._stream.flush()
            while True:
                message = self._read()
                if "error" in message:
                    raise QmpError(f"{command}: {message['error'].get('desc', message['error'])}")
                if "return" in message:
                    return message["return"]
        except OSError as error:
            raise QmpError(f"{command}: {error}") from error

    def monitor(self, line: str) -> str:
        """The output of a line of the human monitor."""
        return str(self.execute("human-monitor-command", **{"command-line": line}))

    def _read(self) -> dict[str, Any]:
        line = self._stream.readline()
        if not line:
            raise QmpError("the emulator has gone")
        return json_codec.decode(line, dict[str, Any])


def save_state(qmp: Qmp, path: Path, *, deadline_seconds: float) -> None:
    """Write the machine's state to a file, and leave the machine stopped. Raises QmpError."""
    qmp.execute("stop")
    # The default uses only half of the disk's speed.
    qmp.execute("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
    qmp.execute("migrate", uri=f"exec:cat > {shlex.quote(str(path))}")
    _await_migration(qmp, deadline_seconds)


def load_state(qmp: Qmp, path: Path, *, deadline_seconds: float) -> None:
    """Load a saved state into a machine that waits for one. Raises QmpError."""
    qmp.execute("migrate-incoming", uri=f"exec:cat {shlex.quote(str(path))}")
    _await_migration(qmp, deadline_seconds)


def _await_migration(qmp: Qmp, deadline_seconds: float) -> None:
    deadline = time.monotonic() + deadline_seconds
    while (status := qmp.execute("query-migrate").get("status")) != "completed":
        if status in {"failed", "cancelled"}:
            raise QmpError(f"migration: {status}")
        if time.monotonic() > deadline:
            raise QmpError(f"migration: {status}, and not completed within {deadline_seconds:g} s")
        time.sleep(POLL_SECONDS)
