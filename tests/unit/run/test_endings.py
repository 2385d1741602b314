"""Who ended a server, according to its exit status and its own log."""

from __future__ import annotations

import signal

import pytest

from harness.record.cell_events import SENT
from harness.run.servers.endings import sender_of_end

PID = 4711
TOLD = b"4711:signal-handler (1700000000) Received SIGTERM scheduling shutdown...\n"
OLD_TOLD = b"[4711 | signal handler] (1700000000) Received SIGTERM scheduling shutdown...\n"
REPORT = b"4711:M 01 Jan 2026 00:00:00.000 # Redis 7.0.15 crashed by signal: 11, si_code: %d\n"


@pytest.mark.parametrize(
    ("code", "log", "how", "detail"),
    [
        (0, b"", "exit", "exit status 0"),
        (1, b"", "exit", "exit status 1"),
        (0, TOLD, "signal", f"killed by SIGTERM{SENT}"),
        (0, TOLD.replace(b"TERM", b"INT"), "signal", f"killed by SIGINT{SENT}"),
        (0, OLD_TOLD, "signal", f"killed by SIGTERM{SENT}"),
        # A child's words are not the server's.
        (0, TOLD.replace(b"4711", b"4712"), "exit", "exit status 0"),
        (-signal.SIGTERM, b"", "signal", f"killed by SIGTERM{SENT}"),
        # A person's, a watching program's, or a limit's. Regression: SIGQUIT was a crash of the server.
        (-signal.SIGQUIT, b"", "signal", f"killed by SIGQUIT{SENT}"),
        (-signal.SIGXCPU, b"", "signal", f"killed by SIGXCPU{SENT}"),
        (128 + signal.SIGUSR1, b"", "signal", f"killed by SIGUSR1{SENT}"),
        (-signal.SIGXFSZ, b"", "signal", "killed by SIGXFSZ"),
        (-signal.SIGSEGV, b"", "signal", "killed by SIGSEGV"),
        (-signal.SIGSEGV, REPORT % 0, "signal", f"killed by SIGSEGV{SENT}"),
        # SEGV_MAPERR, and SI_TKILL: the server's own abort().
        (-signal.SIGSEGV, REPORT % 1, "signal", "killed by SIGSEGV"),
        (-signal.SIGABRT, REPORT % -6, "signal", "killed by SIGABRT"),
        (128 + signal.SIGSEGV, REPORT % 0, "signal", f"killed by SIGSEGV{SENT}"),
        (-signal.SIGKILL, b"", "signal", "killed by SIGKILL"),
    ],
)
def test_what_another_process_sent_is_told_from_the_servers_own_end(
    code: int, log: bytes, how: str, detail: str
) -> None:
    ended = sender_of_end(code, log, PID)
    assert (ended.how, ended.detail) == (how, detail)


@pytest.mark.parametrize(
    ("number", "faults", "sent"),
    [
        # Regression: releases before 6.2 do not name si_code, and no release handles SIGTRAP and SIGSYS.
        (signal.SIGSEGV, set(), True),
        (signal.SIGBUS, {signal.SIGSEGV}, True),
        (signal.SIGTRAP, set(), True),
        (signal.SIGSEGV, {signal.SIGSEGV}, False),
        (signal.SIGTRAP, {signal.SIGTRAP}, False),
        # abort(), and libgcc's division by zero on ARM, without an instruction that faults.
        (signal.SIGABRT, set(), False),
        (signal.SIGFPE, set(), False),
    ],
)
def test_an_emulated_servers_signal_without_a_fault_was_sent(number: int, faults: set[int], *, sent: bool) -> None:
    ended = sender_of_end(-number, b"", PID, faults=faults, emulated=True)
    assert ended.detail.endswith(SENT) == sent


@pytest.mark.parametrize(("emulated", "sent"), [(False, True), (True, False)])
@pytest.mark.parametrize("number", [signal.SIGTRAP, signal.SIGSYS])
def test_no_native_server_raises_traps_but_a_server_whose_faults_nobody_records_may(
    number: int, *, emulated: bool, sent: bool
) -> None:
    assert sender_of_end(-number, b"", PID, emulated=emulated).detail.endswith(SENT) == sent


@pytest.mark.parametrize(
    ("number", "log", "sent"),
    [
        # Regression: a limit that the native build reached while it stopped was a finding.
        (signal.SIGXCPU, TOLD, True),
        (signal.SIGQUIT, TOLD, True),
        (signal.SIGSEGV, TOLD + REPORT % 0, True),
        (signal.SIGSEGV, TOLD + REPORT % 1, False),
        (signal.SIGABRT, TOLD, False),
    ],
)
def test_a_server_that_was_told_to_stop_may_be_ended_by_another_process(number: int, log: bytes, *, sent: bool) -> None:
    ended = sender_of_end(-number, log, PID, stopping=True)
    told = f"killed by {signal.Signals(number).name} when it was told to stop"
    assert (ended.detail, ended.stopping) == (f"{told}{SENT}" if sent else told, True)
