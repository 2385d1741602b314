"""The kernel's view of a running process: how long it had a processor or waited for one, and whether it is stopped.

A deadline that counts only the time that a process could use does not depend on the load of the machine.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from harness.core.processes import process_tree


def waited_seconds(pid: int) -> float:
    """How long a process was ready to run and got no processor: the longest such time among its threads.

    Elapsed time minus this is what an idle machine would have taken. The result is 0 if the kernel does not count it
    (Linux Documentation/scheduler/sched-stats.rst: the second field is the delay in nanoseconds).
    """
    delays = [0.0]
    # The process, or one of its threads, may have ended since it was listed.
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                delays.append(int((path / "schedstat").read_text("utf-8").split()[1]) / 1e9)
    return max(delays)


def sleeps(pid: int) -> dict[int, int]:
    """Thread of a process -> how often it has given up its processor by itself, to wait for something.

    Source: Linux Documentation/filesystems/proc.rst, voluntary_ctxt_switches. Empty for a process that has ended.
    """
    counts = {}
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                text = (path / "status").read_text("utf-8")
                counts[int(path.name)] = int(text.partition("\nvoluntary_ctxt_switches:")[2].split(None, 1)[0])
    return counts


def usable_clock(pid: int) -> float:
    """A clock, in seconds, that stands still while a process waits for a processor: only differences have a meaning.

    `UsableTime` does the same for everything that a process starts, by samples.
    """
    return time.monotonic() - waited_seconds(pid)


def ran_seconds(pid: int) -> float:
    """How long all threads of a living process had a processor, up to this moment. Raises OSError if it has ended.

    The number of the clock is that of clock_getcpuclockid(3) for the process (Linux include/linux/posix-timers.h). The
    figures of a running thread in /proc are up to one tick older.
    """
    of_scheduler = 2
    return time.clock_gettime(~pid << 3 | of_scheduler)


class Stillness:
    """How long a process has done nothing, although it could: it waits for something, or is stopped."""

    LEAST_SHARE = 0.05
    """A smaller share of a processor is nothing: an emulator's own threads look around at times."""

    def __init__(self, pid: int) -> None:
        """`pid`: a process that runs."""
        self._pid = pid
        self._moved = usable_clock(pid)
        self._ran = 0.0

    def look(self) -> float:
        """For how many seconds it has done nothing, up to now."""
        now = usable_clock(self._pid)
        with contextlib.suppress(OSError):
            if (ran := ran_seconds(self._pid)) - self._ran > (now - self._moved) * self.LEAST_SHARE:
                self._moved, self._ran = now, ran
        return now - self._moved


class UsableTime:
    """The time that a process and all its descendants could use: elapsed time without their waits for a processor.

    The descendants are those in the process tree, and the processes of its session. Processes that talk to each other
    take turns waiting, so their waits are added, up to the elapsed time.
    """

    SAMPLE_SECONDS = 2.0
    """The interval between two samples of the processes. A wait since the last sample counts only at the next one."""
    LEAST_SHARE = 0.1
    """The minimal share of elapsed time that counts, so that a deadline is reached on every machine."""

    def __init__(self, leader: int) -> None:
        """`leader`: the process, which leads its own session."""
        self._leader = leader
        self._waited: dict[int, float] = {}
        self._looked = time.monotonic()
        self.seconds = 0.0
        """The usable time since the beginning, as of the last sample."""

    def look(self) -> float:
        """Take a sample of the processes, if it is due, and return the usable time since the beginning."""
        now = time.monotonic()
        elapsed = now - self._looked
        if elapsed < self.SAMPLE_SECONDS:
            return self.seconds
        waited = {pid: waited_seconds(pid) for pid in self._processes()}
        # A process that began after the last sample has waited only since then.
        more = sum(seconds - self._waited.get(pid, 0.0) for pid, seconds in waited.items())
        self.seconds += max(elapsed - more, elapsed * self.LEAST_SHARE)
        self._waited, self._looked = waited, now
        return self.seconds

    def _processes(self) -> set[int]:
        among = process_tree.processes(since=self._leader)
        below = {each.pid for each in process_tree.below(self._leader, among)}
        return {each.pid for each in among.values() if each.pid in below or each.session == self._leader}


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by SIGSTOP (proc(5): state T)."""
    process = process_tree.look_at(pid)
    return process is not None and process.state == "T"
