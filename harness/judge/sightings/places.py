"""Sightings of a place in the code: a signal, a reported access, or a detector's report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.analysis import disassembly, symbols, unwind
from harness.analysis.crash_reports.assertion_log import asserting_frames, is_in_report
from harness.analysis.detectors.registry import own_frames
from harness.analysis.program_traits.function_name import name_in_id
from harness.analysis.program_traits.program_types import unlike_host
from harness.isa import rules
from harness.judge import triggering_command
from harness.judge.sightings.heap_accesses import heap_address
from harness.judge.sightings.sighting import Sighting, assertion_title, fields_of
from harness.record import fault_log, kernel_faults, program_launch, stored_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.analysis.detectors.registry import Report
    from harness.core.finding import Access, Frame
    from harness.record.cell_events import TestEvent
    from harness.record.fault_log import Fault
    from harness.record.run_record import CellRecord, RunRecord

IN_HANDLER = "crash-handler"
"""Prefix of the kind of a fault that happened while the server reported another fault."""


FORBIDDEN_CALL = "forbidden-call"
"""The kind of a system call that the environment does not allow."""


BEFORE_MAIN = {"_start"}
"""Functions of the C library's that are linked into each program."""


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
    table = symbols_of(run, record, guest)
    frames = table.backtrace(fault, machine)
    instruction = disassembly.disassemble(fault, machine)
    name = fault_log.signal_name(fault.signal) if fault.signal else "access"
    access = disassembly.access_of(fault, machine) if fault_log.is_misaligned(fault) else None
    beyond = name == "SIGSEGV" and any(fault.address in addresses for addresses in guarded)
    through = ""
    if beyond:
        frames, through = own_frames(frames)
    of_assertion = asserting_frames(frames, dies_there=test is None or test.program != "selftests")
    if of_assertion:
        frames = of_assertion
        kind = "assertion"
    else:
        # A unit may be a function of the report.
        reporting = is_in_report(frames) and not (test is not None and test.unit)
        reporting = reporting or _in_handler(fault, before, machine)
        if not beyond and not reporting and frames[0].origin == "libc":
            frames, through = of_caller(frames)
        elif access is None and frames[0].origin == symbols.PROGRAM:
            frames, through = symbols.from_line(frames)
        kind = _kind(fault, name, access, beyond=beyond, reporting=reporting)
    if kind in {"assertion", FORBIDDEN_CALL}:
        instruction = ""
    function = frames[0].function
    address, required = heap_address(fault, access, run.binaries.get(record.target, ""))
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
        command=triggering_command.of_fault(fault, guest, test, frames),
        evidence=str(guest / "faults.jsonl"),
        identity="-".join(part for part in (kind, name_in_id(function), direction) if part),
        detector="audit" if fault.event == "access" else "signal",
        access_class=access.access_class if access else "",
        fate=rules.fate(target, run.policies, access) if access else "",
        kernel=kernel_faults.as_reported(fault) if target.emulator.has_kernel else "",
        launched=guest if (guest / program_launch.LAUNCH).is_file() else None,
        address=address,
        required_bytes=required,
        unlike=unlike_host(table.program.path) if table.program is not None and access is None else "",
        **fields_of(test, guest),
    )


def _kind(fault: Fault, name: str, access: Access | None, *, beyond: bool, reporting: bool) -> str:
    """The kind of a fault that no assertion caused. `beyond`: it is outside of the guard allocator's blocks.
    `reporting`: the server reported another fault, or an assertion.
    """
    if reporting:
        return f"{IN_HANDLER}-{name.lower()}"
    if fault.call_number >= 0:
        return FORBIDDEN_CALL
    if access is not None:
        return "alignment"
    return "out-of-bounds" if beyond else name.lower()


def of_caller(frames: list[Frame]) -> tuple[list[Frame], str]:
    """The frames from the innermost one outside of libraries on, and the library function that it called: a function of
    the C library has many callers. All frames and nothing if the stack shows no such caller: it lacks functions that
    ended by a jump to what they called last.
    """
    callers = (n for n, one in enumerate(frames) if symbols.is_own(one) and one.function not in BEFORE_MAIN)
    first = next(callers, 0)
    return frames[first:], frames[first - 1].function if first else ""


def _in_handler(fault: Fault, before: list[Fault], machine: str) -> bool:
    """Whether a fault happened while the server handled one before it.

    A handler runs in the thread that faulted. Other threads continue meanwhile, and may fault themselves. Once it has
    ended, its own thread continues too.
    """
    return any(
        earlier.tid == fault.tid and earlier.handled and unwind.may_be_in_handler_of(earlier, fault, machine)
        for earlier in before
    )


def symbols_of(run: RunRecord, record: CellRecord, guest: Path) -> symbols.Symbols:
    """The names of the code that a guest ran: the server's, or those of a program that ran instead of one."""
    launch, command = program_launch.read_launch(guest), program_launch.read_command(guest.parent)
    program = None
    if launch is not None and command is not None:
        path = stored_run.own_program(guest, launch.program)
        program = symbols.OwnProgram(path=path, folder=command.folder)
    return symbols.Symbols(run.triples[record.target], run.binaries.get(record.target, ""), program)


def _title(kind: str, name: str, function: str, direction: str, through: str) -> str:
    if kind == FORBIDDEN_CALL:
        return f"the system call {function} is forbidden"
    if kind == "assertion":
        return assertion_title(function)
    if kind.startswith(IN_HANDLER):
        return f"{name} in {function} while the crash handler ran"
    if kind == "out-of-bounds":
        return f"{direction or 'access'} outside a block in {function}" + (f", through {through}" if through else "")
    # A jump has no direction.
    title = f"misaligned {direction or 'address'} in" if kind == "alignment" else f"{name} in"
    return f"{title} {through}, called by {function}" if through else f"{title} {function}"


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
        against=report.against,
        instruction="",
        access=report.access,
        direction=report.direction,
        target=record.target,
        suite=record.suite,
        command=triggering_command.of_report(report, guest, test, tests),
        evidence=str(guest / "log"),
        identity=report.identity,
        detector=report.detector,
        **fields_of(test, guest),
    )
