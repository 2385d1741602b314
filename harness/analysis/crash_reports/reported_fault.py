"""Makes the record of a fault from a server's own report of its crash and the server's program.

A real machine without our tracer keeps no record. The report names the instruction and the accessed address; the
program has the instruction itself.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import disassembly, unwind
from harness.analysis.crash_reports import assertion_log
from harness.analysis.function_symbols import function_symbols
from harness.isa import registry
from harness.record.fault_log import BUS_ADRALN, Fault

if TYPE_CHECKING:
    from harness.analysis.crash_reports.assertion_log import FaultPlace

LONGEST_INSTRUCTION = 16
"""Bytes of code that a record has, as in the emulator's."""


def reported_fault(log: bytes, pid: int, program: str, machine: str) -> Fault | None:
    """The fault of a process that reports its crash; None if it does not report the place or the address, if that is in
    a library, or if the program is another one.

    `program`: the server's file on this host. `machine`: QEMU's name of an emulator that runs it.
    """
    report, place = assertion_log.crash_report(log, pid), assertion_log.fault_place(log)
    variant = registry.variant(machine)
    if report is None or place is None or report.address is None or variant is None:
        return None
    linked = _linked(program, place)
    if linked is None:
        return None
    symbol, address = linked
    code = unwind.read_code(program, address, LONGEST_INSTRUCTION)
    if not code:
        return None
    fault = Fault(
        event="fault",
        pid=pid,
        tid=pid,
        signal=report.signal,
        code=report.code or 0,
        address=report.address,
        access="",
        handled=True,
        pc=place.address,
        instruction=code.hex(),
        registers=variant.state_registers(symbol) if variant.state_registers is not None else [],
        stack_address=0,
        stack="",
        maps=unwind.loaded(program, place.address - address),
    )
    if report.code is None and report.signal == signal.SIGBUS and disassembly.access_of(fault, machine).modulo:
        # Releases before 6.2 do not say which kind of SIGBUS it was.
        return msgspec.structs.replace(fault, code=BUS_ADRALN)
    return fault


def _linked(program: str, place: FaultPlace) -> tuple[int, int] | None:
    """The value of the symbol of a place's function, and the place's address in the file; None if the program has no
    such function, or several.

    glibc counts from the symbol's value, so that both have a bit of state, or neither (backtrace_symbols(3)).
    """
    if not place.function:
        return _symbol_around(program, place.offset), place.offset
    starts = {symbol.start for symbol in function_symbols(program).found if symbol.name == place.function}
    if len(starts) != 1:
        return None
    value = _symbol_around(program, next(iter(starts)))
    return value, value + place.offset


def _symbol_around(program: str, address: int) -> int:
    """The value of the symbol of the function around an address, with a bit of state; the address if there is none."""
    # The symbol of a function at an even address may have the next value.
    bounds = unwind.function_bounds(Path(program), address + 1)
    return bounds[0] if bounds is not None else address
