"""Registers what must not outlive the harness: processes, their orphans and temporary folders.

This is the harness' side of harness.core.processes.watchdog. Every process that the harness starts carries a token in
its environment (harness.core.processes.process_tree), and the harness adopts orphans. When a process has ended, what it
left behind is therefore known in any session: an orphan whose token belongs to no running process, or that has no token
because it emptied its environment.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.core.errors import InfrastructureError
from harness.core.processes import process_tree, processor_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILES_FLOOR = 1024
"""Open files that a run needs: with fewer, a server refuses clients and a proxy refuses connections."""
FILES_ENOUGH = 65536


BRIEF_SECONDS = 2.0
"""Process numbers do not wrap around within such a short time (pid_max is 32768 or more)."""


class _Started(NamedTuple):
    token: str
    own_group: bool
    at: float


class ProcessRegistry:
    """What one harness process must clean up. The first process starts the watchdog; a killed watchdog is replaced."""

    def __init__(self) -> None:
        # A signal handler may run while its own thread holds the lock.
        self._lock = threading.RLock()
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._run = ""
        """The prefix of its tokens, which it chooses with the first process: a forked process has its own prefix."""
        self._count = 0
        self._started: dict[int, _Started] = {}
        self._folders: set[Path] = set()

    def start(
        self, call: Callable[[str], subprocess.Popen[bytes]], *, own_group: bool = True
    ) -> subprocess.Popen[bytes]:
        """Start a process by `call`, which receives the token to mark it with. It is killed when the harness ends."""
        with self._lock:
            self._ready()
            self._count += 1
            # The length is constant because the start of a program's stack depends on its environment.
            token = f"{self._run}.{self._count:08x}"
            process = call(token)
            self._started[process.pid] = _Started(token, own_group, time.monotonic())
            self._tell(f"{'+' if own_group else '='}{process.pid}\n")
        return process

    def release(self, pid: int) -> None:
        """Forget a process that has ended with its group, and kill what it left behind. Its number may be reused."""
        with self._lock:
            ended = self._started.pop(pid, None)
            if ended is None:
                return
            self._tell(f"-{pid}\n")
        # As a rule, the processes that it started have higher numbers.
        since = pid if time.monotonic() - ended.at < BRIEF_SECONDS else 0
        self._kill(lambda: self._orphans(since=since))

    def keep_folder(self, folder: Path, *, at_once: bool) -> None:
        """Have a folder removed when the harness ends; unless `at_once`, only if the harness starts a process before
        that.
        """
        with self._lock:
            self._folders.add(folder)
            if at_once:
                self._ready()
            if self._watchdog is not None:
                self._tell(f"{folder}\n")

    def stop(self) -> None:
        """Kill every process that was not released, and every orphan."""
        with self._lock:
            started = dict(self._started)
        for pid, process in started.items():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL) if process.own_group else os.kill(pid, signal.SIGKILL)
        if self._count:
            self._kill(lambda: [*self._alive(started), *self._orphans(stopping=True)])

    def _alive(self, started: dict[int, _Started]) -> list[process_tree.Process]:
        """Killed processes that have not ended. Their exit status is left to the threads that wait for them."""
        found = (process_tree.look_at(pid) for pid in started)
        return [process for process in found if process and process.parent == os.getpid() and process.state not in "ZX"]

    def _orphans(self, *, since: int = 0, stopping: bool = False) -> list[process_tree.Process]:
        """Orphans that the harness may kill, and their descendants."""
        with self._lock:
            every = process_tree.processes(since=since)
            running = set() if stopping else {process.token for process in self._started.values()}
            session = os.getsid(0)
            # A watchdog that execve(2) has just begun to run has no environment, and so no token, for a moment.
            ours = {*self._started, self._watchdog.pid if self._watchdog else 0}
            roots = [
                process
                for process in every.values()
                if process.parent == os.getpid()
                and process.pid not in ours
                # A library started it: processes of the harness, and all their descendants, have other sessions.
                and process.session != session
                and process_tree.token_of(process.pid) not in running | {process_tree.WATCHDOG}
            ]
        return [*roots, *(process for root in roots for process in process_tree.below(root.pid, every))]

    def _kill(self, doomed: Callable[[], list[process_tree.Process]]) -> None:
        deadline = time.monotonic() + process_tree.KILL_SECONDS
        while (
            found := [process for process in doomed() if process_tree.may_kill(process.pid)]
        ) and time.monotonic() < deadline:
            process_tree.kill(process.pid for process in found if process.state not in "ZX")
            with self._lock:
                for process in found:
                    if process.parent == os.getpid() and process.pid not in self._started:
                        processor_time.reap_orphan(process.pid)
            time.sleep(process_tree.POLL_SECONDS)

    def _ready(self) -> None:
        """Start the watchdog before the first process or folder. Raises InfrastructureError."""
        if self._watchdog is None:
            self._run = f"{os.getpid():x}.{os.urandom(8).hex()}"
            process_tree.adopt_orphans()
            _allow_files()
        if self._watchdog is None or self._watchdog.poll() is not None:
            self._start_watchdog()

    def _tell(self, line: str) -> None:
        assert self._watchdog is not None
        assert self._watchdog.stdin is not None
        try:
            self._watchdog.stdin.write(line.encode())
        except BrokenPipeError:
            # The watchdog was killed. Its successor receives the whole registry, which includes this line.
            self._start_watchdog()

    def _start_watchdog(self) -> None:
        script = Path(__file__).with_name("watchdog.py")
        try:
            self._watchdog = subprocess.Popen(
                [sys.executable, "-S", "-E", str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env={**os.environ, process_tree.MARK: process_tree.WATCHDOG},
                bufsize=0,
            )
        except OSError as error:
            raise InfrastructureError("cannot start the process watchdog", because=str(error)) from error
        assert self._watchdog.stdin is not None
        try:
            self._watchdog.stdin.write("".join(self._all()).encode())
        except BrokenPipeError as error:
            raise InfrastructureError("the process watchdog ends at once", where=str(script)) from error

    def _all(self) -> Iterator[str]:
        yield f"?{self._run}\n"
        yield from (f"{folder}\n" for folder in self._folders)
        yield from (f"{'+' if process.own_group else '='}{pid}\n" for pid, process in list(self._started.items()))


def _allow_files() -> None:
    """Allow as many open files as the machine grants. Raises InfrastructureError if these are too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_ENOUGH if hard == resource.RLIM_INFINITY else min(hard, FILES_ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if soft != resource.RLIM_INFINITY and soft < FILES_FLOOR:
        raise InfrastructureError(
            f"the limit on open files is {soft}, but {FILES_FLOOR} are needed",
            because="with fewer, a server refuses clients, and the run would report that as its fault",
            remedy=f"ulimit -n {FILES_FLOOR}, as root if the hard limit is lower",
        )
