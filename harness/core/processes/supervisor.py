"""The parent of every `plumb` command: hands signals on, and when the command has ended kills its descendants.

The command's own process can be killed (by hand, or for want of memory), and then nobody would know its orphans: those
that emptied their environment bear no mark either. They become children of this process, which does nothing else. If it
is this one that is killed, the kernel tells the other, which stops everything itself.

It is up before anything else is imported, so that a signal in the first second ends as one later does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, NoReturn

from harness.core.errors import ExitCode
from harness.core.processes import process_tree

if TYPE_CHECKING:
    from collections.abc import Callable

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends a command."""
BEGUN = signal.SIGUSR1
"""With this a command tells its supervisor that it is stopping."""
_AWAITED = {*STOPPING, BEGUN, signal.SIGCHLD}
_FROM_KERNEL = 0x80
"""SI_KERNEL (sigaction(2)): the terminal's, which the command has got as well."""
_ABOVE: list[int] = []
"""In the command's process: its supervisor's number."""
GRACE_SECONDS = 15.0
"""How long a command that was told to stop may take to clean up."""
AGAIN_SECONDS = 0.5
"""A terminal's Ctrl-C may come to both processes, and is one; who asks again after this will not wait."""
KEEPER_SECONDS = 10.0
INTERRUPTED = "interrupted; everything of ours has been stopped"


def supervise(command: Callable[[], NoReturn], *, killed: int | None = None) -> int:
    """Run a command, which does not return, in a process of its own: its exit status, when nothing of it lives.

    `killed` is the status to end with if a signal ended it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    process_tree.adopt_orphans()
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        for number in STOPPING:
            # Until the command has its own: nothing has been started yet.
            signal.signal(number, _end_at_once)
        _ABOVE.append(supervisor)
        process_tree.die_with_parent(signal.SIGTERM, supervisor)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        command()
    status, interrupted = _watch(child)
    _kill_descendants()
    code = _exit_code(status, interrupted=interrupted)
    return killed if killed is not None and os.WIFSIGNALED(status) else code


def _end_at_once(_number: int, _frame: object) -> NoReturn:
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    say(INTERRUPTED)
    os._exit(ExitCode.INTERRUPTED)


def say(text: str) -> None:
    """One line on standard error, if anybody reads it."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())


class _Stop:
    """What is known of a command that was asked to stop."""

    def __init__(self, child: int) -> None:
        self._child = child
        self._since: float | None = None
        self._begun = False

    @property
    def asked(self) -> bool:
        """Whether it was."""
        return self._since is not None

    def patience_seconds(self) -> float | None:
        """How long to wait for its end; None: as long as it takes."""
        return None if self._since is None else max(0.0, self._since + GRACE_SECONDS - time.monotonic())

    def take(self, told: signal.struct_siginfo) -> None:
        """A signal has come: hand it on, or be done with a command that takes too long."""
        now = time.monotonic()
        if told.si_signo == BEGUN:
            self._begun = True
            self._since = self._since or now
        elif self._begun and self._since is not None and now - self._since > AGAIN_SECONDS:
            self.kill()
        elif told.si_code != _FROM_KERNEL:
            os.kill(self._child, told.si_signo)
            # What drives a terminal, as gdb does, has its own use for Ctrl-C, and goes on.
            if told.si_signo != signal.SIGINT:
                self._since = self._since or now

    def kill(self) -> None:
        """End it."""
        os.kill(self._child, signal.SIGKILL)
        self._begun, self._since = True, time.monotonic()


def _watch(child: int) -> tuple[int, bool]:
    """Until the command's process has ended: its status (waitpid(2)), and whether it was asked to end."""
    stop = _Stop(child)
    while True:
        told = _next_signal(stop.patience_seconds())
        if told is None:
            stop.kill()
        elif told.si_signo != signal.SIGCHLD:
            stop.take(told)
        while (ended := _bury()) is not None:
            if ended[0] == child:
                return ended[1], stop.asked


def _next_signal(seconds: float | None) -> signal.struct_siginfo | None:
    return signal.sigwaitinfo(_AWAITED) if seconds is None else signal.sigtimedwait(_AWAITED, seconds)


def tell_begun() -> None:
    """In the command's process: a signal was taken, and it is stopping. Unsupervised, nothing happens."""
    if _ABOVE and os.getppid() == _ABOVE[0]:
        os.kill(_ABOVE[0], BEGUN)


def _bury() -> tuple[int, int] | None:
    """The number and status of a child that has ended; None while there is none."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _kill_descendants() -> None:
    """Kill all below us. Keepers, which remove folders, are given time to end by themselves."""
    deadline = time.monotonic() + KEEPER_SECONDS

    def doomed() -> list[process_tree.Process]:
        while _bury():
            pass
        found = [one for one in process_tree.below(os.getpid(), process_tree.processes()) if one.state not in "ZX"]
        return [one for one in found if process_tree.token_of(one.pid) != process_tree.KEEPER]

    def keepers() -> bool:
        while _bury():
            pass
        return bool(process_tree.below(os.getpid(), process_tree.processes(since=os.getpid())))

    process_tree.kill_until_none(doomed)
    while keepers() and time.monotonic() < deadline:
        time.sleep(process_tree.POLL_SECONDS)
    process_tree.kill(one.pid for one in process_tree.below(os.getpid(), process_tree.processes()))


def _exit_code(status: int, *, interrupted: bool) -> int:
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    if interrupted:
        say(INTERRUPTED)
        return ExitCode.INTERRUPTED
    name = signal.Signals(os.WTERMSIG(status)).name
    if name == "SIGKILL":
        say("error: plumb was killed\n  because: as a rule for want of memory\n  try: fewer --jobs")
        return ExitCode.INFRASTRUCTURE
    say(f"error: a bug in Plumbline: it was ended by {name}\n  try: the same with --debug first: plumb --debug …")
    return ExitCode.HARNESS_BUG
