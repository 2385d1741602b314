"""Waits for the emulator's gdb stub, which listens at a socket before the guest's first instruction."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from harness.core.errors import InfrastructureError
from harness.run.server_process import POLL_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from harness.run.server_process import Guest


def await_stub(guest: Guest, stub: Path, *, deadline_seconds: float) -> None:
    """Wait until the stub of a guest that was launched listens. Raises InfrastructureError if it does not."""
    deadline = time.monotonic() + deadline_seconds
    while not stub.exists():
        if not guest.alive() or time.monotonic() > deadline:
            why = guest.evidence.log_tail() or guest.detail
            raise InfrastructureError("the emulator's gdb stub does not listen", because=why)
        time.sleep(POLL_SECONDS)
