"""Who descends from whom: found in /proc, marked by a token, killed whatever session it is in.

A process that calls setsid and whose parent ends belongs to nobody: neither its group nor its parent tells where it
came from. Two things do: a subreaper gets orphans for its children (prctl(2), PR_SET_CHILD_SUBREAPER), and the
environment, which they inherit, has a token. It refuses to know who may live: that is its callers' decision.

The keeper and the supervisor use it, which must be up at once: it imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MARK = "PLUMBLINE_PROCESS"
"""The variable with which every process that we start is marked."""
KEEPER = "keeper"
"""The value of keepers, which end by themselves."""
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILL_SECONDS = 5.0
"""How long the kernel may take to end what was killed. Who hangs in the kernel is left to it."""
POLL_SECONDS = 0.002


class Process(NamedTuple):
    """A line of /proc/PID/stat, as much as counts here."""

    pid: int
    state: str
    parent: int
    session: int


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, if the kernel has that."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: signal.Signals, parent: int) -> None:
    """Have the kernel send us a signal when our parent ends; at once if it is gone already."""
    _prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def processes(*, since: int = 0) -> dict[int, Process]:
    """All processes of the machine by number. With `since` those that came after that one, which is quicker."""
    if since and _last_number() < since:
        # They have begun anew since.
        since = 0
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - twice as quick as Path.iterdir
        if name.isdigit() and int(name) >= since and (one := look_at(int(name))):
            found[one.pid] = one
    return found


def look_at(pid: int) -> Process | None:
    """One process; None if there is none of that number."""
    try:
        text = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name before it may hold anything, parentheses too.
    fields = text[text.rindex(b")") + 2 :].split(None, 5)
    return Process(pid, fields[0].decode(), int(fields[1]), int(fields[3]))


def below(root: int, among: dict[int, Process]) -> list[Process]:
    """The descendants of a process, parents first."""
    children: dict[int, list[Process]] = {}
    for one in among.values():
        children.setdefault(one.parent, []).append(one)
    found, new = [], [root]
    while new:
        new_ones = [child for parent in new for child in children.get(parent, ())]
        found += new_ones
        new = [one.pid for one in new_ones]
    return found


def token_of(pid: int) -> str:
    """What a process is marked with; empty without a mark, and where we may not look."""
    try:
        environment = _read(f"/proc/{pid}/environ")
    except OSError:
        return ""
    marks = [word for word in environment.split(b"\0") if word.startswith(MARK.encode() + b"=")]
    return marks[0].partition(b"=")[2].decode("ascii", "replace") if marks else ""


def kill(pids: Iterable[int]) -> None:
    """SIGKILL to each, if it is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def may_kill(pid: int) -> bool:
    """Whether a process is ours to kill: what `sudo` started is not, and nobody should wait for its end."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass
    return True


def kill_until_none(doomed: Callable[[], list[Process]]) -> None:
    """Kill what `doomed` tells, ask again, and go on until it tells nobody; our own dead children are buried."""
    deadline = time.monotonic() + KILL_SECONDS
    while found := [one for one in doomed() if may_kill(one.pid)]:
        kill(one.pid for one in found if one.state not in "ZX")
        for one in found:
            if one.parent == os.getpid():
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(one.pid, os.WNOHANG)
        if time.monotonic() > deadline:
            return
        time.sleep(POLL_SECONDS)


def _last_number() -> int:
    """The number that was given to a process last (proc_loadavg(5))."""
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
