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

from harness import descendants
from harness.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends a command."""
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
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*STOPPING, signal.SIGCHLD})
    descendants.adopt_orphans()
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        for number in STOPPING:
            # Until the command has its own: nothing has been started yet.
            signal.signal(number, _end_at_once)
        descendants.die_with_parent(signal.SIGTERM, supervisor)
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


def _watch(child: int) -> tuple[int, bool]:
    """Until the command's process has ended: its status (waitpid(2)), and whether it was asked to end."""
    asked: float | None = None
    while True:
        patience = None if asked is None else max(0.0, asked + GRACE_SECONDS - time.monotonic())
        told = _next_signal(patience)
        if told is None:
            os.kill(child, signal.SIGKILL)
            asked = time.monotonic()
        elif told in STOPPING:
            if asked is None:
                asked = time.monotonic()
                os.kill(child, told)
            elif time.monotonic() - asked > AGAIN_SECONDS:
                os.kill(child, signal.SIGKILL)
        while (ended := _bury()) is not None:
            if ended[0] == child:
                return ended[1], asked is not None


def _next_signal(seconds: float | None) -> int | None:
    awaited = {*STOPPING, signal.SIGCHLD}
    told = signal.sigwaitinfo(awaited) if seconds is None else signal.sigtimedwait(awaited, seconds)
    return told.si_signo if told else None


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

    def doomed() -> list[descendants.Process]:
        while _bury():
            pass
        found = [one for one in descendants.below(os.getpid(), descendants.processes()) if one.state not in "ZX"]
        return [one for one in found if descendants.token_of(one.pid) != descendants.KEEPER]

    def keepers() -> bool:
        while _bury():
            pass
        return bool(descendants.below(os.getpid(), descendants.processes(since=os.getpid())))

    descendants.kill_until_none(doomed)
    while keepers() and time.monotonic() < deadline:
        time.sleep(descendants.POLL_SECONDS)
    descendants.kill(one.pid for one in descendants.below(os.getpid(), descendants.processes()))


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
