"""A server's report of its crash, with the server's program, is as good as a record of the fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.analysis.crash_reports.reported_fault import reported_fault
from harness.analysis.disassembly import access_of, disassemble
from harness.analysis.function_symbols import function_symbols
from harness.analysis.symbols import Symbols
from harness.build import toolchain
from harness.core.processes import process
from harness.record.fault_log import is_misaligned
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

PROGRAM = """
__attribute__((noinline)) int shown(int *words)
{
    __asm__ volatile("nop");
    int value = words[1];
    __asm__ volatile("" ::: "memory");
    return value;
}
int main(int argc, char **argv) { return shown((int *)argv); }
"""
WHERE_LOADED = 0x7F0000
PID = 4711


def report(place: str, *, accessed: str = "0x550843", code: str = "") -> bytes:
    head = f"{PID}:M 28 Nov 2026 03:00:00.000 #"
    lines = [
        f"{head} Redis 3.2.6 crashed by signal: 7{code}",
        f"{head} Accessing address: {accessed}",
        "EIP:",
        place,
        "",
    ]
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("target", "flags", "before"), [("armv5", ["-marm"], 4), ("armv7", ["-mthumb"], 2), ("sparc64", [], 8)]
)
@pytest.mark.parametrize("static", [False, True])
def test_the_access_of_a_report_is_that_of_the_instruction_in_the_program(
    tmp_path: Path, target: str, flags: list[str], before: int, *, static: bool
) -> None:
    (tmp_path / "program.c").write_text(PROGRAM, "utf-8")
    program = str(tmp_path / "program")
    tools = machines.toolchain_of(target)
    compiler = toolchain.tool(tools, "gcc")
    words: list[str | Path] = [compiler, "-O1", "-g", "-pie", "-fPIE", *flags, tmp_path / "program.c", "-o", program]
    process.run_successfully(words, deadline_seconds=60, problem="the program does not compile")
    (start,) = {symbol.start for symbol in function_symbols(program).found if symbol.name == "shown"}
    thumb = "-mthumb" in flags
    load = start + before
    # glibc names no static function, and counts from the program's start then (backtrace_symbols(3)). Otherwise it
    # counts from the function's symbol, whose lowest bit is set for Thumb code.
    named = f"+{load:#x}" if static else f"shown+{before - thumb:#x}"
    place = f"/srv/redis-server 127.0.0.1:6379({named})[{WHERE_LOADED + load:#x}]"
    qemu = machines.CATALOG.targets[target].emulator.qemu
    fault = reported_fault(report(place), PID, program, qemu)
    assert fault is not None
    access = access_of(fault, qemu)
    assert (access.direction, access.size_bytes, access.modulo) == ("load", 4, 3), disassemble(fault, qemu)
    assert is_misaligned(fault), "a release before 6.2 does not name the kind of the signal"
    (frame,) = Symbols(tools.triple, program).backtrace(fault, qemu)
    assert (frame.function, frame.line) == ("shown", 5)
    told = reported_fault(report(place, code=", si_code: 2"), PID, program, qemu)
    assert told is not None
    assert not is_misaligned(told), "the release names another kind of SIGBUS"
    if not static:
        assert reported_fault(report(place.replace("shown", "absent")), PID, program, qemu) is None


def test_a_report_of_another_program_or_without_an_address_gives_no_fault(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"\x7fELF of another kind")
    place = "/srv/redis-server 127.0.0.1:6379(shown+0x4)[0x7f0004]"
    assert reported_fault(report(place), PID, str(other), "arm") is None
    assert reported_fault(report(place), PID, str(tmp_path / "absent"), "arm") is None
    silent = report(place).replace(b"Accessing address", b"Address")
    assert reported_fault(silent, PID, str(other), "arm") is None
