"""Sightings without a place in the code: bad ends, failed tests and failed builds."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import symbols
from harness.analysis.crash_reports.assertion_log import UNKNOWN, asserted, reports_crash
from harness.isa import rules
from harness.judge import triggering_command
from harness.judge.sightings.sighting import Sighting, StartedWith, as_name, assertion_title, fields_of, name_of
from harness.record import event_log, fault_log, kernel_faults, program_launch, run_folder
from harness.record.cell_events import NO_PONG

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.record.cell_events import GuestEvent, TestEvent
    from harness.record.run_record import CellRecord, RunRecord

FEWEST_WORDS = 3
"""A message with fewer words is not a title."""
REPAIRED = "alignment-repaired"
"""The kind of accesses that a kernel repaired and counted."""
SHOWN_REQUESTS = 3
"""The number of requests shown of those that reproduce a difference: the last ones."""


def guest_log(guest: Path) -> bytes:
    """A guest's standard output and error; empty if it has no log."""
    log = guest / "log"
    return log.read_bytes() if log.is_file() else b""


def from_end(run: RunRecord, record: CellRecord, guest: Path, event: GuestEvent, test: TestEvent | None) -> Sighting:
    """The sighting of a guest that ended badly, or that did not end when it should have."""
    unasked = test is None and not event.stopping
    starting = event.end == "start-failed" or event.detail == NO_PONG or unasked
    name = name_of(test) or "start"
    subject = "stop" if event.stopping else "start" if event.end == "start-failed" else name
    sighting = _plain(
        record,
        kind="hang" if event.end == "hang" else "crash" if event.end == "signal" else "exit",
        subject=subject,
        title=f"the server {'hung' if event.end == 'hang' else 'ended'} "
        f"{'at' if subject == 'start' else 'in'} {subject}: {event.detail}",
        evidence=str(guest / "log"),
        detector="process",
        test=test,
        guest=guest,
    )
    sighting = msgspec.structs.replace(sighting, detail=event.detail, starting=starting)
    aborted = event.end == "start-failed" and signal.SIGABRT.name in event.detail
    log = guest_log(guest)
    # Its handler may wait for ever, for a lock or a thread that the crash has left as it was.
    stuck = event.end == "hang" and reports_crash(log, event.pid)
    assertion = asserted(log) if event.end == "signal" or aborted or stuck else None
    if assertion is None:
        return sighting
    place = symbols.Symbols(run.triples[record.target], run.binaries.get(record.target, "")).placed(assertion)
    if aborted:
        return msgspec.structs.replace(sighting, frames=[place])
    subject = place.file if place.function == UNKNOWN else place.function
    return msgspec.structs.replace(
        sighting,
        kind="assertion",
        title=assertion_title(subject),
        frames=[place],
        identity=f"assertion-{as_name(subject)}",
        exact_identity="",
    )


def from_child_end(record: CellRecord, guest: Path, number: int, test: TestEvent | None) -> Sighting:
    """The sighting of a server's child process that died of a signal without a fault record, for example by abort()."""
    name = fault_log.signal_name(number)
    return _plain(
        record,
        kind="crash",
        subject=f"child-{name}",
        title=f"a child process of the server was killed by {name}",
        evidence=str(guest / fault_log.NAME),
        detector="process",
        test=test,
        guest=guest,
    )


def from_failure(record: CellRecord, cell: Path, test: TestEvent) -> Sighting:
    """The sighting of a failed test whose guest still runs."""
    subject = name_of(test)
    log = cell / test.guest / "log" if test.upstream and test.guest else None
    sighting = _plain(
        record,
        kind="wrong-result",
        subject=subject,
        title=_title_of_failure(test),
        evidence=str(log if log is not None and log.is_file() else cell / "events.jsonl"),
        detector="suite",
        test=test,
        guest=cell / test.guest if test.guest else None,
    )
    whole = program_launch.read_command(cell)
    command = whole.text if whole is not None else triggering_command.of_failure(test, sighting.transcript)
    launched = cell if whole is not None else None
    sighting = msgspec.structs.replace(
        sighting,
        message=test.message,
        asserted=test.asserted,
        command=command,
        launched=launched,
        everywhere=test.fails_natively,
    )
    if test.again is None:
        return msgspec.structs.replace(sighting, difference=test.difference)
    inputs = cell / (test.again.guest or ".") / run_folder.INPUTS
    given = StartedWith(inputs=inputs, options=test.again.options, preloads=False)
    command = "; ".join(test.again.requests[-SHOWN_REQUESTS:])
    return msgspec.structs.replace(
        sighting, difference=test.difference, again=test.again, started_with=given, transcript=None, command=command
    )


def from_counters(run: RunRecord, record: CellRecord, cell: Path, tests: Iterable[TestEvent]) -> list[Sighting]:
    """The sightings of accesses that a board's kernel repaired during tests, under a policy that has it repair them.

    The kernel counts them and names no instruction. An audit of the emulated target does.
    """
    machine = run.machines[record.target]
    if not machine.emulator.is_board or not rules.policy_for(run.policies, run.policy, machine).fixup:
        return []
    found = []
    for test in tests:
        counts = kernel_faults.counted([test])
        # What the kernel itself misaligns is in the classes, and not here.
        number = counts.user - counts.skipped if counts is not None else 0
        if counts is None or number <= 0:
            continue
        classes = counts.by_class if sum(counts.by_class.values()) == number else {}
        told = f" ({', '.join(f'{count} {name}' for name, count in classes.items())})" if classes else ""
        sighting = _plain(
            record,
            kind=REPAIRED,
            subject=name_of(test),
            title=f"the kernel repaired {number} misaligned accesses{told} in {name_of(test)}",
            evidence=str(cell / event_log.NAME),
            detector="counters",
            test=test,
        )
        found.append(msgspec.structs.replace(sighting, count=number, command=""))
    return found


def _title_of_failure(test: TestEvent) -> str:
    """The problem in the words of the test, with the test's name if the words are not clear without it."""
    line = test.message.splitlines()[0] if test.message else "failed"
    words = re.sub(r"^[\w.]+(?:Error|Exception): ", "", line)
    # The runner of Tcl tests frames a test's number and title.
    words = re.sub(r"^=+ \S+ (.+) FAILED$", r"\1", words)
    alone = (
        len(re.findall(r"[A-Za-z]{2,}", words)) >= FEWEST_WORDS
        and not words.startswith("assert ")
        and not test.upstream
    )
    return words if alone else f"{name_of(test)}: {line}"


def from_failed_build(record: CellRecord, evidence: Path) -> Sighting:
    """The sighting of a server that does not compile for a target."""
    sighting = _plain(
        record,
        kind="build",
        subject="does not compile",
        title=record.problem.splitlines()[0],
        evidence=str(evidence),
        detector="compiler",
    )
    return msgspec.structs.replace(sighting, detail=record.problem)


def _plain(
    record: CellRecord,
    *,
    kind: str,
    subject: str,
    title: str,
    evidence: str,
    detector: str,
    test: TestEvent | None = None,
    guest: Path | None = None,
) -> Sighting:
    """A sighting without a place in the code. `guest` may know more about the test."""
    # Other parameters of a test mean another subject only if they name a unit or a test of the release's own.
    particular = test is None or bool(test.unit or test.upstream) or ".py::" not in subject
    return Sighting(
        kind=kind,
        title=title,
        frames=[],
        instruction="",
        access="",
        direction="",
        target=record.target,
        suite=record.suite,
        command=triggering_command.unanswered(test, []) if test else "(while starting)" if subject == "start" else "",
        evidence=evidence,
        detector=detector,
        identity=_identity(kind, subject if particular else subject.partition("[")[0]),
        exact_identity="" if particular else _identity(kind, subject),
        wrong_line=test.wrong_line if test else "",
        **fields_of(test, guest),
    )


def _identity(kind: str, subject: str) -> str:
    return f"{kind}-{as_name(subject).strip('_')}"
