"""The tree of processes: read from /proc, marked by a token, killed in whatever session they are.

When a process calls setsid and its parent ends, neither its group nor its parent shows its origin. Two things do: a
subreaper becomes the parent of orphans (prctl(2), PR_SET_CHILD_SUBREAPER), and the environment, which processes
inherit, holds a token. Callers decide which processes to kill.

The watchdog and the supervisor use this module and must start at once, so it imports only the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MARK = "PLUMBLINE_PROCESS"
"""The environment variable that marks every process of the harness."""
WATCHDOG = "watchdog"
"""Its value in watchdogs, which end by themselves."""
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ADDR_NO_RANDOMIZE = 0x0040000
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""The signals that end a command."""
FAULTS = frozenset(
    {
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSEGV,
        signal.SIGSYS,
        signal.SIGTRAP,
    }
)
"""The signals that a program's own fault raises."""
KILL_SECONDS = 5.0
"""How long the kernel may take to end a killed process. After that, one that hangs in the kernel is left there."""
POLL_SECONDS = 0.002


class Process(NamedTuple):
    """The fields of /proc/PID/stat that are used here."""

    pid: int
    state: str
    parent: int
    session: int


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, if the kernel supports that."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: signal.Signals, parent: int) -> None:
    """Have the kernel send this process a signal when its parent ends; at once if the parent has ended already."""
    _prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


@contextlib.contextmanager
def steady_addresses() -> Iterator[None]:
    """Make the programs that this thread starts meanwhile use the same addresses every time, if the kernel permits it.

    The kernel stores this for each thread, and a child inherits it from its parent's thread (personality(2)).
    """
    asked = 0xFFFFFFFF
    library = ctypes.CDLL(None)
    before = library.personality(ctypes.c_ulong(asked))
    library.personality(ctypes.c_ulong(before | ADDR_NO_RANDOMIZE))
    try:
        yield
    finally:
        library.personality(ctypes.c_ulong(before))


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def processes(*, since: int = 0) -> dict[int, Process]:
    """All processes of the machine by number. With `since`, only later ones, which is faster."""
    if since and _last_number() < since:
        # The numbers have wrapped around.
        since = 0
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - twice as fast as Path.iterdir
        if name.isdigit() and int(name) >= since and (process := look_at(int(name))):
            found[process.pid] = process
    return found


def look_at(pid: int) -> Process | None:
    """The process with this number; None if there is none."""
    try:
        text = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name before it may contain anything, even parentheses.
    fields = text[text.rindex(b")") + 2 :].split(None, 5)
    return Process(pid, fields[0].decode(), int(fields[1]), int(fields[3]))


def below(root: int, among: dict[int, Process]) -> list[Process]:
    """The descendants of a process, parents first."""
    children: dict[int, list[Process]] = {}
    for process in among.values():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    parents = [root]
    while parents:
        generation = [child for parent in parents for child in children.get(parent, ())]
        found += generation
        parents = [process.pid for process in generation]
    return found


def token_of(pid: int) -> str:
    """The token of a process; empty if it has none, or if its environment may not be read."""
    try:
        environment = _read(f"/proc/{pid}/environ")
    except OSError:
        return ""
    marks = [word for word in environment.split(b"\0") if word.startswith(MARK.encode() + b"=")]
    return marks[0].partition(b"=")[2].decode("ascii", "replace") if marks else ""


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL to each that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def may_kill(pid: int) -> bool:
    """Whether this user may kill a process. A process of `sudo` may not be killed, so its end is not awaited."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass
    return True


def kill_until_none(doomed: Callable[[], list[Process]]) -> None:
    """Kill the processes that `doomed` returns, until it returns none. Dead children of this process are reaped."""
    deadline = time.monotonic() + KILL_SECONDS
    while found := [process for process in doomed() if may_kill(process.pid)]:
        kill(process.pid for process in found if process.state not in "ZX")
        for process in found:
            if process.parent == os.getpid():
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
        if time.monotonic() > deadline:
            return
        time.sleep(POLL_SECONDS)


def _last_number() -> int:
    """The number of the process that was created last (proc_loadavg(5))."""
    try:
        return int(_read("/proc/loadavg").split()[-1])
    except (OSError, ValueError):
        return 0


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)
