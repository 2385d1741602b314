"""What a recorded fault or signal did to its process, and how often it occurred. Pure: reads no file."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from harness.record import cell_events, fault_log

if TYPE_CHECKING:
    from harness.record.cell_events import Event, GuestEvent, TestEvent
    from harness.record.fault_log import FaultLog


def is_fatal(fault: fault_log.Fault, log: FaultLog, event: GuestEvent | None) -> bool:
    """Whether a guest's first process, or a unit, died of a fault.

    A repaired access kills no process, and the death of a child leaves its parent alive.
    """
    if fault.event != "fault":
        return False
    if event is not None:
        # A process number of 0 is unknown.
        return event.end != "stopped" and event.pid in {0, fault.pid}
    end = log.ends.get(fault.pid)
    return end is None or end.signal != 0


def is_question(fault: fault_log.Fault, log: FaultLog, event: GuestEvent | None) -> bool:
    """Whether a process tried an instruction that its processor may lack, caught the signal, and continued.

    OpenSSL 1.1 probes the cycle counter of ARM in this way (crypto/armcap.c, `_armv7_tick`), for example on Debian
    bullseye.
    """
    if fault.signal != signal.SIGILL or not fault.handled or fault_log.is_misaligned(fault):
        return False
    end = log.ends.get(fault.pid)
    if end is not None:
        return end.signal != signal.SIGILL
    return event is not None and event.pid == fault.pid and event.end != "signal"


def is_survived(fault: fault_log.Fault, event: GuestEvent | None, test: TestEvent | None) -> bool:
    """Whether a guest handled a fault in one test, and ended for another reason in a later one.

    A test that sees a fault waits until the guest has ended. The signal may still end it later.
    """
    if event is None or event.upstream or test is None or event.test in {"", test.name}:
        return False
    return not event.detail.endswith(fault_log.signal_name(fault.signal))


def times_of_records(log: FaultLog) -> list[int]:
    """How often each record's event happened. An instruction's last full record includes the later repetitions."""
    same: dict[tuple[int, int, str], list[int]] = {}
    for number, fault in enumerate(log.faults):
        same.setdefault((fault.pid, fault.pc, fault.event), []).append(number)
    times = [1] * len(log.faults)
    for (pid, pc, _), numbers in same.items():
        times[numbers[-1]] = max(1, log.counts.get((pid, pc), 0) - len(numbers) + 1)
    return times


def from_outside(detail: str) -> str:
    """How such a guest ended, for the reader."""
    return f"{detail.removesuffix(cell_events.SENT)} from outside (out of memory, or by hand)"


def killed_from_outside(event: Event) -> bool:
    """Whether a guest's end comes from outside: SIGKILL ended it or SIGSTOP stopped it, which no process in the guest
    sends, or the server reported that another process sent the signal.
    """
    return isinstance(event, cell_events.GuestEvent) and (
        (event.end in {"signal", "start-failed"} and event.detail.startswith("killed by SIGKILL"))
        or event.detail.endswith(cell_events.SENT)
        or (event.end == "hang" and event.detail == cell_events.STOPPED)
    )
