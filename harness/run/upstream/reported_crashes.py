"""Sees the crashes of servers whose ends no emulator records, by what they or their detectors print.

The launcher becomes the server, so only the test learns how the server ends. An emulator records that. Where there is
none, or where something killed the server during its report, only the report is left.
"""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from harness.analysis.crash_reports.assertion_log import crash_report, reports_sent_signal
from harness.analysis.detectors.registry import reports
from harness.core.model import Record
from harness.record import fault_log
from harness.run.servers.endings import ServerEnd
from harness.run.upstream.journal import FAILED

if TYPE_CHECKING:
    from harness.run.upstream.journal import UpstreamTest
    from harness.run.upstream.launches import Launch

_STARTING = re.compile(rb"^### Starting test (?P<name>.*) in \S+$", re.MULTILINE)
"""What upstream's tests write to the logs of their servers, since Redis 6.2."""


class ReportedCrash(Record, frozen=True):
    """A crash that a server's log tells of."""

    end: ServerEnd
    test: str
    """The name of the test that ran then, if the log has it."""
    sent: bool = False
    """Whether the server says that a process sent the signal."""


def reported_crash(
    log: bytes, pid: int, detector: str, *, recorded: bool, exits_on_panic: bool = False
) -> ReportedCrash | None:
    """The crash that a server with this number, or its detector, reports in its log; None if there is none.

    `recorded`: whether an emulator records ends, and has none of this server. `exits_on_panic`: whether a failed
    assertion ends the server by exit(), as tests request that expect one.
    """
    report = crash_report(log, pid)
    if report is not None and exits_on_panic and not report.signal:
        report = None
    # Servers may share a log, and their children do.
    fatal = next((one for one in reports(log, detector) if one.fatal and one.pid == pid), None)
    if report is not None and recorded:
        end = ServerEnd("hang", "it began to report a crash, and did not end of it")
        return ReportedCrash(end=end, test=_test_at(log, report.offset))
    if report is not None:
        killed = ServerEnd("signal", f"killed by {fault_log.signal_name(report.signal or signal.SIGABRT)}")
        return ReportedCrash(end=killed, test=_test_at(log, report.offset), sent=reports_sent_signal(log, pid))
    if fatal is not None:
        ended = ServerEnd("signal", f"ended by an error that its detector reports: {fatal.message}")
        return ReportedCrash(end=ended, test=_test_at(log, fatal.offset))
    return None


def where_it_crashed(
    crash: ReportedCrash, launch: Launch, tests: list[tuple[str, UpstreamTest]]
) -> tuple[str, UpstreamTest | None]:
    """The item and the test during which a server crashed.

    Without its name in the log, that is the last one that announced a crash, or else the first that failed, or else the
    last of those that used the server, or that ran when it started.
    """
    using = [(item, test) for item, test in tests if launch.pid in test.servers or _ran_at(test, launch.began_ms)]
    named = [(item, test) for item, test in using if test.name == crash.test]
    announcing = [(item, test) for item, test in using if test.announced]
    failed = [(item, test) for item, test in using if test.reported in {*FAILED, ""}]
    return next(iter([*named[-1:], *announcing[-1:], *failed[:1], *using[-1:]]), ("", None))


def _ran_at(test: UpstreamTest, time_ms: int) -> bool:
    """Whether a test ran at that time. The servers that it started for itself are not among those it was given."""
    return 0 < test.began_ms <= time_ms <= (test.ended_ms or time_ms)


def _test_at(log: bytes, offset: int) -> str:
    begun = list(_STARTING.finditer(log, 0, offset))
    return begun[-1]["name"].decode("utf-8", "replace") if begun else ""
