"""A fault is located exactly wherever it happens: inlined, in a forked child, in a thread, in a signal handler.

In the tests' programs each load has a label, so the linker provides the true address of a fault.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from elftools.elf.elffile import ELFFile

from harness.analysis import disassembly, symbols
from harness.build import toolchain
from harness.core.finding import Frame
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog
from harness.record import fault_log
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from harness.record.fault_log import Fault

pytestmark = pytest.mark.end_to_end

SOURCE = ROOT / "tests" / "support" / "data" / "placement"
WHERE = ("main", "child", "thread", "handler")
CALLERS = {
    "main": ["in_main", "main"],
    "child": ["in_child", "main"],
    "thread": ["thread_body"],
    "handler": ["handle"],
}
"""The callers of `caller_WHERE` on the program's own stack."""
PLACED = [*machines.MISALIGNING, machines.beyond("aarch64_be")]
"""aarch64_be is included, although Clang compiles its programs: its registers and its stack are in the byte order of
data, but its instructions are not."""
STYLES = {"as-servers-are-built": [], "fixed-and-without-frame-pointer": ["-no-pie", "-fomit-frame-pointer"]}
"""The second style has addresses that the linker knows, and on SPARC leaf routines that keep their caller's window."""
OLD_DEBUG_INFORMATION = {"dwarf-4": ["-gdwarf-4"]}
DIES_AT = {
    "aarch64": "ldar",
    "aarch64_be": "ldar",
    "alpha": "ldl",
    "armv5": "ldr",
    "armv6": "ldrd",
    "armv7": "ldrd",
    "hppa": "ldw",
    "loongarch64": "ld.w",
    "mips": "lw",
    "mips64": "lw",
    "mips64el": "lw",
    "mipsel": "lw",
    "powerpc": "lwarx",
    "powerpc64": "lwarx",
    "powerpc64le": "lwarx",
    "riscv64": "lw",
    "s390x": "cs",
    "sparc32plus": "ld",
    "sparc64": "ld",
}
TO_THE_START = {
    "aarch64",
    "alpha",
    "armv5",
    "armv6",
    "armv7",
    "hppa",
    "mips",
    "mips64",
    "mips64el",
    "mipsel",
    "riscv64",
    "s390x",
    "sparc32plus",
    "sparc64",
}
"""Targets whose stacks reach `_start`."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(target, style) -> the program, compiled on first use in a folder that looks like a server's tree."""
    folder = tmp_path_factory.mktemp("placement") / "tree" / "src"
    folder.mkdir(parents=True)
    for file in ("place.c", "levels.h"):
        (folder / file).write_text((SOURCE / file).read_text("utf-8"), "utf-8")

    @cache
    def program(target: str, style: str) -> Path:
        found = Catalog().targets[target]
        compiler = toolchain.tool(machines.toolchain_of(target), "gcc")
        made: Path = folder / f"place-{target}-{style}"
        flags = [*toolchain.compiler_flags(found, "O2"), "-Wall", "-Werror", "-pthread"]
        flags += (STYLES | OLD_DEBUG_INFORMATION)[style]
        result = process.run(
            [compiler, str(folder / "place.c"), *flags, "-o", str(made)], deadline_seconds=machines.COMPILE_SECONDS
        )
        assert result.code == 0, result.text
        return made

    return program


def label(program: Path, name: str) -> int:
    with program.open("rb") as stream:
        table: Any = ELFFile(stream).get_section_by_name(".symtab")
        (symbol,) = table.get_symbol_by_name(name)
        return int(symbol["st_value"])


def link_address(fault: Fault, program: Path) -> int:
    """The fault's address as the linker counts: a position-independent program starts at its first mapping."""
    with program.open("rb") as stream:
        is_fixed = ELFFile(stream)["e_type"] == "ET_EXEC"
    base = 0 if is_fixed else min(m.start for m in fault.maps if m.path == str(program))
    return fault.pc - base


def line_of(file: str, text: str) -> int:
    (number,) = [n for n, line in enumerate((SOURCE / file).read_text("utf-8").splitlines(), 1) if text in line]
    return number


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("style", list(STYLES))
@pytest.mark.parametrize("target", PLACED)
def test_a_fault_is_located(target: str, style: str, where: str, programs: Any, tmp_path: Path) -> None:
    program, log = programs(target, style), tmp_path / "faults.jsonl"
    result = process.run(machines.runner(target).command(program, [where], log), deadline_seconds=60)
    (fault,) = fault_log.read_faults(log)

    output = re.search(r"parent (\d+)\nran (\d+) (\d+)\n", result.text)
    assert output, result.text
    parent, pid, tid = (int(number) for number in output.groups())
    assert (pid, tid) == (fault.pid, fault.tid), "the record names the wrong process or thread"
    assert (where == "child", where == "thread") == (fault.pid != parent, fault.tid != fault.pid)

    assert label(program, f"site_{where}") == link_address(fault, program), "the address is not that of the instruction"
    machine = Catalog().targets[target].emulator.qemu
    instruction = disassembly.disassemble(fault, machine)
    access = disassembly.access_of(fault)
    direction = "store" if DIES_AT[target] == "cs" else "load"
    assert (DIES_AT[target], direction, 1) == (instruction.partition(" ")[0], access.direction, access.modulo)

    prefix = Catalog().toolchain_of(Catalog().targets[target]).prefix
    frames = symbols.Symbols(prefix, str(program)).backtrace(fault, machine)
    innermost = [(f.function, f.file, f.line, f.inlined, f.origin) for f in frames[:4]]
    assert innermost == [
        (f"load_{where}", "src/levels.h", line_of("levels.h", '__asm__ volatile(".globl'), True, "server"),
        (f"between_{where}", "src/levels.h", line_of("levels.h", "NAMED(load, WHERE)(address + 1)"), True, "server"),
        (f"leaf_{where}", "src/levels.h", line_of("levels.h", "    NAMED(between, WHERE)(address)"), False, "server"),
        (f"caller_{where}", "src/levels.h", line_of("levels.h", "    NAMED(leaf, WHERE)(address)"), False, "server"),
    ]
    assert_callers(frames[4:], target, where)


def assert_callers(frames: list[Frame], target: str, where: str) -> None:
    """Assert that the stack has the program's own callers, then the C library's as far as known, and no wrong name."""
    own = CALLERS[where]
    assert own == [frame.function for frame in frames[: len(own)]]
    assert line_of("place.c", f"    caller_{where}(") == frames[0].line
    beyond = frames[len(own) :]
    if where in {"main", "child"} and target in TO_THE_START:
        assert beyond[-2].function == "__libc_start_main"
        # MIPS' start file gives `_start` no size, so no symbol covers its code.
        assert beyond[-1].function == "_start" or target.startswith("mips")
    elif where == "handler" and target.startswith("sparc"):
        # Each call has a window, and so has the signal frame, so the unwinder reaches the interrupted function.
        assert [frame.function for frame in beyond if frame.origin == "server"] == ["in_handler", "main"]
    elif where == "handler" and not target.startswith(("arm", "alpha", "aarch64_be")):
        assert [frame.function for frame in beyond] == ["??"], "the trampoline that QEMU provides is in no file"
    else:
        # musl has its own trampoline. The unwinder's address is one byte before it, in another function of musl.
        assert {"libc"} == {frame.origin for frame in beyond}


@pytest.mark.parametrize("style", ["as-servers-are-built", *OLD_DEBUG_INFORMATION])
@pytest.mark.parametrize("target", PLACED)
def test_the_function_of_a_reported_line_is_found(target: str, style: str, programs: Any) -> None:
    """Assertions report file and line. Code that is included four times is in four functions, so none is named."""
    program = programs(target, style)
    table = symbols.Symbols("", str(program))

    def place(file: str, text: str, function: str = "??") -> tuple[str, str, str]:
        frame = Frame(function=function, file=file, line=line_of(Path(file).name, text), origin="unknown", pc=0)
        found = table.placed(frame)
        assert found.line == frame.line
        return found.function, found.file, found.origin

    assert place("place.c", "    caller_thread(") == ("thread_body", "src/place.c", "server")
    assert place("src/place.c", "    caller_child(") == ("in_child", "src/place.c", "server")
    leaf = "    NAMED(leaf, WHERE)(address)"
    assert place("levels.h", leaf) == ("??", "levels.h", "unknown")
    assert place("levels.h", leaf, "caller_handler") == ("caller_handler", "src/levels.h", "server")
