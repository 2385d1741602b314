"""Processor time of this process, of its threads by purpose, and of the processes that it started, by program.

A program's time includes that of its own children for which it waited.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import subprocess
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TICKS = os.sysconf("SC_CLK_TCK")
_TIMES = slice(11, 15)
"""Indices among the fields of /proc/PID/stat after the name: utime, stime, cutime, cstime (proc(5))."""
_lock = threading.Lock()
_programs: defaultdict[str, float] = defaultdict(float)
_threads: defaultdict[str, float] = defaultdict(float)


def seconds() -> float:
    """The processor time so far of this process and of all its ended descendants."""
    return own_seconds() + _seconds(resource.RUSAGE_CHILDREN)


def own_seconds() -> float:
    """The processor time so far of this process, with all its threads."""
    return _seconds(resource.RUSAGE_SELF)


def by_program() -> Mapping[str, float]:
    """Seconds of the ended processes that were counted, by the program's name."""
    with _lock:
        return dict(_programs)


def by_thread() -> Mapping[str, float]:
    """Seconds of the ended threads that were counted, by purpose."""
    with _lock:
        return dict(_threads)


@contextlib.contextmanager
def counted_thread(purpose: str) -> Iterator[None]:
    """Count the present thread's time."""
    before = time.thread_time()
    try:
        yield
    finally:
        with _lock:
            _threads[purpose] += time.thread_time() - before


class CountedProcess(subprocess.Popen[bytes]):
    """A process whose time is counted when it has ended."""

    _is_counted = False

    def poll(self) -> int | None:
        """The exit status, or None while it runs."""
        self._count(os.WNOHANG)
        return super().poll()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; returns the exit status. Raises subprocess.TimeoutExpired.

        It returns as soon as the process ends, whereas `Popen.wait` polls at intervals of up to 50 ms.
        """
        if timeout is not None and self.returncode is None and not self._ends_within(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout)
        self._count(0)
        return super().wait()

    def _ends_within(self, seconds: float) -> bool:
        descriptor = os.pidfd_open(self.pid)
        try:
            end = select.poll()
            end.register(descriptor, select.POLLIN)
            return bool(end.poll(1000 * max(0.0, seconds)))
        finally:
            os.close(descriptor)

    def _count(self, options: int) -> None:
        if self.returncode is not None or not _has_ended(self.pid, options):
            return
        words = self.args
        assert isinstance(words, list)
        with _lock:
            if not self._is_counted:
                self._is_counted = True
                _add(self.pid, Path(str(words[0])).name)


def reap_orphan(pid: int) -> None:
    """Reap an orphan that this process has adopted, and count its time, if it has ended."""
    if _has_ended(pid, os.WNOHANG):
        with _lock:
            _add(pid, "")
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _has_ended(pid: int, options: int) -> bool:
    # Another thread may have reaped it.
    with contextlib.suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | options) is not None
    return False


def _add(pid: int, program: str) -> None:
    """Count a process that has ended and is not reaped: it still has its times, and a name of up to 15 characters."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        head, _, rest = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")
        name = program or head.partition("(")[2]
        _programs[name] += sum(map(int, rest.split()[_TIMES])) / _TICKS


def _seconds(whose: int) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime
