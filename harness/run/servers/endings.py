"""How a process ended: its exit status, who ended it, and its last words, for the reader."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import msgspec

from harness.analysis.crash_reports import assertion_log
from harness.core.processes.process_tree import FAULTS
from harness.record import fault_log
from harness.record.cell_events import SENT

if TYPE_CHECKING:
    from collections.abc import Collection

    from harness.record.cell_events import End

STOPPED_BY = {0, -signal.SIGTERM, 128 + signal.SIGTERM}
"""Exit statuses of a server that was told to stop: its own, and the signal's."""
RAISED_BY_ITSELF = FAULTS | {signal.SIGALRM, signal.SIGPIPE, signal.SIGXFSZ}
"""The signals by which a server ends through its own fault. All others come from people, programs and limits."""
RAISED_BY_INSTRUCTIONS = {signal.SIGBUS, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP}
"""The signals that only an instruction of a server raises. abort() raises SIGABRT, and where a processor cannot divide
libgcc raises SIGFPE."""
NEVER_ON_HOST = {signal.SIGSYS, signal.SIGTRAP}
"""Those of them that no server raises on the host: there is neither a filter of system calls nor a breakpoint."""
SHOWN_CHARACTERS = 300
_STAMP = re.compile(r"^(?:\d+:\w )?(?:\[\d+\] )?\d+ \w{3} (?:\d{4} )?\d\d:\d\d:\d\d\.\d+ [.\-*#] ")
_COMPLAINT = "*** FATAL"
"""The start of a complaint about the configuration; the lines after it name the error."""
_ASSERTED = re.compile(r"(?:==> )?(Guru Meditation: .+|(?<===> ).+ is not true)")
"""A failed assertion or a panic, in the servers' own words."""


class EndedByAnotherError(AssertionError):
    """A program of a test was ended by a signal that another process sent, so the failure says nothing about it."""


class ServerEnd(msgspec.Struct, frozen=True):
    """How a server ended."""

    how: End
    detail: str = ""
    """The same for the reader."""
    stopping: bool = False
    """Whether it ended in this way after it received the order to stop."""


def sender_of_end(
    code: int,
    log: bytes,
    pid: int,
    *,
    faults: Collection[int] | None = None,
    emulated: bool = False,
    stopping: bool = False,
) -> ServerEnd:
    """As `describe_exit`, with the sender of the signal according to the server's own log and to its emulator's.

    A server that is told to end by SIGTERM or SIGINT says so and exits. SIGKILL has a reason of its own.

    `faults`: the signals that instructions of the process raised, according to its emulator; None if nothing records
    all of them. `emulated`: whether an emulator or another kernel runs it. `stopping`: whether this cell has told it to
    end before, by SIGTERM.
    """
    handler = rb"^(?:%d:signal-handler|\[%d \| signal handler\]) " % (pid, pid)
    told = not stopping and re.search(handler + rb".*Received (SIGTERM|SIGINT) scheduling shutdown", log, re.MULTILINE)
    if told and code == 0:
        return ServerEnd("signal", f"killed by {told[1].decode()}{SENT}")
    ended = describe_exit(code)
    number = -code if code < 0 else code - 128
    never_own = number not in RAISED_BY_ITSELF | {signal.SIGKILL} and not told
    if faults is not None:
        never_own |= number in RAISED_BY_INSTRUCTIONS.difference(faults)
    elif not emulated:
        never_own |= number in NEVER_ON_HOST
    sent = ended.how == "signal" and (never_own or assertion_log.reports_sent_signal(log, pid))
    when = " when it was told to stop" if stopping else ""
    return ServerEnd(ended.how, f"{ended.detail}{when}{SENT if sent else ''}", stopping=stopping)


def last_words(log: str) -> str:
    """The last message of a server that did not start, in one line: its whole complaint, or else its last line.

    A failed assertion counts, and not the report of the crash that follows it.
    """
    lines = [_STAMP.sub("", line).strip() for line in log.splitlines()]
    lines = [line for line in lines if line]
    if failed := [found[1] for line in lines if (found := _ASSERTED.fullmatch(line))]:
        return failed[-1][:SHOWN_CHARACTERS]
    begins = max((number for number, line in enumerate(lines) if line.startswith(_COMPLAINT)), default=len(lines) - 1)
    complaint = " ".join(lines[max(begins, 0) :])
    return complaint if len(complaint) <= SHOWN_CHARACTERS else f"{complaint[: SHOWN_CHARACTERS - 1]}…"


def describe_exit(code: int) -> ServerEnd:
    """How a process ended, from its exit status: a negative one, or one above 128 as in shells, is a signal."""
    number = -code if code < 0 else code - 128
    if code < 0 or number in set(signal.Signals):
        return ServerEnd("signal", f"killed by {fault_log.signal_name(number)}")
    return ServerEnd("exit", f"exit status {code}")
