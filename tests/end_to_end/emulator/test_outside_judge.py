"""Independent judges: a compiler's sanitizer, and the emulator's own test programs for alignment.

Under `strict`, the emulator refuses what -fsanitize=alignment, which knows only C, refuses in the same program. The
compiler decides by a pointer's type, and the emulator by the instruction. If an instruction moves less than the type,
only the compiler sees that the type is misaligned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.build import toolchain
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.core.target_model import ORACLE
from harness.record import fault_log
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.fault_log import FaultLog

pytestmark = pytest.mark.end_to_end

SOURCE = ROOT / "tests" / "support" / "data" / "faults" / "typed.c"
SANITIZER = ["-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"]
CATALOG = machines.CATALOG
BY_WORDS = {name: {"load-dword", "store-dword"} for name in ("mips", "powerpc")}
"""Accesses that 32-bit machines without instructions for 8 bytes make word by word."""


def refused(name: str, folder: Path, flags: list[str]) -> set[tuple[str, int]]:
    """The accesses and offsets that a target refuses under `strict`."""
    target = CATALOG.targets[name]
    program = folder / f"typed-{name}"
    compiler = toolchain.tool(CATALOG.toolchain_of(target), "gcc")
    warnings = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    command = [compiler, str(SOURCE), *target.compiler_flags, "-O0", *warnings, *flags, "-o", str(program)]
    process.run_successfully(command, problem="it does not compile", deadline_seconds=120)
    result = process.run(machines.runner(name, "strict").command(program, []), deadline_seconds=120)
    assert result.code == 0, result.text
    lines = [line.split() for line in result.text.splitlines()]
    assert len(lines) == 10 * 16
    return {(access, int(offset)) for access, offset, outcome in lines if outcome == "refused"}


@pytest.mark.parametrize("name", [*machines.REQUIRED, *map(machines.beyond, ("mips", "powerpc", "riscv64", "s390x"))])
def test_strict_refuses_what_the_sanitizer_refuses(name: str, tmp_path: Path) -> None:
    types = refused(ORACLE, tmp_path, SANITIZER)
    assert len(types) == 2 * (8 + 12 + 14 + 12 + 14)
    by_words = {(access, offset) for access, offset in types if access in BY_WORDS.get(name, ()) and offset % 4 == 0}
    assert refused(name, tmp_path, []) == types - by_words


def ran(source: str, name: str, folder: Path, *flags: str) -> FaultLog:
    """The record of one of the emulator's own test programs, which must succeed on a target.

    Its source is in the archive from which the emulator is built.
    """
    target = CATALOG.targets[name]
    compiler = toolchain.tool(CATALOG.toolchain_of(target), "gcc")
    program = folder / "program"
    command: list[str | Path] = [
        compiler,
        str(machines.emulators_source() / "tests" / "tcg" / source),
        *target.compiler_flags,
        "-O2",
        *flags,
        "-o",
        program,
    ]
    process.run_successfully(command, problem="it does not compile", deadline_seconds=120)
    log = folder / fault_log.NAME
    fault_log.open_ledger(log)
    result = process.run(machines.runner(name).command(program, [], log), deadline_seconds=120, folder=folder)
    assert result.code == 0, result.text
    return fault_log.read(log)


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in machines.REQUIRED if name != "armv5"),  # it uses LDREX
        *map(machines.beyond, ("mips", "powerpc", "riscv64", "s390x")),
    ],
)
def test_the_emulators_own_program_sees_the_signal_code_and_address_of_a_misaligned_access(
    name: str, tmp_path: Path
) -> None:
    log = ran("multiarch/sigbus.c", name, tmp_path)
    # Where the machine permits the load, the program checks the value.
    assert [fault.address % 16 for fault in log.faults] == ([] if name == "s390x" else [15])


@pytest.mark.parametrize(
    ("name", "source"),
    [(name, "arm/pcalign-a32.c") for name in ("armv5", "armv6", "armv7")] + [("aarch64", "aarch64/pcalign-a64.c")],
)
def test_the_emulators_own_program_sees_a_jump_to_a_misaligned_address(name: str, source: str, tmp_path: Path) -> None:
    log = ran(source, name, tmp_path, *(["-marm"] if name != "aarch64" else []))
    assert [(fault.code, fault.address % 4) for fault in log.faults] == [
        (fault_log.BUS_ADRALN, 1 if name == "aarch64" else 2)
    ]
