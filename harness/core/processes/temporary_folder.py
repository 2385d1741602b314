"""One folder for all temporary files of a command: short enough for sockets, gone afterwards.

The command removes it, else its keeper does; and if that was killed too, the next command, which finds that nobody
holds the folder's lock.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from harness.core.errors import InfrastructureError
from harness.core.processes import process

PREFIX = "plumb-"
LOCK = "lock"
SOCKET_PATH_BYTES = 107
"""How long a Unix socket's path may be (unix(7): sun_path, less its NUL)."""
BELOW_BYTES = 70
"""What comes behind the place: the folder's name, a run's, a guest's, and the socket's."""
YOUNG_SECONDS = 60.0
"""One that is younger may not have been locked yet."""


def confine() -> Path:
    """Have all that `tempfile` makes from now on in this process lie in a folder of its own; returns it.

    Raises InfrastructureError where there is no place for it.
    """
    place = _place()
    _sweep(place)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    # Held until we end, however we do.
    fcntl.flock(os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600), fcntl.LOCK_EX)
    process.keep_folder(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    tempfile.tempdir = str(folder)
    return folder


def refuse_long(path: Path) -> None:
    """Raise InfrastructureError for a path at which no socket can be."""
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        raise InfrastructureError(
            f"a path is too long for a socket: {len(os.fsencode(path))} bytes, {SOCKET_PATH_BYTES} are possible",
            where=str(path),
            remedy="TMPDIR=/tmp, or another short path",
        )


def _place() -> str:
    """The first of the usual places for temporary files whose path is short, and which can be written."""
    try:
        usual = tempfile.gettempdir()
    except FileNotFoundError as error:
        raise InfrastructureError("no folder for temporary files can be written", because=str(error)) from error
    places = [usual, os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp", "/var/tmp"]  # noqa: S108 - folders are made there
    short = [place for place in places if place and len(os.fsencode(place)) <= SOCKET_PATH_BYTES - BELOW_BYTES]
    for place in short:
        if Path(place).is_dir() and os.access(place, os.W_OK | os.X_OK):
            return place
    raise InfrastructureError(
        "no folder for temporary files has a path that is short enough for sockets",
        where=usual,
        because=f"its path may have {SOCKET_PATH_BYTES - BELOW_BYTES} bytes",
        remedy="TMPDIR=/tmp, or another short path that you may write",
    )


def _sweep(place: str) -> None:
    """Remove what commands left that were killed together with their keepers."""
    for folder in Path(place).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            found = folder.stat(follow_symlinks=False)
            if found.st_uid != os.geteuid() or time.time() - found.st_mtime < YOUNG_SECONDS:
                continue
            with (folder / LOCK).open("rb") as lock:
                # It fails where somebody holds it.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
