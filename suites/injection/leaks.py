"""Files and pipes that a server has open, and those that it leaves open after a failure."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from suites._shared import link

if TYPE_CHECKING:
    from harness.run.server_process import Guest


def descriptors(guest: Guest) -> int:
    """How many descriptors of pipes, and of files of its folder, its process has. Connections come and go."""
    found = 0
    for path in Path(f"/proc/{guest.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += str(path.readlink()).startswith(("pipe:", str(guest.folder)))
    return found


def await_closed(guest: Guest, before: int) -> None:
    """Wait until it has no more descriptors than before. Raises TimeoutError."""
    link.await_that(lambda: descriptors(guest) <= before, [guest], f"all but {before} files and pipes to be closed")
