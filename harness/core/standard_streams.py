"""Standard output and standard error in every state: closed, full, without a reader, or in a limited encoding.

A failed write does not interrupt the work. It is remembered, and reported when the command ends.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import TYPE_CHECKING

from harness.core.errors import ExitCode, InfrastructureError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_DEFAULT_ENCODING = "utf-8"


def open_closed_descriptors() -> set[int]:
    """Open /dev/null in place of closed standard streams, whose numbers the next file would otherwise get.

    Returns the descriptors that were closed.
    """
    closed = set()
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            closed.add(number)
            # open(2) takes the lowest free number, which is this one.
            os.open(os.devnull, os.O_RDWR)
    return closed


class _Raw(io.FileIO):
    """A standard stream's descriptor that stores a failure instead of raising it."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.failure: OSError | None = None

    def write(self, data: Buffer, /) -> int:
        if self.failure is None:
            try:
                return super().write(data)
            except OSError as error:
                self.failure = error
        return memoryview(data).nbytes


class Streams:
    """Standard output and error of this process, replaced for the rest of its life."""

    def __init__(self) -> None:
        self._output = _Raw(1)
        self._errors = _Raw(2)
        sys.stdout = _text(self._output, sys.stdout, line_buffering=os.isatty(1))
        sys.stderr = _text(self._errors, sys.stderr, line_buffering=True)

    def finish(self, code: int) -> int:
        """Flush both streams. Returns the exit status: `code`, unless output was lost that a reader is waiting for."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        failure = self._output.failure
        if failure is None or failure.errno is None:
            return code
        reason = os.strerror(failure.errno)
        if failure.errno == errno.EPIPE:
            # As in `plumb list targets | head -1`: the reader has what it needs.
            sys.stderr.write(f"standard output was closed by its reader ({reason}); the exit status is {code}\n")
            return code
        sys.stderr.write(f"error: standard output cannot be written: {reason}\n  because: the exit status was {code}\n")
        return int(ExitCode.INFRASTRUCTURE)


def refuse_closed(closed: set[int]) -> None:
    """Raise InfrastructureError if standard output is closed, before any work is done."""
    if 1 in closed:
        raise InfrastructureError("standard output is closed", remedy="> /dev/null, if the output is not needed")


def _text(raw: _Raw, before: io.TextIOBase | object, *, line_buffering: bool) -> io.TextIOWrapper:
    """A text stream that escapes characters which the encoding lacks."""
    encoding = getattr(before, "encoding", None) or _DEFAULT_ENCODING
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=encoding, errors="backslashreplace", line_buffering=line_buffering
    )
