"""The test's side of faults.c: chooses which system call of a server fails, and reads how often each was made."""

from __future__ import annotations

import errno
import struct
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.run.server_process import Guest

NAME = "faults"
_WORDS = 64
_FAILED = 5
_CALLS = 16


class Call(IntEnum):
    """The kinds of calls, numbered as in faults.c."""

    OPEN = 1
    OPEN_TO_READ = 2
    READ = 3
    WRITE = 4
    FREAD = 5
    FWRITE = 6
    FFLUSH = 7
    FSYNC = 8
    RENAME = 9
    FTRUNCATE = 10
    FORK = 11
    PIPE = 12
    READ_PIPE = 13
    WRITE_PIPE = 14


# These numbers are the same on every architecture of Linux (include/uapi/asm-generic/errno-base.h).
_ERRORS = {Call.FORK: errno.ENOMEM, Call.PIPE: errno.EMFILE, Call.WRITE: errno.ENOSPC, Call.FWRITE: errno.ENOSPC}
FILES: dict[str, bytes] = {NAME: bytes(4 * _WORDS)}
"""Files that a server's folder must contain before the server starts."""


class Faults:
    """The words that a running server and its children share with a test."""

    def __init__(self, guest: Guest) -> None:
        self._path = guest.folder / NAME
        self._form = (">" if guest.runner.target.endianness == "big" else "<") + f"{_WORDS}i"

    def arm(self, call: Call, first: int = 1, *, times: int = 1, short: bool = False) -> None:
        """Make `times` calls of a kind fail, beginning with the `first` from now on (1: the next). A `short` write
        writes half instead.
        """
        self._write([call, first, times, _ERRORS.get(call, errno.EIO), int(short)])

    def disarm(self) -> None:
        """Let all calls succeed, and count from 0."""
        self._write([])

    def failed(self) -> int:
        """Number of calls that have failed since `arm`."""
        return self._read()[_FAILED]

    def calls(self, call: Call) -> int:
        """Number of calls of a kind since the last `arm` or `disarm`."""
        return self._read()[_CALLS + call]

    def _write(self, orders: list[int]) -> None:
        with self._path.open("r+b") as file:
            file.write(struct.pack(self._form, *orders, *[0] * (_WORDS - len(orders))))

    def _read(self) -> tuple[int, ...]:
        return struct.unpack(self._form, self._path.read_bytes())
