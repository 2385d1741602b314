"""What the kernel says about a running process: how long it waited for a processor, and whether it is stopped."""

from __future__ import annotations

import contextlib
from pathlib import Path

from harness.core.processes import process_tree


def waited_seconds(pid: int) -> float:
    """How long a process was ready to run and got no processor: the longest such time among its threads.

    Elapsed time minus this is what an idle machine would have taken. The result is 0 if the kernel does not count it
    (Linux Documentation/scheduler/sched-stats.rst: the second field is the delay in nanoseconds).
    """
    delays = [0.0]
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        # A thread may have ended since.
        with contextlib.suppress(OSError):
            delays.append(int(path.read_text().split()[1]) / 1e9)
    return max(delays)


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by SIGSTOP (proc(5): state T)."""
    process = process_tree.look_at(pid)
    return process is not None and process.state == "T"
