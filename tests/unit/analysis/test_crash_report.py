"""A server's report of its own crash is recognised in its log, which it shares with its children."""

from __future__ import annotations

import pytest

from harness.analysis.crash_reports.assertion_log import CrashReport, crash_report, fault_place, reports_crash
from harness.analysis.crash_reports.reported_fault import reported_fault
from harness.analysis.function_symbols import function_symbols
from harness.record.fault_log import is_misaligned, read_faults
from tests.support import fakes

PID = 4711


@pytest.mark.parametrize(
    "line",
    [
        "4711:M 28 Nov 2026 03:00:00.000 # Redis 7.0.15 crashed by signal: 7, si_code: 1",
        "4711:M 28 Nov 2026 03:00:00.000 # Valkey 8.1.1 crashed by signal: 11, si_code: 1",
        "[4711] 28 Nov 03:00:00.000 #     Redis 2.8.24 crashed by signal: 11",
        "4711:S 28 Nov 03:00:00.000 # === ASSERTION FAILED ===",
        "4711:M 28 Nov 2026 03:00:00.000 # === RECURSIVE ASSERTION FAILED ===",
        "4711:M 28 Nov 2026 03:00:00.000 # Guru Meditation: no such type #object.c:12",
    ],
)
def test_a_message_of_a_dying_server_is_a_report_only_of_its_own_process(line: str) -> None:
    log = f"4711:M 28 Nov 2026 03:00:00.000 * Ready\n\n\n=== REDIS BUG REPORT START\n{line}\n".encode()
    assert reports_crash(log, PID)
    assert not reports_crash(log, 471), "a process with a similar number"
    assert not reports_crash(log.replace(b"4711", b"4712"), PID), "its child"
    report = crash_report(log, PID)
    assert report is not None
    assert log[report.offset :].startswith(line.encode())
    named = next((int(word.rstrip(",")) for word in line.partition("by signal: ")[2].split()[:1]), 0)
    assert report.signal == named
    assert crash_report(log, 471) is None


def test_a_failed_assertion_that_ends_an_old_server_by_a_signal_has_that_signal() -> None:
    head = "4711:M 28 Nov 03:00:00.000 # "
    log = f"{head}=== ASSERTION FAILED ===\n{head}Redis 3.2.6 crashed by signal: 11\n".encode()
    assert crash_report(log, PID) == CrashReport(offset=0, signal=11)


@pytest.mark.parametrize(("printed", "address"), [("0x550843", 0x550843), ("(nil)", 0)])
def test_a_report_names_the_address_and_since_6_2_the_kind_of_the_signal(printed: str, address: int) -> None:
    old = f"4711:M 28 Nov 03:00:00.000 # Redis 3.2.6 crashed by signal: 7\n4711:M # Accessing address: {printed}\n"
    assert crash_report(old.encode(), PID) == CrashReport(0, 7, None, address)
    new = old.replace("signal: 7", "signal: 7, si_code: 1")
    assert crash_report(new.encode(), PID) == CrashReport(0, 7, 1, address)
    assert crash_report(new.replace("4711:M #", "4712:C #").encode(), PID) == CrashReport(0, 7, 1, None), "its child's"


@pytest.mark.parametrize(
    "line",
    [
        "4711:M 28 Nov 2026 03:00:00.000 # Background saving terminated by signal 7",
        "4711:M 28 Nov 2026 03:00:00.000 # User requested shutdown...",
        "4711:M 28 Nov 2026 03:00:00.000 # --- WATCHDOG TIMER EXPIRED ---",
        "Redis 7.0.15 crashed by signal: 7, si_code: 1",
    ],
)
def test_other_messages_are_no_crash_report(line: str) -> None:
    assert not reports_crash(f"{line}\n".encode(), PID)


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("/home/pi/server 127.0.0.1:31036(redisBitpos+0x94)[0x41b4c4]", ("redisBitpos", 0x94, 0x41B4C4)),
        ("/srv/redis-server(+0x5c120)[0x40005c120]", ("", 0x5C120, 0x40005C120)),
        ("/lib/arm-linux-gnueabi/libc.so.6(memcpy+0x10)[0x40812345]", None),
    ],
)
def test_the_instruction_at_fault_is_that_of_the_report(line: str, place: tuple[str, int, int] | None) -> None:
    backtrace = "Backtrace:\n/srv/redis-server(call+0x4)[0x400001]\n"
    found = fault_place(f"------ STACK TRACE ------\nEIP:\n{line}\n\n{backtrace}".encode())
    assert (None if found is None else tuple(found)) == place
    assert fault_place(f"------ STACK TRACE ------\n{backtrace}".encode()) is None


def test_a_report_gives_the_fault_that_the_server_handled() -> None:
    """The program and the emulator's record of the same fault are stored; a server would have written the report."""
    program = str(fakes.DATA / "stacks" / "arm")
    (recorded,) = read_faults(fakes.DATA / "stacks" / "arm.jsonl")
    base = 0x400000
    (start,) = {one.start for one in function_symbols(program).found if one.name == "main"}
    place = f"/srv/redis-server(main+{recorded.pc - base - start:#x})[{recorded.pc:#x}]"
    report = "crashed by signal: 7, si_code: 1\n4711:M 28 Nov # Accessing address: 0x403191\nEIP:\n"
    fault = reported_fault(f"4711:M 28 Nov # Redis 7.0.15 {report}{place}\n".encode(), PID, program, "arm")
    assert fault is not None
    assert fault.handled, "its handler has written the report"
    assert (fault.event, fault.signal, fault.pc, fault.pid) == ("fault", 7, recorded.pc, PID)
    assert recorded.instruction.startswith(fault.instruction[:8])
    assert is_misaligned(fault)
