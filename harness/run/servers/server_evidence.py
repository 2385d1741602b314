"""What a server leaves while it runs, read as often as a test asks: its log, its faults, its detector's reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.analysis.crash_reports import assertion_log
from harness.analysis.detectors.registry import reports
from harness.core.processes.capped_log import LIMIT_BYTES, last_lines
from harness.record import fault_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.analysis.detectors.registry import Report


class ServerEvidence:
    """The log and the fault log of one server, in its folder."""

    def __init__(self, folder: Path, detector: str) -> None:
        """`detector`: the one that reports into the log; empty for none."""
        self.log = folder / "log"
        self.fault_log = folder / "faults.jsonl"
        self._detector = detector
        self._counted_faults = (0, 0)
        """The length of the fault log when it was read last, and the number of faults in it."""
        self._counted_crashes = (0, 0)
        """Likewise, and the number of its children that crashed."""

    def faults(self) -> int:
        """The number of faults that the emulator has recorded so far."""
        size = _size_bytes(self.fault_log)
        if size != self._counted_faults[0]:
            self._counted_faults = size, fault_log.count_faults(self.fault_log)
        return self._counted_faults[1]

    def has_fault_of(self, pid: int, since: int) -> bool:
        """Whether a fault after the first `since` records was that process's own, and not that of one it forked."""
        return any(f.event == "fault" and f.pid == pid for f in fault_log.read_faults(self.fault_log)[since:])

    def signals_of(self, pid: int) -> set[int]:
        """The signals that instructions of that process raised, according to the emulator."""
        return fault_log.signals_of(self.fault_log, pid)

    def crashed_children(self, first_pid: int) -> int:
        """The number of processes that crashed so far beside the first one, if the emulator records ends."""
        size = _size_bytes(self.fault_log)
        if size != self._counted_crashes[0]:
            self._counted_crashes = size, len(fault_log.crashed_processes(self.fault_log) - {first_pid})
        return self._counted_crashes[1]

    def reports_crash(self, pid: int) -> bool:
        """Whether that process has begun to report its crash in the log. A child that it forked writes there, too."""
        return assertion_log.reports_crash(self.log_content(), pid)

    def log_content(self) -> bytes:
        """The server's log; empty before it starts."""
        return self.log.read_bytes() if self.log.is_file() else b""

    def log_tail(self, lines: int = 5) -> str:
        """The last lines of the server's log."""
        return last_lines(self.log, lines)

    def log_bytes(self) -> int:
        """The present length of its log."""
        return _size_bytes(self.log)

    def reports(self, since: int) -> list[Report]:
        """The reports of its detector in the log from an offset on; empty if the target has no detector."""
        if not self._detector or not self.log.is_file():
            return []
        with self.log.open("rb") as stream:
            # The middle of a longer log may already be gone.
            stream.seek(max(since, self.log_bytes() - LIMIT_BYTES))
            return reports(stream.read(), self._detector)


class FetchedEvidence(ServerEvidence):
    """The evidence of a server in a machine, which must be fetched from the machine first."""

    def __init__(
        self, folder: Path, detector: str, *, await_faults: Callable[[], None], fetch_log: Callable[[], None]
    ) -> None:
        """`await_faults` returns when the fault log has every fault so far, `fetch_log` when the log is here."""
        super().__init__(folder, detector)
        self._await_faults = await_faults
        self._fetch_log = fetch_log

    def faults(self) -> int:
        """The number of faults so far, including those that the machine is still sending.

        Raises InfrastructureError when the machine does not answer.
        """
        self._await_faults()
        return super().faults()

    def log_content(self) -> bytes:
        """The server's log."""
        self._fetch_log()
        return super().log_content()

    def log_tail(self, lines: int = 5) -> str:
        """The last lines of the server's log."""
        self._fetch_log()
        return super().log_tail(lines)


def _size_bytes(path: Path) -> int:
    """The length of a file that only grows; 0 if there is none. Every example asks for some."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
