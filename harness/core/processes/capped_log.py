"""Logs of limited size: only the head and the tail are kept, however much is written.

The writer does not notice. While it writes, the middle of a file that has grown too long becomes a hole, which frees
disk space and keeps offsets. After it has ended, the head and the tail are joined by a line that says how much is
missing. Logs are checked every half second; a log may exceed its limit by as much as the disk takes in that time.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT_BYTES = 64 << 20
LOOK_SECONDS = 0.5
TAIL_BYTES = 1 << 20
"""Size of the end of a log that is searched for its last lines."""
_BLOCK_BYTES = 4096
_STAT_BLOCK_BYTES = 512
"""The unit of `st_blocks`, whatever the file system's is (stat(2))."""
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_LEFT_OUT = re.compile(rb"\n\[plumbline: (\d+) bytes are left out here\]\n")


class _Watcher:
    """The thread that limits all logs which processes of the harness are writing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[int, int] = {}
        """Own descriptor -> offset at which the limited part begins."""
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, descriptor: int, start: int) -> int:
        # The writer's descriptor may be write-only, and its file position belongs to the writer.
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
        with self._lock:
            self._watched[own] = start
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="capped logs", daemon=True)
                self._thread.start()
        self._wake.set()
        return own

    def remove(self, own: int) -> None:
        with self._lock:
            del self._watched[own]
            os.close(own)

    def _look(self) -> None:
        while True:
            self._wake.wait()
            with self._lock:
                for own, start in self._watched.items():
                    # A failing disk is reported by the code that needs the file.
                    with contextlib.suppress(OSError):
                        _hollow(own, start)
                if not self._watched:
                    self._wake.clear()
            threading.Event().wait(LOOK_SECONDS)


_WATCHER = _Watcher()


class CappedLog:
    """A log that a process writes from an offset on, until `close`."""

    def __init__(self, descriptor: int, *, start: int = 0) -> None:
        self._start = start
        self._descriptor: int | None = _WATCHER.add(descriptor, start)

    def close(self) -> None:
        """Join head and tail after the last write. A second call does nothing."""
        own, self._descriptor = self._descriptor, None
        if own is not None:
            try:
                _close_up(own, self._start)
            finally:
                _WATCHER.remove(own)


@contextlib.contextmanager
def capped(descriptor: int, *, start: int = 0) -> Iterator[None]:
    """Limit what is written to a file from an offset on."""
    log = CappedLog(descriptor, start=start)
    try:
        yield
    finally:
        log.close()


def _hollow(descriptor: int, start: int) -> None:
    """Turn the middle into a hole."""
    status = os.fstat(descriptor)
    size = status.st_size
    # A file that was cut holds little, although its size grows from where the writer is: its newest part must stay.
    # The ends of what is left are rounded up to blocks.
    kept = LIMIT_BYTES + 2 * _BLOCK_BYTES
    if size - start <= kept or status.st_blocks * _STAT_BLOCK_BYTES - start <= kept:
        return
    first = -(-(start + LIMIT_BYTES // 2) // _BLOCK_BYTES) * _BLOCK_BYTES
    length = (size - LIMIT_BYTES // 2) // _BLOCK_BYTES * _BLOCK_BYTES - first
    if length > 0 and not _punch(descriptor, first, length):
        _cut(descriptor, start)


def _cut(descriptor: int, start: int) -> None:
    """Remove the middle where `fallocate` cannot: cut the file after its head, and write its tail again where it was.

    The size stays the same, so a closed log says that its middle is missing. A write that is in progress meanwhile may
    be lost: the file system lets it end before it cuts.
    """
    size, tail = -1, b""
    # The writer may have added to the file in the meantime.
    while size != (size := os.fstat(descriptor).st_size):
        tail = os.pread(descriptor, LIMIT_BYTES // 2, size - LIMIT_BYTES // 2)
    os.ftruncate(descriptor, start + LIMIT_BYTES // 2)
    _write(descriptor, tail, size - len(tail))


def _write(descriptor: int, content: bytes, place: int) -> None:
    while content:
        written = os.pwrite(descriptor, content, place)
        content, place = content[written:], place + written


def _punch(descriptor: int, first: int, length: int) -> bool:
    """Make a hole; False if the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    mode = _KEEP_SIZE | _PUNCH_HOLE
    while libc.fallocate(descriptor, mode, ctypes.c_int64(first), ctypes.c_int64(length)) != 0:
        if ctypes.get_errno() != errno.EINTR:
            return False
    return True


def _close_up(descriptor: int, start: int) -> None:
    size = os.fstat(descriptor).st_size
    half = LIMIT_BYTES // 2
    if size - start <= LIMIT_BYTES:
        return
    tail = os.pread(descriptor, half, size - half)
    os.ftruncate(descriptor, start + half)
    note = b"\n[plumbline: %d bytes are left out here]\n" % (size - start - half - len(tail))
    _write(descriptor, note + tail, start + half)


def tail_of(path: Path, length: int) -> bytes:
    """The last bytes of a log, which may be large; empty if there is no such file."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - length))
            return stream.read()
    except FileNotFoundError:
        return b""


def last_lines(path: Path, count: int) -> str:
    """The last lines of a log, which may be large; empty if there is no such file."""
    return "\n".join(tail_of(path, TAIL_BYTES).decode("utf-8", "replace").splitlines()[-count:])


def left_out_bytes(log: bytes) -> int:
    """How much of what was written is not in a closed log."""
    left_out = _LEFT_OUT.match(log, LIMIT_BYTES // 2)
    return int(left_out[1]) if left_out is not None else 0


def as_written(log: bytes, offset: int) -> int:
    """The offset, in everything that was written, of an offset into a closed log."""
    left_out = _LEFT_OUT.match(log, LIMIT_BYTES // 2)
    if left_out is None or offset < left_out.end():
        return offset
    return offset + int(left_out[1]) - (left_out.end() - left_out.start())
