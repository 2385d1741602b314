"""Watches whether a machine's network answers, and ends a machine whose network does not.

If a server does not answer, it may be at fault, or the emulated network. The guest's kernel shows which: it refuses a
connection to a port on which nobody listens, whatever its programs do.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from harness.core.processes import scheduling
from harness.core.sockets import connect

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from harness.core.sockets import Address

CLOSED_PORT = 9
"""The guest's port on which nobody listens."""
LOOK_SECONDS = 5.0
"""The interval between two checks, in seconds."""
SILENT_SECONDS = 60.0
"""If a network has not answered for this time, excluding the emulator's waits for a processor, it never will."""
ATTEMPT_SECONDS = 20.0
"""After 75 s without the guest's answer, the emulator closes a connection as if the guest had refused it."""
POLL_SECONDS = 0.5
MOST_SECONDS = 2 * POLL_SECONDS
"""The most that one wait counts, in seconds."""


def answers(closed: Address, emulator_pid: int, *, given_up: Callable[[], bool]) -> bool:
    """Whether the guest refuses a connection to its closed port within `SILENT_SECONDS`.

    Also true once the wait is `given_up`, and when the emulator has ended: then its network is not at fault.
    """
    silent = _Silence(emulator_pid)
    while silent.seconds < SILENT_SECONDS and not given_up():
        try:
            with connect(closed, deadline_seconds=POLL_SECONDS) as connection:
                if _is_refused(connection, silent, given_up):
                    return True
        except TimeoutError:
            # The emulator accepts no connection: its main thread is busy, or it was stopped.
            silent.seconds += POLL_SECONDS
        except OSError:
            return True
    return given_up() or silent.seconds < SILENT_SECONDS


class _Silence:
    """How long a network has not answered, without the emulator's waits for a processor."""

    def __init__(self, emulator_pid: int) -> None:
        self.seconds = 0.0
        self._emulator_pid = emulator_pid
        self._looked = scheduling.usable_clock(emulator_pid)

    def count(self) -> None:
        """Add the time since the last check."""
        now = scheduling.usable_clock(self._emulator_pid)
        # This process may have been stopped, and then knows nothing of the time between.
        self.seconds += min(max(now - self._looked, 0.0), MOST_SECONDS)
        self._looked = now


def _is_refused(connection: socket.socket, silent: _Silence, given_up: Callable[[], bool]) -> bool:
    """Whether the guest closes a connection that the emulator has accepted for it."""
    until = min(silent.seconds + ATTEMPT_SECONDS, SILENT_SECONDS)
    while silent.seconds < until and not given_up():
        try:
            connection.recv(1)
        except TimeoutError:
            silent.count()
        else:
            return True
    return False


def silence() -> str:
    """The message about a network that does not answer."""
    return f"its network did not answer for {SILENT_SECONDS:.0f} s"


class NetworkWatch:
    """A thread that checks at regular intervals, and calls `on_silence` once if the network does not answer."""

    def __init__(self, closed: Address, emulator_pid: int, on_silence: Callable[[], None]) -> None:
        self._closed = closed
        self._emulator_pid = emulator_pid
        self._on_silence = on_silence
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="network watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the watch."""
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            if not answers(self._closed, self._emulator_pid, given_up=self._over.is_set):
                self._on_silence()
                return
