"""Misaligned addresses in places other than the canaries' loads and stores: jumps, traps, stacks, kernel helpers."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from harness.analysis import symbols
from harness.build import toolchain
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.record import fault_log
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.fault_log import FaultLog

pytestmark = pytest.mark.end_to_end

SOURCE = ROOT / "tests" / "support" / "data" / "faults" / "beyond.c"
CATALOG = machines.CATALOG
BUS_ADRERR = 2
"""The si_code of an address that does not exist (the kernel's asm-generic/siginfo.h)."""
SEGV_MAPERR = 1
SEGV_ACCERR = 2
"""The si_code of an address that is not mapped, and of one that forbids the access."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the program is compiled, once for each target."""
    return tmp_path_factory.mktemp("beyond")


class Ran:
    """A run of the program on a target, and its log."""

    def __init__(self, programs: Path, folder: Path, target: str, policy: str, *words: str) -> None:
        found = CATALOG.targets[target]
        self.tools = machines.toolchain_of(target)
        self.program = programs / f"beyond-{target}"
        if not self.program.exists():
            flags = [*toolchain.compiler_flags(found, "O2"), "-Wall", "-Wextra", "-Werror", "-g"]
            compiler = toolchain.tool(self.tools, "gcc")
            result = process.run(
                [compiler, str(SOURCE), *flags, "-o", str(self.program)], deadline_seconds=machines.COMPILE_SECONDS
            )
            assert result.code == 0, result.text
        log = folder / fault_log.NAME
        fault_log.open_ledger(log)
        runner = machines.runner(target, policy)
        if words[0] == "rotated":
            words = words[1:]
            runner.options.extend(["-E", "ROTATED=1"])
        result = process.run(runner.command(self.program, words, log), deadline_seconds=120, folder=folder)
        self.code, self.text = result.code, result.text
        self.log: FaultLog = fault_log.read(log)

    @property
    def function(self) -> str:
        """The function of the only fault."""
        (fault,) = self.log.faults
        return symbols.Symbols(self.tools.prefix, str(self.program)).frames(fault.maps, fault.pc)[0].function


def shape(ran: Ran) -> tuple[int, str, int, int]:
    """Signal, class, unit and offset of the only fault."""
    (fault,) = ran.log.faults
    return fault.signal, fault.access_class, fault.access_bytes, fault.address % 64


@pytest.mark.parametrize(
    "target", ["armv5", "sparc32plus", "sparc64", *map(machines.beyond, ("loongarch64", "mips", "m68k"))]
)
def test_a_call_to_a_misaligned_function_is_a_bus_error_with_a_record(
    target: str, tmp_path: Path, programs: Path
) -> None:
    ran = Ran(programs, tmp_path, target, "signal", "jump")
    assert ran.code == -signal.SIGBUS, ran.text
    (fault,) = ran.log.faults
    # Linux arch/loongarch/kernel/traps.c, do_ade(): the misaligned address is not a data address.
    code = BUS_ADRERR if target == "loongarch64" else fault_log.BUS_ADRALN
    assert (fault.signal, fault.code) == (signal.SIGBUS, code)
    # An instruction of m68k may begin at any even address.
    assert (fault.address % 2 == 1) if target == "m68k" else (fault.address % 4 == 2)
    (end,) = ran.log.ends.values()
    assert end.signal == signal.SIGBUS
    if target.startswith("sparc"):
        assert ran.function == "jump", "JMPL itself traps"


@pytest.mark.parametrize(
    "target", ["armv5", "aarch64", "sparc64", *map(machines.beyond, ("loongarch64", "mips", "m68k"))]
)
def test_a_breakpoint_in_a_child_has_a_record(target: str, tmp_path: Path, programs: Path) -> None:
    ran = Ran(programs, tmp_path, target, "signal", "trap")
    assert (ran.code, ran.text.splitlines()[-1]) == (0, f"child: signal {signal.SIGTRAP:d}")
    (fault,) = ran.log.faults
    assert (fault.signal, fault.handled, ran.function) == (signal.SIGTRAP, False, "trap")


@pytest.mark.parametrize(
    ("target", "aligned", "offsets"),
    [("sparc64", [0, 8], [1, 3, 4]), ("sparc32plus", [0, 4], [2])],
)
def test_spilling_a_window_to_a_misaligned_stack_is_a_bus_error(
    target: str, aligned: list[int], offsets: list[int], tmp_path: Path, programs: Path
) -> None:
    for offset in aligned:
        ran = Ran(programs, tmp_path, target, "signal", "spill", str(offset))
        assert (ran.code, ran.log.faults) == (0, []), f"at {offset}: {ran.text}"
    for offset in offsets:
        folder = tmp_path / str(offset)
        folder.mkdir()
        ran = Ran(programs, folder, target, "signal", "spill", str(offset))
        assert ran.code == -signal.SIGBUS, f"at {offset}: {ran.text}"
        assert shape(ran)[:2] == (signal.SIGBUS, "stack")
        assert ran.function == "spill"
    folder = tmp_path / "fill"
    folder.mkdir()
    ran = Ran(programs, folder, target, "signal", "fill", "2")
    assert ran.code == -signal.SIGBUS, ran.text
    assert (shape(ran)[:2], ran.log.faults[0].access, ran.function) == ((signal.SIGBUS, "stack"), "load", "fill")
    audited = tmp_path / "audited"
    audited.mkdir()
    ran = Ran(programs, audited, target, "audit", "spill", "2")
    # The registers are restored from there.
    assert (ran.code, [(one.event, one.access) for one in ran.log.faults]) == (
        0,
        [("access", "store"), ("access", "load")],
    ), ran.text


@pytest.mark.parametrize(("by", "lives"), [(8, False), (9, False), (16, True)])
def test_a_stack_pointer_that_moves_within_a_block_is_checked_again(
    by: int, lives: bool, tmp_path: Path, programs: Path
) -> None:
    ran = Ran(programs, tmp_path, "aarch64", "signal", "stack", str(by))
    assert ran.code == (0 if lives else -signal.SIGBUS), ran.text
    if not lives:
        assert (shape(ran)[:3], ran.log.faults[0].access) == ((signal.SIGBUS, "stack", 16), "load")
        assert (ran.log.faults[0].address % 16, ran.function) == (8, "stack")


@pytest.mark.parametrize(
    ("policy", "words", "expected"),
    [
        # Before ARMv6, __kuser_cmpxchg64 is LDM and STM (Linux entry-armv.S): a word's alignment is enough.
        ("signal", ("atomic8", "4"), "sum 4294967296, memory 4294967296"),
        ("signal", ("atomic8", "2"), "SIGBUS multi"),
        ("fixup", ("atomic8", "2"), "sum 4294967296, memory 4294967296"),
        ("audit", ("atomic8", "1"), "sum 4294967296, memory 4294967296"),
        ("signal", ("exchange4", "0"), "done 1, memory 88776655"),
        ("signal", ("exchange4", "2"), "SIGBUS word"),
        ("fixup", ("exchange4", "2"), "done 1, memory 88776655"),
        ("audit", ("exchange4", "1"), "done 1, memory 88776655"),
        ("ignore", ("exchange4", "1"), "done 0, memory 44332211"),
        ("ignore", ("rotated", "exchange4", "1"), "done 1, memory 88776655"),
        ("ignore", ("rotated", "exchange4", "3"), "done 1, memory 88776655"),
        ("audit", ("atomic4", "3"), "sum 42, memory 42"),
        ("unchecked", ("exchange4", "3"), "done 1, memory 88776655"),
    ],
)
def test_the_kernels_helpers_of_armv5_follow_the_policy(
    policy: str, words: tuple[str, ...], expected: str, tmp_path: Path, programs: Path
) -> None:
    ran = Ran(programs, tmp_path, "armv5", policy, *words)
    if expected.startswith("SIGBUS"):
        assert ran.code == -signal.SIGBUS, ran.text
        assert (f"SIGBUS {shape(ran)[1]}", shape(ran)[3]) == (expected, int(words[-1]))
        if words[0] == "exchange4":
            assert ran.function == "exchange4", "the place must be the call, not the code after it"
        return
    assert (ran.code, ran.text.splitlines()[0]) == (0, expected)
    stores = [fault for fault in ran.log.faults if fault.access == "store"]
    assert len(stores) == (1 if policy == "audit" else 0)


@pytest.mark.parametrize("target", ["armv5", "armv6"])
def test_the_kernels_exchange_returns_its_result_in_r0_and_the_carry_flag(
    target: str, tmp_path: Path, programs: Path
) -> None:
    # Linux Documentation/arch/arm/kernel_user_helpers.rst, kuser_cmpxchg.
    ran = Ran(programs, tmp_path, target, "signal", "compared", "5")
    assert (ran.code, ran.text.splitlines()[0]) == (0, "r0 0, carry 1, memory 7")
    ran = Ran(programs, tmp_path, target, "signal", "compared", "6")
    assert ran.code == 0
    assert ran.text.splitlines()[0].startswith("r0 -"), "any number but 0"
    assert ran.text.splitlines()[0].endswith("carry 0, memory 5")


@pytest.mark.parametrize("target", ["armv5", "armv6"])
@pytest.mark.parametrize(("readable", "code"), [("0", SEGV_MAPERR), ("1", SEGV_ACCERR)])
def test_an_exchange_at_a_read_only_address_is_the_callers_fault(
    target: str, readable: str, code: int, tmp_path: Path, programs: Path
) -> None:
    ran = Ran(programs, tmp_path, target, "signal", "forbidden", readable)
    assert ran.code == -signal.SIGSEGV, ran.text
    (fault,) = ran.log.faults
    assert (fault.signal, fault.code, fault.address % 4096, ran.function) == (signal.SIGSEGV, code, 12, "forbidden")


@pytest.mark.parametrize("target", ["armv5", "armv6"])
def test_threads_count_with_the_kernels_exchange_and_have_their_own_variables(
    target: str, tmp_path: Path, programs: Path
) -> None:
    ran = Ran(programs, tmp_path, target, "signal", "threads", "4")
    assert (ran.code, ran.text.splitlines()[0]) == (0, "shared 80000, own 80000")
