"""What must not outlive us: processes and their orphans, temporary folders. The harness' side of
harness.core.processes.watchdog.

Every process that is started is marked with a token (harness.core.processes.process_tree), and we are the parent of
orphans. So when a process has ended, what it left behind is known, whatever session it is in: an orphan of ours whose
token is that of nobody who still runs, or that has none because it emptied its environment.
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
from harness.core.processes import process_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILES_FLOOR = 1024
"""So many files must be open at once: with fewer a server refuses clients, and a proxy connections."""
FILES_ENOUGH = 65536


BRIEF_SECONDS = 2.0
"""In so short a time the numbers of processes do not go all the way round (pid_max is 32768 or more)."""


class _Started(NamedTuple):
    token: str
    own_group: bool
    at: float


class ProcessRegistry:
    """What one harness process keeps. Its keeper is started with the first process, and again should it be killed."""

    def __init__(self) -> None:
        # A signal handler may come while its own thread holds the lock.
        self._lock = threading.RLock()
        self._keeper: subprocess.Popen[bytes] | None = None
        self._run = f"{os.getpid():x}.{os.urandom(8).hex()}"
        self._count = 0
        self._started: dict[int, _Started] = {}
        self._folders: set[Path] = set()

    def start(
        self, call: Callable[[str], subprocess.Popen[bytes]], *, own_group: bool = True
    ) -> subprocess.Popen[bytes]:
        """Start a process by `call`, which is given the token to mark it with, and have it killed when we end."""
        with self._lock:
            self._ready()
            self._count += 1
            # Of one length always: where a program's stack begins depends on its environment.
            token = f"{self._run}.{self._count:08x}"
            process = call(token)
            self._started[process.pid] = _Started(token, own_group, time.monotonic())
            self._tell(f"{'+' if own_group else '='}{process.pid}\n")
        return process

    def release(self, pid: int) -> None:
        """A process has ended, with its group: kill what it left behind. Its number may be a stranger's from now on."""
        with self._lock:
            ended = self._started.pop(pid, None)
            if ended is None:
                return
            self._tell(f"-{pid}\n")
        # What it started came after it, as a rule.
        since = pid if time.monotonic() - ended.at < BRIEF_SECONDS else 0
        self._kill(lambda: self._orphans(since=since))

    def keep_folder(self, folder: Path) -> None:
        """Have a folder removed when we end."""
        with self._lock:
            self._folders.add(folder)
            if self._keeper is not None:
                self._tell(f"{folder}\n")

    def stop(self) -> None:
        """Kill every process that was not released, and every orphan."""
        with self._lock:
            started = dict(self._started)
        for pid, one in started.items():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL) if one.own_group else os.kill(pid, signal.SIGKILL)
        if self._count:
            self._kill(lambda: [*self._alive(started), *self._orphans(stopping=True)])

    def _alive(self, started: dict[int, _Started]) -> list[process_tree.Process]:
        """Who has been killed and has not ended. Its end is for those to learn who wait for it."""
        found = (process_tree.look_at(pid) for pid in started)
        return [one for one in found if one and one.parent == os.getpid() and one.state not in "ZX"]

    def _orphans(self, *, since: int = 0, stopping: bool = False) -> list[process_tree.Process]:
        """Those that are ours to kill, and their descendants."""
        with self._lock:
            every = process_tree.processes(since=since)
            running = set() if stopping else {one.token for one in self._started.values()}
            session = os.getsid(0)
            roots = [
                one
                for one in every.values()
                if one.parent == os.getpid()
                and one.pid not in self._started
                # A library's of ours: what we start has a session of its own, and so has all that comes of it.
                and one.session != session
                and process_tree.token_of(one.pid) not in running | {process_tree.KEEPER}
            ]
        return [*roots, *(one for root in roots for one in process_tree.below(root.pid, every))]

    def _kill(self, doomed: Callable[[], list[process_tree.Process]]) -> None:
        deadline = time.monotonic() + process_tree.KILL_SECONDS
        while (found := [one for one in doomed() if process_tree.may_kill(one.pid)]) and time.monotonic() < deadline:
            process_tree.kill(one.pid for one in found if one.state not in "ZX")
            with self._lock:
                for one in found:
                    if one.parent == os.getpid() and one.pid not in self._started:
                        with contextlib.suppress(ChildProcessError):
                            os.waitpid(one.pid, os.WNOHANG)
            time.sleep(process_tree.POLL_SECONDS)

    def _ready(self) -> None:
        """Have a keeper before there is anything to keep. Raises InfrastructureError."""
        if self._keeper is None:
            process_tree.adopt_orphans()
            _allow_files()
        if self._keeper is None or self._keeper.poll() is not None:
            self._hire()

    def _tell(self, line: str) -> None:
        assert self._keeper is not None
        assert self._keeper.stdin is not None
        try:
            self._keeper.stdin.write(line.encode())
        except BrokenPipeError:
            # Somebody killed it. The next one is told everything, this line's doing included.
            self._hire()

    def _hire(self) -> None:
        script = Path(__file__).with_name("watchdog.py")
        try:
            self._keeper = subprocess.Popen(
                [sys.executable, "-S", "-E", str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env={**os.environ, process_tree.MARK: process_tree.KEEPER},
                bufsize=0,
            )
        except OSError as error:
            raise InfrastructureError("cannot start the keeper of our processes", because=str(error)) from error
        assert self._keeper.stdin is not None
        try:
            self._keeper.stdin.write("".join(self._all()).encode())
        except BrokenPipeError as error:
            raise InfrastructureError("the keeper of our processes ends at once", where=str(script)) from error

    def _all(self) -> Iterator[str]:
        yield f"?{self._run}\n"
        yield from (f"{folder}\n" for folder in self._folders)
        yield from (f"{'+' if one.own_group else '='}{pid}\n" for pid, one in list(self._started.items()))


def _allow_files() -> None:
    """As many open files as this machine grants. Raises InfrastructureError where that is too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_ENOUGH if hard == resource.RLIM_INFINITY else min(hard, FILES_ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if soft != resource.RLIM_INFINITY and soft < FILES_FLOOR:
        raise InfrastructureError(
            f"only {soft} files may be open at once, {FILES_FLOOR} are needed",
            because="with fewer a server refuses clients, and would be blamed for it",
            remedy=f"ulimit -n {FILES_FLOOR}, as root if the hard limit is lower",
        )
