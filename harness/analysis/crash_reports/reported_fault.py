"""Makes the record of a fault from a server's own report of its crash and the server's program.

A real machine without our tracer keeps no record. The report names the instruction and the accessed address; the
program has the instruction itself.
"""

from __future__ import annotations

import signal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from harness.analysis import disassembly
from harness.analysis.crash_reports import assertion_log
from harness.analysis.symbol_table import FUNCTION, symbol_rows
from harness.isa import registry
from harness.record.fault_log import BUS_ADRALN, Fault, MapRecord

if TYPE_CHECKING:
    from harness.analysis.crash_reports.assertion_log import FaultPlace

LONGEST_INSTRUCTION = 16
"""Bytes of code that a record has, as in the emulator's."""
_EXECUTABLE = 1
"""PF_X of <elf.h>."""
_PAGE = 0x1000


class _LoadedPart(NamedTuple):
    offset: int
    address: int
    content: bytes
    executable: bool


class _ServerProgram(NamedTuple):
    segments: list[_LoadedPart]
    functions: list[tuple[str, int, int]]
    """Name, value with the bit that tells a processor's state, and size of each function's symbol."""


def reported_fault(log: bytes, pid: int, program: str, machine: str) -> Fault | None:
    """The fault of a process that reports its crash; None if it does not report the place or the address, if that is in
    a library, or if the program is another one.

    `program`: the server's file on this host. `machine`: QEMU's name of an emulator that runs it.
    """
    report, place = assertion_log.crash_report(log, pid), assertion_log.fault_place(log)
    variant = registry.variant(machine)
    if report is None or place is None or report.address is None or variant is None:
        return None
    read = _read(program)
    symbol, address = _linked(read, place)
    code = _code_at(read, address)
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
        maps=_maps(read, program, place.address - address),
    )
    if report.code is None and report.signal == signal.SIGBUS and disassembly.access_of(fault, machine).modulo:
        # Releases before 6.2 do not say which kind of SIGBUS it was.
        return msgspec.structs.replace(fault, code=BUS_ADRALN)
    return fault


@cache
def _read(program: str) -> _ServerProgram:
    """A program's code and functions; nothing of a file that is no object, or is cut."""
    functions: list[tuple[str, int, int]] = []
    try:
        with Path(program).open("rb") as stream:
            elf = ELFFile(stream)
            segments = [
                _LoadedPart(one["p_offset"], one["p_vaddr"], one.data(), bool(one["p_flags"] & _EXECUTABLE))
                for one in elf.iter_segments("PT_LOAD")
            ]
            table = elf.get_section_by_name(".symtab")
            if isinstance(table, SymbolTableSection):
                functions = [
                    (table.stringtable.get_string(row.name), row.value, row.size)
                    for row in symbol_rows(elf, table)
                    if row.kind == FUNCTION
                ]
    except (OSError, ELFError):
        return _ServerProgram([], [])
    return _ServerProgram(segments, functions)


def _linked(program: _ServerProgram, place: FaultPlace) -> tuple[int, int]:
    """The value of the symbol of a place's function, and the place's address in the file; 0 if they are unknown.

    glibc counts from the symbol's value, so that both have a bit of state, or neither (backtrace_symbols(3)).
    """
    if not place.function:
        # The lowest bit of an odd value belongs to the state.
        around = {value for _, value, size in program.functions if value - 1 <= place.offset < value + size}
        return next(iter(around)) if len(around) == 1 else place.offset, place.offset
    values = {value for name, value, _ in program.functions if name == place.function}
    if len(values) != 1:
        return 0, 0
    (value,) = values
    return value, value + place.offset


def _code_at(program: _ServerProgram, address: int) -> bytes:
    for segment in program.segments:
        start = address - segment.address
        if segment.executable and 0 <= start < len(segment.content):
            return segment.content[start : start + LONGEST_INSTRUCTION]
    return b""


def _maps(program: _ServerProgram, path: str, base: int) -> list[MapRecord]:
    """Where the process had the program, whose first byte was at `base` + its address in the file."""
    found = []
    for segment in program.segments:
        slack = segment.address % _PAGE
        start = base + segment.address - slack
        end = start + slack + len(segment.content)
        found.append(MapRecord(start=start, end=end, offset=segment.offset - slack, path=path))
    return found
