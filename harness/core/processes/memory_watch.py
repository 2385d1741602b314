"""The memory that this process and its descendants use together: the maximum of all samples.

A page that several processes share counts once: the proportional set size (PSS, proc_pid_smaps(5)) is added up. Reading
it takes the kernel 1 to 8 ms per process. It is therefore read only when the sum of the resident sets, which is cheap
to read, exceeds all earlier ones. A process that lives for less than the interval between two samples may be missed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from harness.core.processes import process_tree

if TYPE_CHECKING:
    from collections.abc import Iterable

INTERVAL_SECONDS = 1.0
NOTABLE_GROWTH = 1.02
"""By how much the resident sets must exceed all earlier ones for the PSS to be read."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Peak(NamedTuple):
    """The largest sample."""

    pss_bytes: int
    processes: int
    by_program: dict[str, int]
    """Program -> PSS in bytes; a name has up to 15 characters."""


class MemoryWatch:
    """Samples in its own thread from `__enter__` to `__exit__`."""

    def __init__(self) -> None:
        self.peak = Peak(0, 0, {})
        self._largest_resident = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        # If the machine allows no more threads, only this figure is lost.
        with contextlib.suppress(RuntimeError):
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, after a last sample."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(INTERVAL_SECONDS):
            self.sample()

    def sample(self) -> None:
        """Take a sample of the processes now."""
        pids = [os.getpid(), *(each.pid for each in process_tree.below(os.getpid(), process_tree.processes()))]
        resident = sum(map(_resident_bytes, pids))
        if resident <= self._largest_resident * NOTABLE_GROWTH:
            return
        self._largest_resident = resident
        found = _by_program(pids)
        if (total := sum(found.values())) > self.peak.pss_bytes:
            self.peak = Peak(total, len(pids), dict(found))


def _by_program(pids: Iterable[int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for pid in pids:
        with contextlib.suppress(OSError):
            found[Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()] += _pss_bytes(pid)
    return found


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _pss_bytes(pid: int) -> int:
    """The proportional set size of a process; 0 if it has ended. Raises OSError for another user's process."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8", "replace").splitlines()
    except (ProcessLookupError, FileNotFoundError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
