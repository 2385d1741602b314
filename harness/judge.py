"""Turns a run folder's evidence into findings and verdicts, again at any time. Starts nothing but symbol tools."""

from __future__ import annotations

import re
import shlex
import signal
from typing import TYPE_CHECKING

import msgspec

from harness import codec, events, symbols
from harness.model import Finding, Noun, Verdict, Witness
from harness.store import key_of
from harness.transcript import Chunk, load

if TYPE_CHECKING:
    from pathlib import Path

    from harness.events import CellRecord, Event, Fault, GuestEvent, RunRecord, TestEvent
    from harness.model import Frame

BUS_ADRALN = 1
"""si_code of SIGBUS for a misaligned address (Linux, asm-generic/siginfo.h)."""


class CellVerdict(Noun, frozen=True):
    """A cell's row in the report."""

    target: str
    suite: str
    verdict: str
    seconds: float
    reason: str
    passed: int
    failed: int
    skipped: int


class Judgement(Noun, frozen=True):
    """The run folder's findings.json, and what `check --json` prints."""

    schema: int
    verdict: str
    server: str
    seed: int
    run: str
    policy: str
    optimisation: str
    cells: list[CellVerdict]
    findings: list[Finding]
    remarks: list[str]
    stages: dict[str, float]


class Reproducer(Noun, frozen=True):
    """RUN/reproducers/ID.json: what `plumb replay` needs to show a finding again."""

    finding: str
    kind: str
    function: str
    server: str
    target: str
    policy: str
    optimisation: str
    emulator: str
    chunks: list[Chunk]


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
    count: int = 1
    """How often: under the policy audit one sighting stands for all the times an instruction did it."""


def judge(folder: Path) -> tuple[list[Finding], list[CellVerdict]]:
    """Findings, worst first, and a verdict for every planned cell. Raises UsageError when it is no run folder.

    Reproducers are written beside the evidence. Findings are not yet compared with the known list.
    """
    run = events.read_run(folder)
    sightings: list[Sighting] = []
    cells: list[CellVerdict] = []
    believed: dict[str, bool] = {}
    for record in sorted(run.cells, key=lambda cell: (run.targets.index(cell.target), cell.suite != "canary")):
        recorded = events.read_events(folder / record.target / record.suite / "events.jsonl")
        if record.suite == "canary":
            cell = _judge_canary(record, recorded)
            believed[record.target] = cell.verdict == Verdict.PASS.name
        else:
            seen = _cell_sightings(folder, run, record, recorded)
            sightings += seen
            cell = _judge_cell(record, recorded, seen, trusted=believed.get(record.target, False))
        cells.append(cell)
    findings = [_finding(folder, run, group) for group in _groups(sightings)]
    return findings, cells


def _counts(recorded: list[Event]) -> dict[str, int]:
    tests = [event for event in recorded if isinstance(event, events.TestEvent)]
    return {name: sum(test.outcome == name for test in tests) for name in ("passed", "failed", "skipped")}


def _judge_canary(record: CellRecord, recorded: list[Event]) -> CellVerdict:
    counts = _counts(recorded)
    reason = record.problem
    failed = [e for e in recorded if isinstance(e, events.TestEvent) and e.outcome == "failed"]
    if failed:
        reason = f"{len(failed)} canaries did not behave: " + "; ".join(test.message for test in failed[:3])
    elif not counts["passed"] and not reason:
        reason = "no canary ran"
    return CellVerdict(
        target=record.target,
        suite=record.suite,
        verdict=(Verdict.UNKNOWN if reason else Verdict.PASS).name,
        seconds=record.seconds,
        reason=reason,
        **counts,
    )


def _judge_cell(record: CellRecord, recorded: list[Event], seen: list[Sighting], *, trusted: bool) -> CellVerdict:
    counts = _counts(recorded)
    verdict, reason = Verdict.PASS, ""
    killed = [event for event in recorded if _killed_from_outside(event)]
    if seen:
        verdict = Verdict.FAIL
        reason = f"{len({sighting.identity for sighting in seen})} findings in {counts['failed']} failed tests"
    elif record.problem:
        verdict, reason = Verdict.UNKNOWN, record.problem
    elif killed:
        verdict, reason = Verdict.UNKNOWN, "a guest was killed from outside (out of memory, or by hand)"
    elif counts["failed"]:
        verdict, reason = Verdict.FAIL, f"{counts['failed']} tests failed"
    elif not counts["passed"]:
        verdict, reason = Verdict.UNKNOWN, "no test recorded a result"
    if not trusted:
        verdict = Verdict.UNKNOWN
        reason = "its canaries did not behave" + (f"; {reason}" if reason else "")
    return CellVerdict(
        target=record.target, suite=record.suite, verdict=verdict.name, seconds=record.seconds, reason=reason, **counts
    )


def _cell_sightings(folder: Path, run: RunRecord, record: CellRecord, recorded: list[Event]) -> list[Sighting]:
    """Everything that a cell shows to be wrong."""
    cell = folder / record.target / record.suite
    if record.problem_kind == "build":
        return [
            _plain(
                record,
                kind="build",
                subject="does not compile",
                title=record.problem.splitlines()[0],
                evidence="run.json",
            )
        ]
    tests = [event for event in recorded if isinstance(event, events.TestEvent)]
    guests = [event for event in recorded if isinstance(event, events.GuestEvent)]
    sightings: list[Sighting] = []
    # Nobody in a guest sends it SIGKILL: what failed with it says nothing about the server.
    explained = {event.test for event in guests if _killed_from_outside(event)}
    faulted = {event.name for event in guests if _killed_from_outside(event)}
    for guest in sorted(path for path in cell.glob("guest-*") if path.is_dir()):
        counts = events.read_counts(guest / "faults.jsonl")
        for number, fault in enumerate(events.read_faults(guest / "faults.jsonl")):
            test = next((t for t in tests if t.guest == guest.name and t.fault_from <= number < t.fault_to), None)
            before = events.read_faults(guest / "faults.jsonl")[:number]
            sighting = _from_fault(run, record, guest, fault, test, before)
            sightings.append(msgspec.structs.replace(sighting, count=counts.get(fault.pc, 1)))
            if test:
                explained.add(test.name)
            faulted.add(guest.name)
    for event in guests:
        excused = event.test in explained if event.test else event.name in faulted
        if event.end != "stopped" and not excused:
            owner = next((test for test in tests if test.name == event.test), None)
            sightings.append(_from_end(record, cell, event, owner))
            explained.add(event.test)
    sightings += [_from_failure(record, cell, test) for test in tests if _unexplained(test, explained)]
    return sightings


def _killed_from_outside(event: Event) -> bool:
    return (
        isinstance(event, events.GuestEvent) and event.end in {"signal", "start-failed"} and "SIGKILL" in event.detail
    )


def _unexplained(test: TestEvent, explained: set[str]) -> bool:
    return test.outcome == "failed" and not test.blocked and test.name not in explained


def _from_fault(
    run: RunRecord, record: CellRecord, guest: Path, fault: Fault, test: TestEvent | None, before: list[Fault]
) -> Sighting:
    machine = run.machines[record.target]
    table = symbols.Symbols(run.triples[record.target], run.binaries[record.target])
    frames = table.backtrace(fault, machine)
    instruction = symbols.disassemble(fault, machine)
    name = signal.Signals(fault.signal).name if fault.signal else "access"
    misaligned = fault.event == "access" or (fault.signal == signal.SIGBUS and fault.code == BUS_ADRALN)
    in_handler = any(earlier.pid == fault.pid and earlier.handled for earlier in before)
    kind = "alignment" if misaligned else name.lower()
    if in_handler:
        kind = f"crash-handler-{name.lower()}"
    access = symbols.access_of(fault, instruction, machine) if misaligned else None
    function = frames[0].function
    direction = access.direction if access else ""
    title = f"misaligned {direction} in {function}" if misaligned else f"{name} in {function}"
    if in_handler:
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
        command=_trigger(test, frames) if test else "",
        evidence=f"{record.target}/{record.suite}/{guest.name}/faults.jsonl",
        transcript=guest / test.transcript if test and test.transcript else None,
        identity="-".join(part for part in (kind, function, direction) if part),
    )


def _trigger(test: TestEvent, frames: list[Frame]) -> str:
    """Which of the unanswered requests did it: one whose command is on the stack, else the first.

    Both families call the function that serves BITPOS `bitposCommand`, and so on.
    """
    if test.blocked:
        return "(while starting)"
    on_stack = {frame.function.lower() for frame in frames}
    named = [line for line in test.unanswered if f"{line.partition(' ')[0].lower()}command" in on_stack]
    candidates = named or list(test.unanswered)
    more = f"  (one of {len(candidates)} in a pipeline)" if len(candidates) > 1 else ""
    return candidates[0] + more if candidates else ""


def _from_end(record: CellRecord, cell: Path, event: GuestEvent, test: TestEvent | None) -> Sighting:
    subject = "start" if event.end == "start-failed" or test is None else test.name
    return _plain(
        record,
        kind="hang" if event.end == "hang" else "crash" if event.end == "signal" else "exit",
        subject=subject,
        title=f"the server {'hung' if event.end == 'hang' else 'ended'} in {subject}: {event.detail}",
        evidence=f"{record.target}/{record.suite}/{event.name}/log",
        test=test,
        transcript=cell / event.name / test.transcript if test and test.transcript else None,
    )


def _from_failure(record: CellRecord, cell: Path, test: TestEvent) -> Sighting:
    return _plain(
        record,
        kind="wrong-result",
        subject=test.name,
        title=f"{test.name}: {test.message.splitlines()[0] if test.message else 'failed'}",
        evidence=f"{record.target}/{record.suite}/events.jsonl",
        test=test,
        transcript=cell / test.guest / test.transcript if test.guest and test.transcript else None,
    )


def _plain(
    record: CellRecord,
    *,
    kind: str,
    subject: str,
    title: str,
    evidence: str,
    test: TestEvent | None = None,
    transcript: Path | None = None,
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
        transcript=transcript,
        identity=f"{kind}-{re.sub(r'[^A-Za-z0-9_.]+', '_', subject).strip('_')}",
    )


_ORDER = ["alignment", "sigsegv", "sigill", "crash", "exit", "hang", "wrong-result", "build"]


def _groups(sightings: list[Sighting]) -> list[list[Sighting]]:
    """Sightings of one misbehaviour together, worst kind first, then those on most targets."""
    by_identity: dict[str, list[Sighting]] = {}
    for sighting in sightings:
        by_identity.setdefault(sighting.identity, []).append(sighting)

    def rank(group: list[Sighting]) -> tuple[int, int, str]:
        kind = group[0].kind
        severity = _ORDER.index(kind) if kind in _ORDER else len(_ORDER)
        return severity, -len({one.target for one in group}), group[0].identity

    return sorted(by_identity.values(), key=rank)


def _finding(folder: Path, run: RunRecord, group: list[Sighting]) -> Finding:
    best = min(group, key=_reproducer_rank)
    place = best.frames[0] if best.frames else None
    reproducer = _write_reproducer(folder, run, best)
    witnesses = []
    shown: set[tuple[str, str, str, int, str]] = set()
    for one in group:
        top = one.frames[0] if one.frames else None
        file, line = (top.file, top.line) if top else ("", 0)
        site = (one.target, one.suite, file, line, one.instruction)
        if site in shown:
            continue
        shown.add(site)
        witnesses.append(
            Witness(
                target=one.target,
                suite=one.suite,
                file=file,
                line=line,
                instruction=one.instruction,
                access=one.access,
                test=one.test,
                evidence=one.evidence,
                backtrace=one.frames,
            )
        )
    return Finding(
        id=best.identity,
        kind=best.kind,
        title=best.title,
        function=place.function if place else "",
        file=place.file if place else "",
        line=place.line if place else 0,
        instruction=best.instruction,
        access=best.access,
        origin=place.origin if place else "unknown",
        targets=list(dict.fromkeys(sighting.target for sighting in group)),
        command=best.command,
        replay=reproducer,
        known="",
        witnesses=witnesses,
        occurrences=sum(one.count for one in group),
    )


def _reproducer_rank(sighting: Sighting) -> tuple[bool, int]:
    """The shortest transcript makes the best reproducer; none at all is right only where nobody has one."""
    path = sighting.transcript
    return (False, path.stat().st_size) if path is not None and path.is_file() else (True, 0)


def _file_name(identity: str) -> str:
    """An identity as a file's name: C++ functions have slashes in theirs, parametrised tests can be very long."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", identity)
    return plain if plain == identity and len(plain) <= 120 else f"{plain[:100]}-{key_of([identity])[:8]}"


def _write_reproducer(folder: Path, run: RunRecord, best: Sighting) -> str:
    chunks = load(best.transcript) if best.transcript and best.transcript.is_file() else []
    reproducer = Reproducer(
        finding=best.identity,
        kind=best.kind,
        function=best.frames[0].function if best.frames else "",
        server=run.server,
        target=best.target,
        policy=run.policy.value,
        optimisation=run.optimisation,
        emulator=run.emulator,
        chunks=chunks,
    )
    path = folder / "reproducers" / f"{_file_name(best.identity)}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(codec.encode(reproducer))
    return f"plumb replay {shlex.quote(str(path))}"
