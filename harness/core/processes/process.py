"""The only module that starts processes. Each runs in a group of its own, with a deadline, and dies with the harness.

It refuses shell text: a command is a list. The keeper (harness.core.processes.watchdog) covers every way the harness
itself can die.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from harness.core.errors import InfrastructureError
from harness.core.processes import process_tree, supervisor
from harness.core.processes.capped_log import capped
from harness.core.processes.environment import PLAIN
from harness.core.processes.leftovers import ProcessRegistry
from harness.core.processes.supervisor import STOPPING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PLAIN_ENVIRONMENT = PLAIN
"""What a process sees that is told nothing else."""

WATCH_SECONDS = 10.0
STOP_SECONDS = 30


_KEPT = ProcessRegistry()


def kill_group(process: subprocess.Popen[bytes], *, grace_seconds: float = 0.0) -> None:
    """End a process and its whole group: SIGTERM, then after the grace SIGKILL. Returns when the leader is reaped.

    Whatever it left behind in other groups and sessions is killed as well.
    """
    with contextlib.suppress(ProcessLookupError):
        if grace_seconds and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace_seconds)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _KEPT.release(process.pid)


class StoppedError(Exception):
    """`stop` was called: nothing new is started."""


_STOPPED = threading.Event()


def keep_folder(folder: Path) -> None:
    """Have a folder removed when this process has ended, however it did."""
    _KEPT.keep_folder(folder)


def refuse_after_stop() -> None:
    """Raise StoppedError after `stop`: nothing is started, and how it ended who was killed by it says nothing."""
    if _STOPPED.is_set():
        raise StoppedError


def stop() -> None:
    """Kill every group of ours that still lives, and start nothing any more: for the way out, from any thread."""
    _STOPPED.set()
    _KEPT.stop()


def stop_on_signals() -> None:
    """Make SIGINT, SIGTERM and SIGHUP stop everything, then raise KeyboardInterrupt in the main thread.

    Without it, worker threads would go on waiting for compilers that the terminal's Ctrl-C does not reach.
    """

    def interrupt(_signal: int, _frame: object) -> None:
        # Once is enough: what comes while we clean up would end in a traceback.
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        threading.excepthook = lambda _: None
        supervisor.tell_begun()
        # Whoever waits for ever nevertheless, as for another run's lock, is ended by the kernel.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(STOP_SECONDS)
        stop()
        raise KeyboardInterrupt

    for number in STOPPING:
        signal.signal(number, interrupt)


atexit.register(stop)


def start(
    command: Sequence[str | Path],
    *,
    output: IO[bytes] | int = subprocess.DEVNULL,
    questions: IO[bytes] | int = subprocess.DEVNULL,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in its own group, both outputs into one place. The caller must end it with `kill_group`.

    `questions` is what it reads: nothing, unless it is talked to (harness.core.processes.line_process).

    Raises InfrastructureError when the program cannot be started at all, StoppedError after `stop`.
    """
    refuse_after_stop()
    words = [str(word) for word in command]
    variables = PLAIN_ENVIRONMENT if environment is None else environment

    def call(token: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words,
            stdin=questions,
            stdout=output,
            stderr=subprocess.STDOUT if output != subprocess.DEVNULL else subprocess.DEVNULL,
            cwd=folder,
            env={**variables, process_tree.MARK: token},
            start_new_session=True,
        )

    process = _started(words[0], call)
    if _STOPPED.is_set():
        # It slipped in between: `stop` may not have seen it.
        kill_group(process)
        raise StoppedError
    return process


def attend(command: Sequence[str | Path], *, environment: Mapping[str, str]) -> int:
    """Give a program the terminal, and wait for its end: its exit status, negative for a signal.

    It stays in our process group, which is the terminal's, so that Ctrl-C and Ctrl-Z reach it; here Ctrl-C does nothing
    meanwhile. Raises InfrastructureError when it cannot be started, StoppedError after `stop`.
    """
    refuse_after_stop()
    words = [str(word) for word in command]

    def call(token: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(words, env={**environment, process_tree.MARK: token})

    with _terminal_kept(), _without_interrupts():
        process = _started(words[0], call, own_group=False)
        try:
            return process.wait()
        finally:
            process.kill()
            process.wait()
            _KEPT.release(process.pid)


def _started(
    name: str, call: Callable[[str], subprocess.Popen[bytes]], *, own_group: bool = True
) -> subprocess.Popen[bytes]:
    try:
        return _KEPT.start(call, own_group=own_group)
    except OSError as error:
        raise InfrastructureError(
            f"cannot start {name}", because=f"{error.strerror}: {error.filename}", remedy="plumb doctor"
        ) from error


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """SIGINT does nothing; a handler and not SIG_IGN, which programs would inherit."""
    before = signal.signal(signal.SIGINT, lambda _signal, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _terminal_kept() -> Iterator[None]:
    """Put the terminal back as it was: who was killed while it edited a line cannot."""
    terminal = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    modes = termios.tcgetattr(terminal) if terminal is not None else None
    try:
        yield
    finally:
        if terminal is not None and modes is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(terminal, termios.TCSADRAIN, modes)


def waited_seconds(pid: int) -> float:
    """How long a process has wanted a processor and got none: of its threads, the one that waited most.

    What is left of the time that passed is what a machine with nothing else to do would have taken. 0 where the kernel
    does not count (Linux Documentation/scheduler/sched-stats.rst: the second field is the delay in nanoseconds).
    """
    delays = [0.0]
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        # A thread may have ended by now.
        with contextlib.suppress(OSError):
            delays.append(int(path.read_text().split()[1]) / 1e9)
    return max(delays)


def is_stopped(pid: int) -> bool:
    """Whether a process does not run because somebody sent it SIGSTOP (proc(5): state T)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


class Result:
    """How a finished command ended."""

    def __init__(self, command: Sequence[str], code: int, output: bytes, *, expired: bool, seconds: float) -> None:
        self.command = list(command)
        self.code = code
        """Exit status; negative: minus the signal that ended it."""
        self.output = output
        self.expired = expired
        """True: the deadline passed, and the group was killed."""
        self.seconds = seconds

    @property
    def text(self) -> str:
        """The output as text; bytes that are no UTF-8 are escaped."""
        return self.output.decode("utf-8", "backslashreplace")


def run(
    command: Sequence[str | Path],
    *,
    deadline_seconds: float,
    log: Path | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    watch: Callable[[], None] | None = None,
) -> Result:
    """Run to the end or to the deadline. Output is returned, and also kept in `log`, headed by the command, if given.

    Of a very long output head and tail are kept (harness.core.processes.capped_log). `watch` is called every
    WATCH_SECONDS meanwhile.

    Raises InfrastructureError when the program cannot be started; a non-zero exit is the caller's to judge.
    """
    words = [str(word) for word in command]
    started = time.monotonic()
    with _output_file(log) as stream:
        if log is not None:
            stream.write(f"$ {shlex.join(words)}\n".encode())
            stream.flush()
        offset = stream.tell()
        with capped(stream.fileno(), start=offset):
            process = start(words, output=stream, folder=folder, environment=environment)
            try:
                expired = not _wait(process, deadline_seconds, watch)
            finally:
                kill_group(process)
        refuse_after_stop()
        stream.seek(offset)
        output = stream.read()
    return Result(words, process.returncode, output, expired=expired, seconds=time.monotonic() - started)


def run_successfully(
    command: Sequence[str | Path],
    *,
    problem: str,
    deadline_seconds: float,
    where: str = "",
    remedy: str = "",
    log: Path | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Result:
    """Run a command that has to succeed. Raises InfrastructureError, which says `problem` and why, when it does not."""
    result = run(command, deadline_seconds=deadline_seconds, log=log, folder=folder, environment=environment)
    if result.expired or result.code != 0:
        # Without a log this is the only place where its words are kept.
        said = result.text.strip().splitlines()[-5 if log else 0 :]
        late = [f"it did not end within {deadline_seconds:g} s"] if result.expired else []
        raise InfrastructureError(
            problem, where=where, because="\n".join([*said, *late]), log=str(log or ""), remedy=remedy
        )
    return result


def _wait(process: subprocess.Popen[bytes], deadline_seconds: float, watch: Callable[[], None] | None) -> bool:
    """Whether it ended before the deadline."""
    deadline = time.monotonic() + deadline_seconds
    while (left := deadline - time.monotonic()) > 0:
        try:
            process.wait(min(left, WATCH_SECONDS) if watch else left)
        except subprocess.TimeoutExpired:
            if watch:
                watch()
        else:
            return True
    return False


@contextlib.contextmanager
def _output_file(log: Path | None) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() if log is None else log.open("a+b") as stream:
        yield stream
