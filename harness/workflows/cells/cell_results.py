"""What the logs in a cell's folder say of its tests and servers, before anything is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.judge.opinions.second_opinion import plain
from harness.record import cell_events, event_log, fault_log, run_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path


def failed_tests(folder: Path) -> list[str]:
    """The names of a cell's failed tests that ran. Those of its audit count, too: a server that cannot start otherwise
    runs its tests only there.
    """
    logs = [folder / event_log.NAME, folder / run_folder.AUDIT / event_log.NAME]
    names = (
        event.name
        for log in logs
        for event in tests_in(log)
        if event.outcome == "failed" and not (event.blocked or event.blocked_by or event.blockers)
    )
    return list(dict.fromkeys(names))


def unlike_host(cell: Path, target: str, host_logs: Sequence[Path]) -> set[str]:
    """The names of a cell's failed tests that alone do not fail on the host, or not in the same words. `host_logs`: the
    events of their runs there.
    """
    said = {(event.name, plain(event.message, target)) for log in host_logs for event in tests_in(log)}
    failed = (event for event in tests_in(cell / event_log.NAME) if event.outcome == "failed")
    return {event.name for event in failed if (event.name, plain(event.message, target)) not in said}


def preceded_tests(cell: Path, names: Collection[str]) -> list[str]:
    """The names of the tests that share a server with some failed ones, up to the last of these on each server; none of
    a server that one of them had alone.
    """
    by_guest: dict[str, list[str]] = {}
    for event in tests_in(cell / event_log.NAME):
        if event.guest and event.outcome != "skipped":
            by_guest.setdefault(event.guest, []).append(event.name)
    before: list[str] = []
    for ran in by_guest.values():
        last = max((number for number, name in enumerate(ran) if name in names), default=0)
        before += ran[: last + 1] if last else []
    return list(dict.fromkeys(before))


def none_started(cell: Path) -> bool:
    """Whether a cell's servers died while they started, and no test passed."""
    events = event_log.read(cell / event_log.NAME).events
    ends = {one.end for one in events if isinstance(one, cell_events.GuestEvent) and not (one.oracle or one.target)}
    passed = any(isinstance(one, cell_events.TestEvent) and one.outcome == "passed" for one in events)
    return ends == {"start-failed"} and not passed


def names_server(cell: Path, names: Collection[str]) -> bool:
    """Whether a cell's log names the server of each of these tests."""
    return {event.name for event in tests_in(cell / event_log.NAME) if event.guest}.issuperset(names)


def tests_in(log: Path) -> list[cell_events.TestEvent]:
    """The tests of an event log that have ended, in this order."""
    return [event for event in event_log.read(log).events if isinstance(event, cell_events.TestEvent)]


def died_misaligned(folder: Path) -> bool:
    """Whether a misaligned access raised a signal in one of a cell's guests."""
    logs = [*folder.glob("guest-*/faults.jsonl"), *folder.glob(f"{run_folder.PEERS}/*/guest-*/faults.jsonl")]
    return any(
        fault_log.is_misaligned(fault) and fault.event == "fault"
        for log in logs
        for fault in fault_log.read_faults(log)
    )
