"""The parent of every `plumb` command: forwards signals, and kills the command's descendants when it has ended.

The command's own process can be killed, by hand or for lack of memory. Its orphans would then be unknown, because those
that emptied their environment have no mark. They become children of this process, which does nothing else. If this
process is killed, the kernel signals the command, which then stops everything itself.

The supervisor starts before other imports, so that a signal in the first second has the same effect as a later one.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from typing import TYPE_CHECKING, NoReturn

from harness.core.errors import ExitCode
from harness.core.processes import process_tree
from harness.core.processes.process_tree import FAULTS, STOPPING

if TYPE_CHECKING:
    from collections.abc import Callable

BEGUN = signal.SIGUSR1
"""The signal by which a command tells its supervisor that it is stopping."""
_AWAITED = {*STOPPING, BEGUN, signal.SIGCHLD}
_FROM_KERNEL = 0x80
"""SI_KERNEL (sigaction(2)): the signal is from the terminal, so the command has also received it."""
_ABOVE: list[int] = []
"""In the command's process: the process number of its supervisor."""
GRACE_SECONDS = 15.0
"""How long a command may take to clean up after a signal to stop."""
AGAIN_SECONDS = 0.5
"""One Ctrl-C may reach both processes. A second request after this time means that the user will not wait."""
WATCHDOG_SECONDS = 10.0
"""How long a watchdog may take to remove folders."""
STOPPED = "all processes of this run have been stopped"
INTERRUPTED = f"interrupted; {STOPPED}"


def supervise(command: Callable[[], NoReturn], *, killed: int | None = None, again: Callable[[], str] = str) -> int:
    """Run a command, which does not return, in its own process. Returns its exit status when none of its processes are
    left.

    `killed` is the status to return if a signal ended the command. `again` returns a command line that gives more
    details about such an end; empty if there is none.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    process_tree.adopt_orphans()
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        for number in STOPPING:
            # Until the command installs its own handlers. It has started nothing yet.
            signal.signal(number, _end_at_once)
        _ABOVE.append(supervisor)
        process_tree.die_with_parent(signal.SIGTERM, supervisor)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        command()
    status, interrupted = _watch(child)
    _kill_descendants()
    code = _exit_code(status, again, interrupted=interrupted)
    return killed if killed is not None and os.WIFSIGNALED(status) else code


def _end_at_once(_number: int, _frame: object) -> NoReturn:
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    say(INTERRUPTED)
    os._exit(ExitCode.INTERRUPTED)


def say(text: str) -> None:
    """Write a line to standard error; a closed stream is ignored."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())


class _Stop:
    """How far a command is with ending."""

    def __init__(self, child: int) -> None:
        self._child = child
        self._since: float | None = None
        self._begun = False

    @property
    def requested(self) -> bool:
        """Whether it was asked to stop."""
        return self._since is not None

    def patience_seconds(self) -> float | None:
        """How long to wait for its end; None: without limit."""
        return None if self._since is None else max(0.0, self._since + GRACE_SECONDS - time.monotonic())

    def take(self, received: signal.struct_siginfo) -> None:
        """Forward a signal, or kill a command that takes too long to stop."""
        now = time.monotonic()
        if received.si_signo == BEGUN:
            self._begun = True
            self._since = self._since or now
        elif self._begun and self._since is not None and now - self._since > AGAIN_SECONDS:
            self.kill()
        elif received.si_code != _FROM_KERNEL:
            os.kill(self._child, received.si_signo)
            # A program that controls the terminal, such as gdb, handles Ctrl-C itself and continues.
            if received.si_signo != signal.SIGINT:
                self._since = self._since or now

    def kill(self) -> None:
        """Kill the command."""
        os.kill(self._child, signal.SIGKILL)
        self._begun, self._since = True, time.monotonic()


def _watch(child: int) -> tuple[int, bool]:
    """Wait for the command's process. Returns its status (waitpid(2)) and whether it was asked to stop."""
    stop = _Stop(child)
    while True:
        received = _next_signal(stop.patience_seconds())
        if received is None:
            stop.kill()
        elif received.si_signo != signal.SIGCHLD:
            stop.take(received)
        while (ended := _reap()) is not None:
            if ended[0] == child:
                return ended[1], stop.requested


def _next_signal(seconds: float | None) -> signal.struct_siginfo | None:
    return signal.sigwaitinfo(_AWAITED) if seconds is None else signal.sigtimedwait(_AWAITED, seconds)


def tell_begun() -> None:
    """In the command's process, report that the command is stopping after a signal. Without a supervisor, do
    nothing.
    """
    if _ABOVE and os.getppid() == _ABOVE[0]:
        os.kill(_ABOVE[0], BEGUN)


def _reap() -> tuple[int, int] | None:
    """Reap a child that has ended. Returns its number and status; None if there is none."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _kill_descendants() -> None:
    """Kill all descendants. Watchdogs, which remove folders, get time to end by themselves."""
    deadline = time.monotonic() + WATCHDOG_SECONDS

    def doomed() -> list[process_tree.Process]:
        while _reap():
            pass
        found = [
            process
            for process in process_tree.below(os.getpid(), process_tree.processes())
            if process.state not in "ZX"
        ]
        return [process for process in found if process_tree.token_of(process.pid) != process_tree.WATCHDOG]

    def watchdogs_live() -> bool:
        while _reap():
            pass
        return bool(process_tree.below(os.getpid(), process_tree.processes(since=os.getpid())))

    process_tree.kill_until_none(doomed)
    while watchdogs_live() and time.monotonic() < deadline:
        time.sleep(process_tree.POLL_SECONDS)
    process_tree.kill(process.pid for process in process_tree.below(os.getpid(), process_tree.processes()))


def _exit_code(status: int, again: Callable[[], str], *, interrupted: bool) -> int:
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    if interrupted:
        say(INTERRUPTED)
        return ExitCode.INTERRUPTED
    number = os.WTERMSIG(status)
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if name == "SIGKILL":
        # At a hard limit on processor time the kernel sends the same signal (setrlimit(2)).
        limited = resource.getrlimit(resource.RLIMIT_CPU)[1] != resource.RLIM_INFINITY
        say(
            "error: plumb was killed\n  because: "
            + ("its processor time is limited, or " if limited else "usually ")
            + "the machine ran out of memory\n  try: "
            + ("ulimit -t unlimited, or " if limited else "")
            + "fewer --jobs"
        )
        return ExitCode.INFRASTRUCTURE
    if name == "SIGXCPU":
        say("error: plumb reached a limit on processor time\n  try: ulimit -t unlimited")
        return ExitCode.INFRASTRUCTURE
    if number not in FAULTS:
        say(f"{name} ended plumb; {STOPPED}")
        return ExitCode.INTERRUPTED
    more = again()
    say(f"error: a bug in Plumbline: {name} ended it" + (f"\n  try: {more}" if more else ""))
    return ExitCode.HARNESS_BUG
