"""Finds the client request that triggered a finding, from the test's transcript and the functions on the stack.

If several requests are possible, the text names one and says how many there are.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from harness.record import program_launch
from harness.record.transcript import last_request, load, requests

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.analysis.detectors.registry import Report
    from harness.core.finding import Frame
    from harness.record.cell_events import TestEvent
    from harness.record.fault_log import Fault


def of_fault(fault: Fault, guest: Path, test: TestEvent | None, frames: list[Frame]) -> str:
    """The request that a guest served when an instruction faulted or misaligned; empty outside tests.

    Of a program that runs instead of a server: its command line.
    """
    if (launch := program_launch.read_launch(guest)) is not None:
        return launch.text
    if test is None:
        return ""
    return _in_transcript(guest, test, frames) if fault.event == "access" else unanswered(test, frames)


def of_report(report: Report, guest: Path, test: TestEvent | None, tests: list[TestEvent]) -> str:
    """The request that a guest served when its detector reported an error; outside tests, the time of the report."""
    return _in_transcript(guest, test, report.frames) if test else _outside_tests(report, guest, tests)


def _in_transcript(guest: Path, test: TestEvent, frames: list[Frame]) -> str:
    """The test's request that may have caused a report. All may have replies, since a report does not end the guest."""
    if test.blocked or not test.transcript:
        return unanswered(test, frames)
    candidates = _on_stack(_requests(guest / test.transcript), frames)
    more = f"  (one of {len(candidates)} that the test sent)" if len(candidates) > 1 else ""
    return candidates[0] + more if candidates else ""


@cache
def _requests(transcript: Path) -> tuple[str, ...]:
    return tuple(requests(load(transcript))) if transcript.is_file() else ()


def _outside_tests(report: Report, guest: Path, tests: list[TestEvent]) -> str:
    here = [test for test in tests if test.guest == guest.name]
    if report.offset < min((test.log_from for test in here), default=report.offset + 1):
        return "(while starting)"
    return "(while stopping)" if report.offset >= max(test.log_to for test in here) else "(between tests)"


def unanswered(test: TestEvent, frames: list[Frame]) -> str:
    """The unanswered request that triggered a fault: one whose command is on the stack, else the first.

    Redis and Valkey both name the function that serves BITPOS `bitposCommand`, and so on.
    """
    if test.blocked:
        return "(while starting)"
    if test.unit:
        return f"({'self-test' if test.program == 'selftests' else 'unit'} {test.unit})"
    if test.asked:
        return test.asked
    candidates = _on_stack(test.unanswered, frames) or list(test.unanswered)
    more = f"  (one of {len(candidates)} in a pipeline)" if len(candidates) > 1 else ""
    return candidates[0] + more if candidates else ""


def of_failure(test: TestEvent, transcript: Path | None) -> str:
    """The request of a failed test that probably has the wrong reply; empty if the test names bytes, or none is likely.

    A test compares a reply soon after it arrived.
    """
    named = unanswered(test, [])
    # A test of the release's own may have had several servers.
    if named or test.difference is not None or test.upstream or transcript is None or not transcript.is_file():
        return named
    return last_request(load(transcript))


def _on_stack(lines: Sequence[str], frames: list[Frame]) -> list[str]:
    functions = {frame.function.lower() for frame in frames}
    return [line for line in lines if f"{line.partition(' ')[0].lower()}command" in functions]
