"""Records which commands use the cache and when each entry was last used, so that nothing in use is removed.

A command that uses the cache holds a lock whose name contains the time at which the command began. Its first use of an
entry sets the time of the entry's seal. If an entry was used after the oldest running command began, some command may
be using it. Commands make both records under a shared lock, which a removal holds exclusively, so no entry disappears
between the record and the check of the entry that follows it. The kernel releases the locks of a killed process.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

if TYPE_CHECKING:
    from collections.abc import Iterator

_USER = "use-"


class CacheUse:
    """The uses of one cache by this process."""

    def __init__(self, locks: Path) -> None:
        self._locks = locks
        self._guard = threading.Lock()
        self._noted: set[Path] = set()
        self._own: FileLock | None = None

    def note(self, seal: Path) -> None:
        """Record that this process uses the entry of a seal, if it exists. Costs nothing the second time."""
        with self._guard:
            if seal in self._noted:
                return
            # On a disk that is read-only or full, an entry can still be read, and no entry is removed.
            with contextlib.suppress(OSError), self._gate(fcntl.LOCK_SH):
                if self._own is None:
                    self._own = self._held()
                # The machine's clock may have been set back meanwhile.
                now = max(time.time_ns(), _began(Path(self._own.lock_file)))
                os.utime(seal, ns=(now, now))
                self._noted.add(seal)

    @contextlib.contextmanager
    def removal(self) -> Iterator[int]:
        """Exclude all records meanwhile. Yields a time in nanoseconds: entries that were used after it may still be in
        use.
        """
        self._locks.mkdir(parents=True, exist_ok=True)
        with self._gate(fcntl.LOCK_EX):
            yield min([time.time_ns(), *self.users()])

    def users(self) -> list[int]:
        """When each running command began to use the cache, this one included. Call it in a `removal`."""
        own = [] if self._own is None else [_began(Path(self._own.lock_file))]
        return [*own, *self.others()]

    def others(self) -> list[int]:
        """When each other running command began to use the cache. Call it in a `removal`."""
        found = []
        for path in self._locks.glob(f"{_USER}*.lock"):
            if self._own is not None and Path(self._own.lock_file) == path:
                continue
            lock = FileLock(path, thread_local=False)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                found.append(_began(path))
            else:
                # The process has ended in some way.
                path.unlink(missing_ok=True)
                lock.release()
        return found

    def _held(self) -> FileLock:
        # An older process with this number would have begun at another time, and its lock would have another name.
        lock = FileLock(self._locks / f"{_USER}{os.getpid()}-{time.time_ns()}.lock", thread_local=False)
        lock.acquire()
        atexit.register(_give_up, lock)
        return lock

    @contextlib.contextmanager
    def _gate(self, how: int) -> Iterator[None]:
        self._locks.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._locks / "removal.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)


def _began(lock: Path) -> int:
    return int(lock.name.removesuffix(".lock").rpartition("-")[2])


def _give_up(lock: FileLock) -> None:
    """Remove this process' lock at its end."""
    Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()
