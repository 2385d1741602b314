"""Counts a server's open files and pipes, to find those that it leaves open after a failure."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

from suites._shared.link import POLL_SECONDS

if TYPE_CHECKING:
    from harness.run.server_process import Guest


def descriptors(guest: Guest) -> int:
    """Number of the process's descriptors for pipes and for files in its folder. Connections do not count, because
    their number varies.
    """
    found = 0
    for path in Path(f"/proc/{guest.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += str(path.readlink()).startswith(("pipe:", str(guest.folder)))
    return found


def await_closed(guest: Guest, before: int) -> None:
    """Wait until the server has no more descriptors than before. Raises TimeoutError after the time limit of
    a reply.
    """
    what = "files and pipes to be closed"
    deadline = time.monotonic() + guest.waits.limit(what, guest.deadline_seconds)
    while (now := descriptors(guest)) > before:
        if time.monotonic() > deadline:
            raise guest.waits.expired(what, f"; too many: {now - before}")
        time.sleep(POLL_SECONDS)
