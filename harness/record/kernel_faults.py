"""A real kernel's reports of misaligned accesses: its counters, a signal's siginfo, lines of its log."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from harness.core.errors import InfrastructureError
from harness.record.cell_events import Counters, TestEvent
from harness.record.fault_log import BUS_ADRALN, signal_name

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.record.cell_events import Event
    from harness.record.fault_log import Fault

_CODES: dict[tuple[int, int], str] = {
    (signal.SIGILL, 1): "ILL_ILLOPC",
    (signal.SIGILL, 2): "ILL_ILLOPN",
    (signal.SIGFPE, 1): "FPE_INTDIV",
    (signal.SIGSEGV, 1): "SEGV_MAPERR",
    (signal.SIGSEGV, 2): "SEGV_ACCERR",
    (signal.SIGBUS, BUS_ADRALN): "BUS_ADRALN",
    (signal.SIGBUS, 2): "BUS_ADRERR",
    (signal.SIGBUS, 3): "BUS_OBJERR",
    (signal.SIGBUS, 0x80): "SI_KERNEL",
}
"""Signal and si_code -> the code's name (Linux include/uapi/asm-generic/siginfo.h)."""


LOG = "kernel.log"
"""The file in a guest's folder with the lines of a board's kernel about the guest's end."""


def log_lines(guest: Path) -> list[str]:
    """What a board's kernel said of a guest's end; empty if nothing."""
    log = guest / LOG
    return log.read_text("utf-8", "replace").splitlines() if log.is_file() else []


def read_counters(text: str) -> Counters:
    """The counters in a text of /proc/cpu/alignment, or a kernel's only counter, of repaired accesses.

    A processor without doubleword accesses has no `DWord` line (Linux arch/arm/mm/alignment.c). Raises
    InfrastructureError if the text has none.
    """
    if re.fullmatch(r"\s*[0-9]{1,20}\s*", text):
        return Counters(user=int(text), skipped=0, half=0, word=0, dword=0, multi=0)
    found = {name.lower(): int(number) for name, number in re.findall(r"^(\w+):\s+([0-9]{1,20})\b", text, re.MULTILINE)}
    missing = {"user", "skipped", "half", "word", "multi"} - found.keys()
    if missing:
        raise InfrastructureError("the kernel's alignment counters cannot be read", because=f"{text!r} lacks {missing}")
    return Counters(**{name: found.get(name, 0) for name in Counters.__struct_fields__})


def counted(recorded: Iterable[Event]) -> Counters | None:
    """The sum of a kernel's counters over all tests; None if no kernel counted anything."""
    totals = dict.fromkeys(Counters.__struct_fields__, 0)
    for event in recorded:
        if not isinstance(event, TestEvent):
            continue
        before, after = event.counters_before, event.counters_after
        # The counters restart at zero with the machine.
        if before is not None and after is not None and after.user >= before.user:
            for name in totals:
                totals[name] += getattr(after, name) - getattr(before, name)
    return Counters(**totals) if any(totals.values()) else None


def as_reported(fault: Fault) -> str:
    """A fault as the kernel reported it: signal, si_code, si_addr, PC and the lines of the kernel log."""
    name = signal_name(fault.signal)
    code = _CODES.get((fault.signal, fault.code))
    parts = [
        name,
        f"si_code {code} ({fault.code})" if code else f"si_code {fault.code}",
        f"si_addr {fault.address:#x}",
        *([f"misaligned address {fault.misaligned_address:#x}"] if fault.misaligned_address >= 0 else []),
        f"PC {fault.pc:#x}",
    ]
    return "; ".join([", ".join(parts), *fault.kernel_log])
