"""Turns one piece of evidence into a sighting: a fault, a detector's report, a bad end or a failed test.

Reads each piece by itself. harness.judge.causality decides which sightings are consequences of others.
"""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.analysis import disassembly, symbols, unwind
from harness.analysis.assertion_log import UNKNOWN, asserted, asserting_frames
from harness.analysis.detectors.registry import own_frames
from harness.isa import rules
from harness.judge import triggering_command
from harness.record import fault_log, kernel_faults, program_launch, run_folder, stored_run
from harness.record.run_folder import NO_PONG

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.analysis.detectors.registry import Report
    from harness.core.finding import Difference, Fate, Frame, Reproduction
    from harness.core.model import Program
    from harness.core.target_model import AccessClass
    from harness.record.fault_log import Fault
    from harness.record.run_folder import CellRecord, GuestEvent, RunRecord, TestEvent


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of evidence, before sightings of the same site are grouped."""

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
    """`signal`: a fault record. `audit`: a reported access. A detector's name: its report in the guest's log.
    `process`: a guest's bad end or hang. `suite`: a failed test. `compiler`: a failed build."""
    count: int = 1
    """The number of occurrences. In an audit, one sighting stands for every misaligned access by an instruction."""
    access_class: AccessClass | Literal[""] = ""
    fate: Fate = ""
    unit: str = ""
    """The unit that ran instead of a server, or empty."""
    program: Program = "units"
    """The program that contains the unit."""
    wrong_line: str = ""
    """The wrong line of the unit's output."""
    upstream: str = ""
    """The test of the release's own that showed it: `unit/type/string::SETRANGE against non-existing key`."""
    kernel: str = ""
    """A real kernel's report of the fault: see harness.core.finding.Witness."""
    started_with: StartedWith | None = None
    """None if the guest was started in the usual way."""
    detail: str = ""
    """How the guest ended, if the sighting is a bad end; the whole error of a failed build."""
    starting: bool = False
    """Whether the guest ended before it was ready."""
    difference: Difference | None = None
    again: Reproduction | None = None
    message: str = ""
    """The whole message of a failed test. The title has its first line."""
    exact_identity: str = ""
    """The identity with the test's parameters, if the identity has the name of a test without them."""
    launched: Path | None = None
    """The folder of a program that ran instead of a server, or of the cell whose command failed; else None."""
    cell: str = ""
    """The cell of the sighting, `TARGET/SUITE`. A peer's sighting belongs to a cell of another target."""


class StartedWith(msgspec.Struct, frozen=True, kw_only=True):
    """Extra files, options and a shared object that a guest was started with."""

    inputs: Path
    """A folder of files that were copied into the guest's folder."""
    options: tuple[str, ...]
    preloads: bool
    """Whether it preloaded the suite's shared object."""
    tls: bool = False
    """Whether it was compiled with TLS."""


def _started_with(guest: Path, test: TestEvent | None) -> StartedWith | None:
    inputs = guest / run_folder.INPUTS
    if test is None or not (inputs.is_dir() or test.options):
        return None
    return StartedWith(inputs=inputs, options=test.options, preloads=test.preloads, tls=test.tls)


FEWEST_WORDS = 3
"""A message of fewer words is no title."""
SHOWN_REQUESTS = 3
"""The number of requests shown of those that reproduce a difference: the last ones."""


def from_fault(
    run: RunRecord,
    record: CellRecord,
    guest: Path,
    fault: Fault,
    test: TestEvent | None,
    before: list[Fault],
    guarded: Sequence[range],
) -> Sighting:
    """The sighting of a signal or of a reported misaligned access.

    `before`: the guest's earlier faults. `guarded`: the addresses of the guard allocator's blocks.
    """
    target = run.machines[record.target]
    machine = target.emulator.qemu
    frames = symbols_of(run, record, guest).backtrace(fault, machine)
    instruction = disassembly.disassemble(fault, machine)
    name = signal.Signals(fault.signal).name if fault.signal else "access"
    access = disassembly.access_of(fault, machine) if fault_log.is_misaligned(fault) else None
    beyond = name == "SIGSEGV" and any(fault.address in addresses for addresses in guarded)
    through = ""
    if beyond:
        frames, through = own_frames(frames)
    of_assertion = asserting_frames(frames, dies_there=test is None or test.program != "selftests")
    if of_assertion:
        frames, instruction = of_assertion, ""
        kind = "assertion"
    elif any(
        earlier.tid == fault.tid and earlier.handled and unwind.may_be_in_handler_of(earlier, fault, machine)
        for earlier in before
    ):
        # A handler runs in the thread that faulted. Other threads continue meanwhile, and may fault themselves. Once it
        # has ended, its own thread continues too.
        kind = f"{IN_HANDLER}-{name.lower()}"
    elif fault.call_number >= 0:
        kind, instruction = FORBIDDEN_CALL, ""
    else:
        kind = "alignment" if access else "out-of-bounds" if beyond else name.lower()
    function = frames[0].function
    direction = access.direction if access else disassembly.direction_of(instruction) if beyond else ""
    return Sighting(
        kind=kind,
        title=_title(kind, name, function, direction, through),
        frames=frames,
        instruction=instruction,
        access=str(access) if access else "",
        direction=direction,
        target=record.target,
        suite=record.suite,
        test=_name_of(test),
        command=triggering_command.of_fault(fault, guest, test, frames),
        evidence=str(guest / "faults.jsonl"),
        transcript=guest / test.transcript if test and test.transcript else None,
        identity="-".join(part for part in (kind, function, direction) if part),
        detector="audit" if fault.event == "access" else "signal",
        access_class=access.access_class if access else "",
        fate=rules.fate(target, run.policies, access) if access else "",
        unit=test.unit if test else "",
        upstream=test.upstream if test else "",
        program=test.program if test else "units",
        kernel=kernel_faults.as_reported(fault) if target.emulator.has_kernel else "",
        started_with=_started_with(guest, test),
        launched=guest if (guest / program_launch.LAUNCH).is_file() else None,
    )


def symbols_of(run: RunRecord, record: CellRecord, guest: Path) -> symbols.Symbols:
    """The names of the code that a guest ran: the server's, or those of a program that ran instead of one."""
    launch, command = program_launch.read_launch(guest), program_launch.read_command(guest.parent)
    program = None
    if launch is not None and command is not None:
        path = stored_run.own_program(guest, launch.program)
        program = symbols.OwnProgram(path=path, folder=command.folder)
    return symbols.Symbols(run.triples[record.target], run.binaries.get(record.target, ""), program)


IN_HANDLER = "crash-handler"
"""Prefix of the kind of a fault that happened while the server reported another fault."""


FORBIDDEN_CALL = "forbidden-call"
"""The kind of a system call that the environment does not allow."""


def _title(kind: str, name: str, function: str, direction: str, through: str) -> str:
    if kind == FORBIDDEN_CALL:
        return f"the system call {function} is forbidden"
    if kind == "assertion":
        return f"assertion failed in {function}"
    if kind.startswith(IN_HANDLER):
        return f"{name} in {function} while the crash handler ran"
    if kind == "out-of-bounds":
        return f"{direction or 'access'} outside a block in {function}" + (f", through {through}" if through else "")
    # A jump has no direction.
    return f"misaligned {direction or 'address'} in {function}" if kind == "alignment" else f"{name} in {function}"


def guest_log(guest: Path) -> bytes:
    """A guest's standard output and error; empty if it has no log."""
    log = guest / "log"
    return log.read_bytes() if log.is_file() else b""


def from_report(
    record: CellRecord, guest: Path, report: Report, test: TestEvent | None, tests: list[TestEvent]
) -> Sighting:
    """The sighting of a sanitizer's or Valgrind's report, during `test` or between the guest's `tests`."""
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
        test=_name_of(test),
        command=triggering_command.of_report(report, guest, test, tests),
        evidence=str(guest / "log"),
        transcript=guest / test.transcript if test and test.transcript else None,
        identity=report.identity,
        detector=report.detector,
        unit=test.unit if test else "",
        upstream=test.upstream if test else "",
        program=test.program if test else "units",
        started_with=_started_with(guest, test),
    )


def from_end(run: RunRecord, record: CellRecord, guest: Path, event: GuestEvent, test: TestEvent | None) -> Sighting:
    """The sighting of a guest that ended badly, or that did not end when it should have."""
    unasked = test is None and not event.stopping
    starting = event.end == "start-failed" or event.detail == NO_PONG or unasked
    name = _name_of(test) or "start"
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
        transcript=guest / test.transcript if test and test.transcript else None,
        started_with=_started_with(guest, test),
    )
    sighting = msgspec.structs.replace(sighting, detail=event.detail, starting=starting)
    aborted = event.end == "start-failed" and signal.SIGABRT.name in event.detail
    assertion = asserted(guest_log(guest)) if event.end == "signal" or aborted else None
    if assertion is None:
        return sighting
    place = symbols.Symbols(run.triples[record.target], run.binaries[record.target]).placed(assertion)
    if aborted:
        return msgspec.structs.replace(sighting, frames=[place])
    subject = place.file if place.function == UNKNOWN else place.function
    return msgspec.structs.replace(
        sighting,
        kind="assertion",
        title=_title("assertion", "", subject, "", ""),
        frames=[place],
        identity=f"assertion-{_as_name(subject)}",
        exact_identity="",
    )


def from_child_end(record: CellRecord, guest: Path, number: int, test: TestEvent | None) -> Sighting:
    """The sighting of a server's child process that died of a signal without a fault record, for example by abort()."""
    name = signal.Signals(number).name
    return _plain(
        record,
        kind="crash",
        subject=f"child-{name}",
        title=f"a child process of the server was killed by {name}",
        evidence=str(guest / fault_log.NAME),
        detector="process",
        test=test,
        transcript=guest / test.transcript if test and test.transcript else None,
        started_with=_started_with(guest, test),
    )


def from_failure(record: CellRecord, cell: Path, test: TestEvent) -> Sighting:
    """The sighting of a failed test whose guest still runs."""
    subject = _name_of(test)
    log = cell / test.guest / "log" if test.upstream and test.guest else None
    transcript = cell / test.guest / test.transcript if test.guest and test.transcript else None
    sighting = _plain(
        record,
        kind="wrong-result",
        subject=subject,
        title=_title_of_failure(test),
        evidence=str(log if log is not None and log.is_file() else cell / "events.jsonl"),
        detector="suite",
        test=test,
        transcript=transcript,
        started_with=_started_with(cell / test.guest, test) if test.guest else None,
    )
    whole = program_launch.read_command(cell)
    command = whole.text if whole is not None else triggering_command.of_failure(test, transcript)
    launched = cell if whole is not None else None
    sighting = msgspec.structs.replace(sighting, message=test.message, command=command, launched=launched)
    if test.again is None:
        return msgspec.structs.replace(sighting, difference=test.difference)
    inputs = cell / (test.again.guest or ".") / run_folder.INPUTS
    given = StartedWith(inputs=inputs, options=test.again.options, preloads=False)
    command = "; ".join(test.again.requests[-SHOWN_REQUESTS:])
    return msgspec.structs.replace(
        sighting, difference=test.difference, again=test.again, started_with=given, transcript=None, command=command
    )


def _title_of_failure(test: TestEvent) -> str:
    """What is wrong, in the words of the test; with the test's name if the words do not stand alone."""
    line = test.message.splitlines()[0] if test.message else "failed"
    words = re.sub(r"^[\w.]+(?:Error|Exception): ", "", line)
    # The runner of Tcl tests frames a test's number and title.
    words = re.sub(r"^=+ \S+ (.+) FAILED$", r"\1", words)
    alone = (
        len(re.findall(r"[A-Za-z]{2,}", words)) >= FEWEST_WORDS
        and not words.startswith("assert ")
        and not test.upstream
    )
    return words if alone else f"{_name_of(test)}: {line}"


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


def _name_of(test: TestEvent | None) -> str:
    """A test's name as its authors gave it; empty without a test."""
    return (test.upstream or test.name) if test is not None else ""


def from_program_end(record: CellRecord, guest: Path, number: int, test: TestEvent | None) -> Sighting:
    """The sighting of a program that died of a signal without a fault record, for example by abort()."""
    name = signal.Signals(number).name
    launch = program_launch.read_launch(guest)
    program = launch.name if launch is not None else guest.name
    sighting = _plain(
        record,
        kind="crash",
        subject=f"{program}-{name}",
        title=f"{program} was killed by {name}",
        evidence=str(guest / fault_log.NAME),
        detector="process",
        test=test,
    )
    return msgspec.structs.replace(
        sighting,
        identity=f"crash-{_as_name(program)}-{name}",
        detail=f"killed by {name}",
        command=launch.text if launch is not None else "",
        launched=guest,
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
        test=_name_of(test),
        command=triggering_command.unanswered(test, []) if test else "(while starting)" if subject == "start" else "",
        evidence=evidence,
        detector=detector,
        transcript=transcript,
        started_with=started_with,
        identity=_identity(kind, subject if particular else subject.partition("[")[0]),
        exact_identity="" if particular else _identity(kind, subject),
        unit=test.unit if test else "",
        upstream=test.upstream if test else "",
        program=test.program if test else "units",
        wrong_line=test.wrong_line if test else "",
    )


def _identity(kind: str, subject: str) -> str:
    return f"{kind}-{_as_name(subject).strip('_')}"


def _as_name(text: str) -> str:
    """The text with characters that an identity may contain. An identity becomes a file name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", text)
