"""The only module that starts processes. Each runs in its own group, with a deadline, and ends with the harness.

A command is a list of words, never shell text. The watchdog (harness.core.processes.watchdog) kills the processes
however the harness itself ends.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING

from harness.core.errors import InfrastructureError
from harness.core.processes import process_tree, supervisor
from harness.core.processes.capped_log import capped
from harness.core.processes.environment import PLAIN
from harness.core.processes.leftovers import ProcessRegistry
from harness.core.processes.process_tree import STOPPING
from harness.core.processes.processor_time import CountedProcess
from harness.core.processes.scheduling import UsableTime
from harness.core.untrusted_text import as_utf8

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

PLAIN_ENVIRONMENT = PLAIN
"""The environment of a process if the caller names no other."""

WATCH_SECONDS = 10.0
STOP_SECONDS = 30


_REGISTRY = ProcessRegistry()


def kill_group(process: subprocess.Popen[bytes], *, grace_seconds: float = 0.0) -> None:
    """End a process and its group: SIGTERM, and SIGKILL after the grace period. Returns when the leader is reaped.

    Orphans in other groups and sessions are also killed.
    """
    with contextlib.suppress(ProcessLookupError):
        if grace_seconds and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace_seconds)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _REGISTRY.release(process.pid)


def ends_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a process has ended, or ends within this time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def terminate_group(process: subprocess.Popen[bytes]) -> None:
    """Tell a process and its group to end, by SIGTERM. Nothing happens if the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)


PIPE = subprocess.PIPE
"""For `start`: the caller writes what the process reads."""


class StoppedError(Exception):
    """`stop` was called, so no process may be started."""


_STOPPED = threading.Event()


def keep_folder(folder: Path, *, at_once: bool = True) -> None:
    """Have a folder removed when this process has ended, however it ended.

    `at_once`: False for a folder that something else removes as well, until the first process is started. A command
    that starts no process then needs no watchdog. Raises InfrastructureError without a watchdog.
    """
    _REGISTRY.keep_folder(folder, at_once=at_once)


def refuse_after_stop() -> None:
    """Raise StoppedError after `stop`: nothing may be started, and exit statuses of killed processes mean nothing."""
    if _STOPPED.is_set():
        raise StoppedError


def has_stopped() -> bool:
    """Whether `stop` was called. Exceptions after it are its consequences: some wrap the KeyboardInterrupt."""
    return _STOPPED.is_set()


def stop() -> None:
    """Kill every living process group of the harness and refuse to start more. Any thread may call it at the end."""
    _STOPPED.set()
    _REGISTRY.stop()


def stop_on_signals() -> None:
    """Make SIGINT, SIGTERM, SIGHUP and SIGQUIT stop everything, then raise KeyboardInterrupt in the main thread.

    Otherwise worker threads would wait for compilers, which the terminal's Ctrl-C does not reach.
    """

    def interrupt(_signal: int, _frame: object) -> None:
        # A further signal during the clean-up would cause a traceback.
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        threading.excepthook = lambda _: None
        # The exception below may hit a callback of a garbage collector or a lock, where Python only reports it.
        sys.unraisablehook = lambda _: None
        supervisor.tell_begun()
        # If a thread still waits, for example for another run's lock, the kernel ends the process.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(STOP_SECONDS)
        stop()
        raise KeyboardInterrupt

    for number in STOPPING:
        signal.signal(number, interrupt)


atexit.register(stop)


Spawn = Callable[[list[str], int, str], CountedProcess | None]
"""Another way to start a process, given its words, a descriptor for its outputs, and its token. Returns None on
failure.
"""


def start(
    command: Sequence[str | Path],
    *,
    output: IO[bytes] | int = subprocess.DEVNULL,
    errors: IO[bytes] | None = None,
    requests: IO[bytes] | int = subprocess.DEVNULL,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    spawn: Spawn | None = None,
    steady_addresses: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a process in its own group, with both outputs in one place. The caller must end it with `kill_group`.

    `errors`: another place for its standard error. It reads `requests`, which is empty unless the caller talks to it
    (harness.core.processes.line_process, harness.run.boards). `spawn` is tried first: it has its own folder and
    environment. `steady_addresses`: the program's addresses are the same every time, if the kernel permits that.

    Raises InfrastructureError if the program cannot be started, StoppedError after `stop`.
    """
    refuse_after_stop()
    words = [str(word) for word in command]
    variables = PLAIN_ENVIRONMENT if environment is None else environment

    def call(token: str) -> subprocess.Popen[bytes]:
        if spawn is not None and not isinstance(output, int) and (spawned := spawn(words, output.fileno(), token)):
            return spawned
        return CountedProcess(
            words,
            stdin=requests,
            stdout=output,
            stderr=errors or subprocess.STDOUT if output != subprocess.DEVNULL else subprocess.DEVNULL,
            cwd=folder,
            env={**variables, process_tree.MARK: token},
            start_new_session=True,
        )

    with process_tree.steady_addresses() if steady_addresses else contextlib.nullcontext():
        process = _started(words[0], call)
    if _STOPPED.is_set():
        # `stop` was called meanwhile, and may have missed this process.
        kill_group(process)
        raise StoppedError
    return process


def attend(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str],
    folder: Path | None = None,
    requests: IO[bytes] | None = None,
    output: IO[bytes] | int | None = None,
    errors: IO[bytes] | None = None,
    seconds: float | None = None,
) -> int:
    """Give a program the terminal and wait for its end. Returns its exit status, negative for a signal.

    `requests`, `output` and `errors` replace its standard streams. `seconds`: when the program receives SIGALRM, upon
    which it must end soon; None: never. The program stays in the process group of the harness, which is the terminal's,
    so Ctrl-C and Ctrl-Z reach it. The harness ignores Ctrl-C meanwhile. Raises InfrastructureError if it cannot be
    started or does not end at its limit, StoppedError after `stop`.
    """
    refuse_after_stop()
    words = [str(word) for word in command]

    def call(token: str) -> subprocess.Popen[bytes]:
        variables = {**environment, process_tree.MARK: token}
        return CountedProcess(words, env=variables, cwd=folder, stdin=requests, stdout=output, stderr=errors)

    with _terminal_kept(), _without_interrupts():
        process = _started(words[0], call, own_group=False)
        try:
            return _within(process, words[0], seconds)
        finally:
            process.kill()
            process.wait()
            _REGISTRY.release(process.pid)


def _within(process: subprocess.Popen[bytes], name: str, seconds: float | None) -> int:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(seconds)
    process.send_signal(signal.SIGALRM)
    try:
        return process.wait(GRACE_AFTER_LIMIT_SECONDS)
    except subprocess.TimeoutExpired as expired:
        raise InfrastructureError(f"{name} was ended", because=f"it ran longer than {seconds:.0f} s") from expired


GRACE_AFTER_LIMIT_SECONDS = 15.0
"""How long a program has after SIGALRM to end what it started."""


def _started(
    name: str, call: Callable[[str], subprocess.Popen[bytes]], *, own_group: bool = True
) -> subprocess.Popen[bytes]:
    try:
        return _REGISTRY.start(call, own_group=own_group)
    except OSError as error:
        raise InfrastructureError(
            f"cannot start {name}", because=f"{error.strerror}: {error.filename}", remedy="plumb doctor"
        ) from error


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ignore SIGINT by a handler: programs would inherit SIG_IGN."""
    before = signal.signal(signal.SIGINT, lambda _signal, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _terminal_kept() -> Iterator[None]:
    """Restore the terminal's modes, which a program that is killed while it edits a line cannot do."""
    terminal = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    modes = termios.tcgetattr(terminal) if terminal is not None else None
    try:
        yield
    finally:
        if terminal is not None and modes is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(terminal, termios.TCSADRAIN, modes)


class Result:
    """The result of a command that has ended."""

    def __init__(self, command: Sequence[str], code: int, output: bytes, *, expired: bool, seconds: float) -> None:
        self.command = list(command)
        self.code = code
        """The exit status; if negative, minus the number of the signal that ended it."""
        self.output = output
        self.expired = expired
        """Whether the deadline passed and the group was killed."""
        self.seconds = seconds

    @property
    def text(self) -> str:
        """The output as text. Bytes that are not UTF-8 are escaped."""
        return self.output.decode("utf-8", "backslashreplace")


def run(
    command: Sequence[str | Path],
    *,
    deadline_seconds: float,
    log: Path | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    watch: Callable[[], None] | None = None,
    watch_seconds: float | None = None,
    spawn: Spawn | None = None,
    usable: bool = False,
    until: float = math.inf,
    since_output: bool = False,
    steady_addresses: bool = False,
) -> Result:
    """Run a command to its end or to the deadline. The output is returned, and appended to `log` after the command.

    Only the head and the tail of a very long output are kept (harness.core.processes.capped_log). `watch` is called
    every `watch_seconds` (None: WATCH_SECONDS) meanwhile, and an exception of it ends the command. `spawn` and
    `steady_addresses`: as of `start`. `usable`: only the time that the processes could use counts towards the deadline,
    without waits for processors that others occupy. `until`: the time when it ends in any case, as of time.monotonic().
    `since_output`: each output restarts the deadline. The command's output must end, as when it reports each part of
    its task.

    Raises InfrastructureError if the program cannot be started. The caller must judge a non-zero exit status.
    """
    words = [str(word) for word in command]
    started = time.monotonic()
    with _output_file(log) as stream:
        if log is not None:
            stream.write(f"$ {as_utf8(shlex.join(words))}\n".encode())
            stream.flush()
        offset = stream.tell()
        with capped(stream.fileno(), start=offset):
            process = start(
                words,
                output=stream,
                folder=folder,
                environment=environment,
                spawn=spawn,
                steady_addresses=steady_addresses,
            )
            try:
                clock = UsableTime(process.pid).look if usable else _elapsed()
                if since_output:
                    clock = _since_output(clock, stream)
                expired = not _wait(
                    process, clock, deadline_seconds, watch, watch_seconds or WATCH_SECONDS, until=until
                )
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
    remedy_if_late: str = "",
    log: Path | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Result:
    """Run a command that must succeed. Otherwise raise InfrastructureError with `problem` and the reason.

    `remedy_if_late`: the remedy if the deadline passed; empty for the same as for other reasons.
    """
    result = run(command, deadline_seconds=deadline_seconds, log=log, folder=folder, environment=environment)
    if result.expired or result.code != 0:
        # Without a log, only the error keeps the output.
        output = result.text.strip().splitlines()[-5 if log else 0 :]
        late = [f"it did not end within {deadline_seconds:g} s"] if result.expired else []
        raise InfrastructureError(
            problem,
            where=where,
            because="\n".join([*output, *late]),
            log=str(log or ""),
            remedy=(remedy_if_late or remedy) if late else remedy,
        )
    return result


def _elapsed() -> Callable[[], float]:
    began = time.monotonic()
    return lambda: time.monotonic() - began


def _since_output(clock: Callable[[], float], stream: IO[bytes]) -> Callable[[], float]:
    """A clock that restarts whenever the output has grown."""
    began, length = 0.0, -1

    def look() -> float:
        nonlocal began, length
        now, size = clock(), os.fstat(stream.fileno()).st_size
        if size != length:
            began, length = now, size
        return now - began

    return look


def _wait(
    process: subprocess.Popen[bytes],
    clock: Callable[[], float],
    deadline_seconds: float,
    watch: Callable[[], None] | None,
    watch_seconds: float,
    *,
    until: float,
) -> bool:
    """Whether the process ended before the deadline, according to the clock, and before a time of time.monotonic()."""
    while (left := min(deadline_seconds - clock(), until - time.monotonic())) > 0:
        try:
            # The clock may run slower than real time.
            process.wait(min(left, watch_seconds))
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
