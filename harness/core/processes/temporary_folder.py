"""One folder for all temporary files of a command, with a path that is short enough for sockets.

The command removes the folder at its end. If it was killed, its watchdog does; if that was also killed, the next
command does, because the folder's lock is free.
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
"""The longest path of a Unix socket (unix(7): sun_path without its NUL)."""
BELOW_BYTES = 70
"""The length of the rest of the path: the names of the folder, a run, a guest and the socket."""
ROOM_BYTES = 16 << 20
"""Free space that a command needs there: for sockets, compilers' files and compiled suites."""
YOUNG_SECONDS = 60.0
"""A younger folder may not have been locked yet."""


def confine() -> Path:
    """Make `tempfile` put everything into a new folder of this process from now on; returns the folder.

    Raises InfrastructureError if no place is suitable.
    """
    place = _place()
    _sweep(place)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    # The lock is held until this process ends.
    fcntl.flock(os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600), fcntl.LOCK_EX)
    process.keep_folder(folder, at_once=False)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    tempfile.tempdir = str(folder)
    return folder


def refuse_long(path: Path) -> None:
    """Raise InfrastructureError for a path that is too long for a socket."""
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        raise InfrastructureError(
            f"a path is too long for a socket: {len(os.fsencode(path))} bytes, the limit is {SOCKET_PATH_BYTES}",
            where=str(path),
            remedy="TMPDIR=/tmp, or another short path",
        )


def _place() -> str:
    """The first usual place for temporary files that is writable, has room and has a short path."""
    try:
        usual = tempfile.gettempdir()
    except FileNotFoundError as error:
        raise InfrastructureError("no folder for temporary files is writable", because=str(error)) from error
    places = [usual, os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp", "/var/tmp"]  # noqa: S108 - folders are made there
    short = [place for place in places if place and len(os.fsencode(place)) <= SOCKET_PATH_BYTES - BELOW_BYTES]
    writable = [place for place in short if Path(place).is_dir() and os.access(place, os.W_OK | os.X_OK)]
    for place in writable:
        if has_room(place, ROOM_BYTES):
            return place
    if writable:
        raise InfrastructureError(
            "no folder for temporary files has room",
            where=", ".join(dict.fromkeys(writable)),
            because=f"a command needs {ROOM_BYTES >> 20} MiB there",
            remedy="free some space, or name another folder: TMPDIR",
        )
    raise InfrastructureError(
        "no folder for temporary files has a path that is short enough for sockets",
        where=usual,
        because=f"the limit is {SOCKET_PATH_BYTES - BELOW_BYTES} bytes",
        remedy="TMPDIR=/tmp, or another short path that you may write",
    )


def has_room(place: str, needed: int) -> bool:
    """Whether this user can still write this many bytes to a folder's disk, and make a file there."""
    disk = os.statvfs(place)
    # File systems that make inodes as needed say that they have none.
    return disk.f_bavail * disk.f_frsize >= needed and (disk.f_favail > 0 or disk.f_files == 0)


def _sweep(place: str) -> None:
    """Remove the folders of commands that were killed together with their watchdogs."""
    for folder in Path(place).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            found = folder.stat(follow_symlinks=False)
            if found.st_uid != os.geteuid() or time.time() - found.st_mtime < YOUNG_SECONDS:
                continue
            with (folder / LOCK).open("rb") as lock:
                # It fails if a process holds the lock.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
