"""The speed of misaligned accesses that a RISC-V program reads is right. A C library chooses its memcpy accordingly."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from harness.build import toolchain
from harness.build.emulators.runner import with_alignment
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.slow(instead="nothing: the emulator of riscv64 is built for this test alone"),
]

CATALOG = machines.CATALOG
# riscv_hwprobe has the number 258; key 5 is RISCV_HWPROBE_KEY_CPUPERF_0 (Linux, arch/riscv/include/uapi/asm/hwprobe.h).
PROGRAM = r"""
#include <unistd.h>
#include <sys/syscall.h>

int main(int count, char **words)
{
    struct { long long key; unsigned long long value; } pair = { 5, 0 };
    char bytes[16] = { 0 };

    if (count > 1) {
        return *(volatile int *)(bytes + 1 + (words[0] == 0));
    }
    return syscall(258, &pair, 1L, 0L, (void *)0, 0L) ? 99 : (int)(pair.key == 5 ? pair.value : 98);
}
"""
EMULATED, FAST, UNSUPPORTED = 1, 3, 4


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = CATALOG.targets["riscv64"]
    folder = tmp_path_factory.mktemp("riscv64")
    source, built = folder / "program.c", folder / "program"
    source.write_text(PROGRAM, "utf-8")
    compiler = toolchain.tool(CATALOG.toolchain_of(target), "gcc")
    subprocess.run([compiler, str(source), *target.compiler_flags, "-O1", "-o", str(built)], check=True)
    return built


@pytest.mark.parametrize(
    ("policy", "reported_speed", "happens"),
    [("signal", UNSUPPORTED, -7), ("sbi-riscv", EMULATED, 0), ("unchecked", FAST, 0)],
)
def test_what_is_told_is_what_happens(program: Path, policy: str, reported_speed: int, happens: int) -> None:
    runner = machines.set_up(("riscv64",))["riscv64"].runner("signal")
    command = [str(runner.program), *with_alignment(runner.options, CATALOG.policies[policy]), str(program)]
    assert subprocess.run(command, check=False, timeout=60).returncode == reported_speed
    assert subprocess.run([*command, "access"], check=False, timeout=60).returncode == happens
