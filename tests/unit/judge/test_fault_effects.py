"""The effect of a fault on its process: it died, it handled the signal, or it only probed the processor."""

from __future__ import annotations

import signal
from typing import Any

import msgspec
import pytest

from harness.judge import fault_effects
from harness.record import cell_events, fault_log
from tests.support import fakes
from tests.support.fakes import fault

ILLEGAL = fault(number=signal.SIGILL, code=1, access="", access_class="", handled=True)
"""An instruction that the processor lacks, in a process that handles the signal."""


def log(*faults: fault_log.Fault, ended_by: int | None = None, pid: int = fakes.PID) -> fault_log.FaultLog:
    """A fault log. `ended_by`: the signal that ended the process, or 0; None if its end is not recorded."""
    ends = {} if ended_by is None else {pid: fault_log.ProcessEnd(event="end", pid=pid, signal=ended_by, status=0)}
    return fault_log.FaultLog(faults=list(faults), counts={}, ends=ends, damage=[])


def guest(end: cell_events.End = "stopped", *, pid: int = fakes.PID) -> cell_events.GuestEvent:
    return cell_events.GuestEvent(name="guest-1", end=end, detail="", pid=pid)


@pytest.mark.parametrize(
    ("ended_by", "event", "expected"),
    [
        (0, None, True),
        (signal.SIGTERM, None, True),
        # Its handler reported the crash, and raised the signal again.
        (signal.SIGILL, None, False),
        (signal.SIGILL, guest("stopped"), False),
        (None, guest("stopped"), True),
        (None, guest("signal"), False),
        # The end of another process has no meaning for this one.
        (None, guest("stopped", pid=7), False),
        (None, None, False),
    ],
)
def test_an_illegal_instruction_is_a_probe_if_its_process_continued(
    ended_by: int | None, event: cell_events.GuestEvent | None, *, expected: bool
) -> None:
    assert fault_effects.is_question(ILLEGAL, log(ILLEGAL, ended_by=ended_by), event) is expected


@pytest.mark.parametrize(
    "other", [fault(handled=True), fault(number=signal.SIGILL, code=1, access="", access_class="", handled=False)]
)
def test_neither_a_misaligned_access_nor_an_unhandled_signal_is_a_probe(other: fault_log.Fault) -> None:
    assert not fault_effects.is_question(other, log(other, ended_by=0), guest())


def test_a_process_dies_of_a_fault_unless_it_ends_for_another_reason() -> None:
    died = fault()
    assert fault_effects.is_fatal(died, log(died), None)
    assert fault_effects.is_fatal(died, log(died, ended_by=signal.SIGBUS), None)
    assert not fault_effects.is_fatal(died, log(died, ended_by=0), None)
    assert fault_effects.is_fatal(died, log(died), guest("signal"))
    assert fault_effects.is_fatal(died, log(died), guest("signal", pid=0))
    assert not fault_effects.is_fatal(died, log(died), guest("signal", pid=7))
    assert not fault_effects.is_fatal(died, log(died), guest("stopped"))
    assert not fault_effects.is_fatal(fault(event="access"), log(died), guest("signal"))


def test_the_last_record_of_an_instruction_has_the_repetitions_that_were_only_counted() -> None:
    once, twice = fault(pc=0x1000), fault(pc=0x2000)
    counted = msgspec.structs.replace(log(once, twice, twice), counts={(fakes.PID, 0x2000): 5})
    assert fault_effects.times_of_records(counted) == [1, 1, 4]


@pytest.mark.parametrize(
    ("end", "detail", "expected"),
    [
        ("signal", "killed by SIGKILL", True),
        ("start-failed", "killed by SIGKILL", True),
        ("hang", cell_events.STOPPED, True),
        ("hang", cell_events.NO_PONG, False),
        ("signal", "killed by SIGSEGV", False),
        ("exit", "killed by SIGKILL", False),
        ("exit", cell_events.STOPPED, False),
    ],
)
def test_only_sigkill_and_sigstop_come_from_outside(end: cell_events.End, detail: str, *, expected: bool) -> None:
    event = cell_events.GuestEvent(name="guest-1", end=end, detail=detail, pid=fakes.PID)
    assert fault_effects.killed_from_outside(event) is expected


@pytest.mark.parametrize(
    ("event", "test", "expected"),
    [
        ({"test": "an earlier one"}, "this one", True),
        ({"test": "an earlier one", "upstream": True}, "this one", False),
        ({"test": "this one"}, "this one", False),
        ({"test": ""}, "this one", False),
        ({"test": "an earlier one", "detail": "killed by SIGBUS"}, "this one", False),
        ({"test": "an earlier one"}, "", False),
        (None, "this one", False),
    ],
    ids=["another", "of the release's own", "the same", "none", "of that signal", "outside of tests", "not recorded"],
)
def test_a_fault_is_survived_if_its_guest_ended_in_another_test_for_another_reason(
    event: dict[str, Any] | None, test: str, *, expected: bool
) -> None:
    """Several tests of the release's own may use one server, so that the test of its end says nothing."""
    ended = msgspec.structs.replace(guest(), **event) if event is not None else None
    ran = cell_events.TestEvent(name=test, outcome="passed", seconds=1.0) if test else None
    assert fault_effects.is_survived(fault(), ended, ran) is expected
