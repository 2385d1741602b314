"""Direct jumps from one page of a program to another are undone when that page changes, and under a debugger."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from harness.build import toolchain
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

CATALOG = machines.CATALOG
TARGETS = ["armv5", "aarch64", "sparc64", "sparc32plus"]
# `answer` is called from another page so often that the caller jumps there directly. Then its page changes.
PROGRAM = r"""
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 65536 };

#define ON_ITS_OWN_PAGE(name) __attribute__((noinline, noclone, aligned(65536), section(".text." name)))

ON_ITS_OWN_PAGE("answer") static void answer(volatile int *calls)
{
    *calls += 1;
}

ON_ITS_OWN_PAGE("other") static void other(volatile int *calls)
{
    *calls += 5;
}

ON_ITS_OWN_PAGE("caller") static int caller(volatile int *calls)
{
    answer(calls);
    return *calls;
}

ON_ITS_OWN_PAGE("behind") int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    volatile int calls = 0;

    for (int i = 0; i < 1000; i++) {
        caller(&calls);
    }
    if (strcmp(what, "forbid") == 0) {
        mprotect((void *)answer, PAGE, PROT_NONE);
    } else if (strcmp(what, "remove") == 0) {
        munmap((void *)answer, PAGE);
    } else if (strcmp(what, "replace") == 0) {
        mprotect((void *)answer, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
        memcpy((void *)answer, (void *)other, 64);
        __builtin___clear_cache((char *)answer, (char *)answer + 64);
    }
    return caller(&calls) - 1000;
}
"""
LATE = 1 + PROGRAM.splitlines().index("    return caller(&calls) - 1000;")
"""The line of the last call."""


@pytest.fixture(params=TARGETS)
def program(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The command line of the program under its emulator."""
    target = CATALOG.targets[request.param]
    source, built = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM, "utf-8")
    compiler = toolchain.tool(CATALOG.toolchain_of(target), "gcc")
    flags = [*target.compiler_flags, "-g", "-O1", "-no-pie", "-fno-pie"]
    subprocess.run([compiler, str(source), *flags, "-o", str(built)], check=True)
    runner = machines.runner(request.param)
    return [str(runner.program), *runner.options, str(built)]


def status(command: list[str], *words: str) -> int:
    """The exit status of a run, or the negative number of the signal that ended it."""
    return subprocess.run([*command, *words], check=False, timeout=60).returncode


def test_a_page_that_stays_is_called(program: list[str]) -> None:
    assert status(program) == 1


@pytest.mark.parametrize("change", ["forbid", "remove"])
def test_a_removed_page_is_no_longer_executed(program: list[str], change: str) -> None:
    assert status(program, change) == -signal.SIGSEGV


def test_code_written_to_a_page_is_executed(program: list[str]) -> None:
    assert status(program, "replace") == 5


def test_a_breakpoint_set_late_is_reached(program: list[str], tmp_path: Path) -> None:
    """The program has jumped to its page a thousand times before."""
    emulator, *rest = program
    port = tmp_path / "gdb"
    guest = subprocess.Popen([emulator, "-g", str(port), *rest])
    try:
        while not port.exists():
            assert guest.poll() is None
            time.sleep(0.01)
        stops = [f"break program.c:{LATE}", "continue", "break answer", "continue"]
        words = [f"target remote {port}", *stops, "bt 2", "kill"]
        ended = subprocess.run(
            ["gdb-multiarch", "-nx", "-batch", *[word for one in words for word in ("-ex", one)], rest[-1]],
            check=False, capture_output=True, encoding="utf-8", timeout=60, env={**os.environ, "DEBUGINFOD_URLS": ""},
        )  # fmt: skip
        assert re.search(r"Breakpoint 2, answer \(.*\) at .*\n(.*\n)*#1 .* in caller \(", ended.stdout), (
            ended.stdout + ended.stderr
        )
    finally:
        guest.kill()
        guest.wait()
