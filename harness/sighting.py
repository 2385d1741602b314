"""Evidence of one cell → sightings: every fault, bad end and failed test that is not another one's consequence.

It decides what happened and where; which sightings are one finding, and what verdict follows, is harness.judge's.
"""

from __future__ import annotations

import re
import signal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from harness import alignment, allocator, disassembly, events, kernel_report, symbols
from harness.detector import Report, own_frames, reports
from harness.load import Catalog
from harness.transcript import load, requests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.events import CellRecord, Event, Fault, GuestEvent, RunRecord, TestEvent
    from harness.finding import Again, Difference, Fate, Frame
    from harness.model import AccessClass, Detector, Program


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of evidence, before those of the same site are put together."""

    kind: str
    title: str
    frames: list[Frame]
    instruction: str
    access: str
    direction: str
    target: str
    suite: str
    test: str
    command: str
    evidence: str
    transcript: Path | None
    identity: str
    detector: str
    """`signal`: a fault record. `audit`: a reported access. `ubsan`, `asan`, `valgrind`: a report in the guest's log.
    `process`: how it ended, or that it hung. `suite`: a test that failed. `compiler`."""
    count: int = 1
    """How often: in an audit one sighting stands for all the times an instruction did it."""
    access_class: AccessClass | Literal[""] = ""
    fate: Fate = ""
    unit: str = ""
    """The unit that ran, where no server did."""
    program: Program = "units"
    """Whose unit that is."""
    wrong_line: str = ""
    """What it wrote that is wrong."""
    kernel: str = ""
    """What a real kernel said of it: see harness.finding.Witness."""
    started_with: StartedWith | None = None
    """None where the guest was started as always."""
    difference: Difference | None = None
    again: Again | None = None


class StartedWith(msgspec.Struct, frozen=True, kw_only=True):
    """More than a guest is usually started with."""

    inputs: Path
    """A folder of files that lay in its own."""
    options: tuple[str, ...]


def _started_with(guest: Path, test: TestEvent | None) -> StartedWith | None:
    inputs = guest / events.INPUTS
    return StartedWith(inputs=inputs, options=test.options) if test is not None and inputs.is_dir() else None


def cell_sightings(folder: Path, run: RunRecord, record: CellRecord, recorded: list[Event]) -> list[Sighting]:
    """Everything that a cell shows to be wrong, and the audit that followed it, if one did."""
    return [
        msgspec.structs.replace(one, evidence=str(Path(one.evidence).relative_to(folder)))
        for one in _all_sightings(folder, run, record, recorded)
    ]


def _all_sightings(folder: Path, run: RunRecord, record: CellRecord, recorded: list[Event]) -> list[Sighting]:
    """The same, with evidence as whole paths."""
    if record.problem_kind == "build":
        return [
            _plain(
                record,
                kind="build",
                subject="does not compile",
                title=record.problem.splitlines()[0],
                evidence=str(folder / "run.json"),
                detector="compiler",
            )
        ]
    cell = folder / record.target / record.suite
    sightings = _seen_in(cell, run, record, recorded)
    if record.audit:
        follow_up = cell / events.AUDIT
        sightings += _seen_in(follow_up, run, record, events.read_events(follow_up / "events.jsonl"))
    return sightings


_ALL = "*"
SHOWN_REQUESTS = 3
"""So many of the requests that show a difference again are told: the last ones."""


def _seen_in(cell: Path, run: RunRecord, record: CellRecord, recorded: list[Event]) -> list[Sighting]:
    tests = [event for event in recorded if isinstance(event, events.TestEvent)]
    guests = [event for event in recorded if isinstance(event, events.GuestEvent)]
    sightings: list[Sighting] = []
    # Nobody in a guest sends it SIGKILL: what failed with it says nothing about the server.
    killed = [event for event in guests if killed_from_outside(event)]
    # A test's name with its guest's: examples of one test can have one name. _ALL: whatever its guest was.
    explained = {(event.test, _ALL if event.own else event.name) for event in killed}
    faulted = {event.name for event in killed}
    for guest, where in _guest_folders(cell, record):
        alone = _alone(guest, tests, guests)
        counts = events.read_counts(guest / "faults.jsonl")
        faults = events.read_faults(guest / "faults.jsonl")
        for number, fault in enumerate(faults):
            test = alone or next(
                (t for t in tests if t.guest == guest.name and t.fault_from <= number < t.fault_to), None
            )
            sighting = _from_fault(run, where, guest, fault, test, faults[:number])
            sightings.append(msgspec.structs.replace(sighting, count=counts.get(fault.pc, 1)))
            if test:
                explained.add((test.name, _ALL if alone else guest.name))
            faulted.add(guest.name)
        for report in _reports(guest / "log", run.machines[where.target].emulator.detector):
            test = alone or _test_of(report, guest, tests)
            sightings.append(_from_report(where, guest, report, test, tests))
            if report.fatal:
                explained.update({(test.name, _ALL if alone else guest.name)} if test else set())
                faulted.add(guest.name)
    for event in guests:
        by = {(event.test, event.name), (event.test, _ALL)}
        excused = not explained.isdisjoint(by) if event.test else event.name in faulted
        if event.end != "stopped" and not excused:
            here = [test for test in tests if test.name == event.test]
            same = (test for test in here if test.guest == event.name)
            owner = _alone(_folder_of(event, cell), tests, guests) or next(same, next(iter(here), None))
            where = msgspec.structs.replace(record, target=event.target or record.target)
            sightings.append(_from_end(where, cell, event, owner))
            explained.add((event.test, _ALL if event.own or owner is None else owner.guest))
    sightings += [_from_failure(record, cell, test) for test in tests if _unexplained(test, explained)]
    return sightings


def _guest_folders(cell: Path, record: CellRecord) -> list[tuple[Path, CellRecord]]:
    """The cell's guests, and those that its tests started elsewhere: each with a record that names its own target."""
    own = [(path, record) for path in sorted(cell.glob("guest-*")) if path.is_dir()]
    peers = sorted(cell.glob(f"{events.PEERS}/*/guest-*"))
    return own + [(path, msgspec.structs.replace(record, target=path.parent.name)) for path in peers]


def _folder_of(event: GuestEvent, cell: Path) -> Path:
    return (cell / events.PEERS / event.target if event.target else cell) / event.name


def _alone(guest: Path, tests: list[TestEvent], guests: list[GuestEvent]) -> TestEvent | None:
    """The one test that a guest was started for, as seen from that guest; None where it served several."""
    event = next((one for one in guests if one.own and one.name == guest.name), None)
    test = next((one for one in tests if event is not None and one.name == event.test), None)
    if event is None or test is None:
        return None
    return msgspec.structs.replace(
        test,
        guest=guest.name,
        unanswered=event.unanswered,
        transcript=event.transcript,
        blocked=False,
        options=event.options,
    )


def _reports(log: Path, kind: Detector) -> list[Report]:
    return reports(log.read_bytes(), kind) if kind and log.is_file() else []


def _log(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _test_of(report: Report, guest: Path, tests: list[TestEvent]) -> TestEvent | None:
    """The test during which it was reported: later than it happened only where the detector waits, which none does."""
    return next((t for t in tests if t.guest == guest.name and t.log_from <= report.offset < t.log_to), None)


def killed_from_outside(event: Event) -> bool:
    """Whether a guest's end is SIGKILL: nobody in a guest sends it, so it says nothing about the server."""
    return (
        isinstance(event, events.GuestEvent) and event.end in {"signal", "start-failed"} and "SIGKILL" in event.detail
    )


def _unexplained(test: TestEvent, explained: set[tuple[str, str]]) -> bool:
    by = {(test.name, test.guest), (test.name, _ALL)}
    return test.outcome == "failed" and not test.blocked and explained.isdisjoint(by)


def _from_fault(
    run: RunRecord, record: CellRecord, guest: Path, fault: Fault, test: TestEvent | None, before: list[Fault]
) -> Sighting:
    target = run.machines[record.target]
    machine = target.emulator.qemu
    table = symbols.Symbols(run.triples[record.target], run.binaries[record.target])
    frames = table.backtrace(fault, machine)
    instruction = disassembly.disassemble(fault, machine)
    name = signal.Signals(fault.signal).name if fault.signal else "access"
    misaligned = events.is_misaligned(fault)
    # A handler runs in the thread that faulted; meanwhile other threads go on, and may reach a fault of their own.
    in_handler = any(earlier.tid == fault.tid and earlier.handled for earlier in before)
    beyond = name == "SIGSEGV" and allocator.holds(_log(guest / "log"), fault.address)
    kind = "alignment" if misaligned else "out-of-bounds" if beyond else name.lower()
    if in_handler:
        kind = f"crash-handler-{name.lower()}"
    access = disassembly.access_of(fault, machine) if misaligned else None
    through = ""
    if beyond:
        frames, through = own_frames(frames)
    asserted = asserting_frames(frames) if test is not None and test.program == "selftests" else []
    if asserted:
        frames, kind, instruction = asserted, "assertion", ""
    function = frames[0].function
    direction = access.direction if access else disassembly.direction_of(instruction) if beyond else ""
    title = f"misaligned {direction} in {function}" if misaligned else f"{name} in {function}"
    if beyond:
        what = f"{direction or 'access'} outside a block in {function}"
        title = what + (f", through {through}" if through else "")
    if asserted:
        title = f"assertion failed in {function}"
    elif in_handler:
        title = f"{name} in {function} while the crash handler ran"
    return Sighting(
        kind=kind,
        title=title,
        frames=frames,
        instruction=instruction,
        access=str(access) if access else "",
        direction=direction,
        target=record.target,
        suite=record.suite,
        test=test.name if test else "",
        command=_command(fault, guest, test, frames) if test else "",
        evidence=str(guest / "faults.jsonl"),
        transcript=guest / test.transcript if test and test.transcript else None,
        identity="-".join(part for part in (kind, function, direction) if part),
        detector="audit" if fault.event == "access" else "signal",
        access_class=access.access_class if access else "",
        fate=alignment.fate(target, Catalog().policies, access) if access else "",
        unit=test.unit if test else "",
        program=test.program if test else "units",
        kernel=kernel_report.told(fault) if target.emulator.kind == "system" else "",
        started_with=_started_with(guest, test),
    )


def asserting_frames(frames: list[Frame]) -> list[Frame]:
    """The stack from the function on that asserted what does not hold; none where no assertion did it.

    A self-test's assertion dies in the server's log, which is not set up yet: that is not the place to look at.
    """
    names = [frame.function for frame in frames]
    at = next((names.index(name) for name in _ASSERTIONS if name in names), len(names))
    return frames[at + 1 :]


_ASSERTIONS = ("_serverAssert", "_redisAssert")


def _command(fault: Fault, guest: Path, test: TestEvent, frames: list[Frame]) -> str:
    return _asked(guest, test, frames) if fault.event == "access" else _trigger(test, frames)


def _from_report(
    record: CellRecord, guest: Path, report: Report, test: TestEvent | None, tests: list[TestEvent]
) -> Sighting:
    function = report.frames[0].function
    title = f"misaligned {report.direction or 'member access'}" if report.kind == "alignment" else report.message
    return Sighting(
        kind=report.kind,
        title=f"{title} in {function}" + (f", through {report.through}" if report.through else ""),
        frames=report.frames,
        instruction="",
        access=report.access,
        direction=report.direction,
        target=record.target,
        suite=record.suite,
        test=test.name if test else "",
        command=_asked(guest, test, report.frames) if test else _outside_tests(report, guest, tests),
        evidence=str(guest / "log"),
        transcript=guest / test.transcript if test and test.transcript else None,
        identity=report.identity,
        detector=report.detector,
        unit=test.unit if test else "",
        program=test.program if test else "units",
        started_with=_started_with(guest, test),
    )


def _asked(guest: Path, test: TestEvent, frames: list[Frame]) -> str:
    """Which of the test's requests it may have been. All may have been answered: a report stops nobody."""
    if test.blocked or not test.transcript:
        return _trigger(test, frames)
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


def _trigger(test: TestEvent, frames: list[Frame]) -> str:
    """Which of the unanswered requests did it: one whose command is on the stack, else the first.

    Both families call the function that serves BITPOS `bitposCommand`, and so on.
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


def _on_stack(lines: Sequence[str], frames: list[Frame]) -> list[str]:
    functions = {frame.function.lower() for frame in frames}
    return [line for line in lines if f"{line.partition(' ')[0].lower()}command" in functions]


def _from_end(record: CellRecord, cell: Path, event: GuestEvent, test: TestEvent | None) -> Sighting:
    guest = _folder_of(event, cell)
    subject = "start" if event.end == "start-failed" or test is None else test.name
    return _plain(
        record,
        kind="hang" if event.end == "hang" else "crash" if event.end == "signal" else "exit",
        subject=subject,
        title=f"the server {'hung' if event.end == 'hang' else 'ended'} in {subject}: {event.detail}",
        evidence=str(guest / "log"),
        detector="process",
        test=test,
        transcript=guest / test.transcript if test and test.transcript else None,
        started_with=_started_with(guest, test),
    )


def _from_failure(record: CellRecord, cell: Path, test: TestEvent) -> Sighting:
    sighting = _plain(
        record,
        kind="wrong-result",
        subject=test.name,
        title=f"{test.name}: {test.message.splitlines()[0] if test.message else 'failed'}",
        evidence=str(cell / "events.jsonl"),
        detector="suite",
        test=test,
        transcript=cell / test.guest / test.transcript if test.guest and test.transcript else None,
        started_with=_started_with(cell / test.guest, test) if test.guest else None,
    )
    if test.again is None:
        return msgspec.structs.replace(sighting, difference=test.difference)
    given = StartedWith(inputs=cell / (test.again.guest or ".") / events.INPUTS, options=test.again.options)
    command = "; ".join(test.again.requests[-SHOWN_REQUESTS:])
    return msgspec.structs.replace(
        sighting, difference=test.difference, again=test.again, started_with=given, transcript=None, command=command
    )


def _plain(
    record: CellRecord,
    *,
    kind: str,
    subject: str,
    title: str,
    evidence: str,
    detector: str,
    test: TestEvent | None = None,
    transcript: Path | None = None,
    started_with: StartedWith | None = None,
) -> Sighting:
    """A sighting without a place in the code."""
    return Sighting(
        kind=kind,
        title=title,
        frames=[],
        instruction="",
        access="",
        direction="",
        target=record.target,
        suite=record.suite,
        test=test.name if test else "",
        command=_trigger(test, []) if test else "(while starting)" if subject == "start" else "",
        evidence=evidence,
        detector=detector,
        transcript=transcript,
        started_with=started_with,
        identity=f"{kind}-{re.sub(r'[^A-Za-z0-9_.]+', '_', subject).strip('_')}",
        unit=test.unit if test else "",
        program=test.program if test else "units",
        wrong_line=test.wrong_line if test else "",
    )
