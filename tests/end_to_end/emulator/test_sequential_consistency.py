"""Sequentially consistent atomics of C are so in emulated threads, also where the host delays stores.

Two threads each store to one variable, and then load the other's. In no order of the four accesses do both loads return
the old value (Dekker's algorithm rests on it). With relaxed accesses they may, which shows that the threads overlapped.
"""

from __future__ import annotations

import subprocess
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build import toolchain
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.target_model import Target

pytestmark = pytest.mark.end_to_end

PROGRAM = r"""
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { ROUNDS = 200000, PATIENCE = 3000 };

static struct {
    _Atomic int mine[2];
    char apart[56];
} rounds[ROUNDS];
static int seen[2][ROUNDS];
static volatile int begun[2];

static void *take_part(void *which)
{
    int me = which != 0;

    for (int at = 0; at < ROUNDS; at++) {
        begun[me] = at + 1;
        for (int wait = 0; wait < PATIENCE && begun[!me] <= at; wait++) {
        }
        atomic_store_explicit(&rounds[at].mine[me], 1, ORDER);
        seen[me][at] = atomic_load_explicit(&rounds[at].mine[!me], ORDER);
    }
    return 0;
}

int main(void)
{
    pthread_t other;
    int neither = 0;

    pthread_create(&other, 0, take_part, &other);
    take_part(0);
    pthread_join(other, 0);
    for (int at = 0; at < ROUNDS; at++) {
        neither += !seen[0][at] && !seen[1][at];
    }
    printf("%d\n", neither);
    return 0;
}
"""
ATTEMPTS = 10
"""On a busy machine the threads may never overlap in a run."""
LATE_SECONDS = 300


def rounds_in_which_neither_saw_the_other(target: Target, order: str, folder: Path, *runs: int) -> int:
    """Compile the program for a target with that order, and run it until it shows the outcome, or so many times."""
    source, program = folder / f"{order}.c", folder / order
    source.write_text(PROGRAM, "utf-8")
    flags = [*toolchain.compiler_flags(target, "O2"), "-pthread", f"-DORDER=memory_order_{order}"]
    compiler = toolchain.tool(machines.toolchain_of(target.name), "gcc")
    subprocess.run([compiler, source, *flags, "-o", program], check=True, timeout=machines.COMPILE_SECONDS)
    runner = machines.runner(target.name)
    options = [target.emulator.cpu if before == "-cpu" else word for before, word in pairwise(["", *runner.options])]
    runner = msgspec.structs.replace(runner, options=options)
    for _ in range(*runs):
        command = runner.command(program, [], folder / "faults")
        found = int(subprocess.run(command, check=True, capture_output=True, timeout=LATE_SECONDS).stdout)
        if found:
            return found
    return 0


def assert_consistent(target: Target, folder: Path) -> None:
    assert rounds_in_which_neither_saw_the_other(target, "relaxed", folder, ATTEMPTS), "the threads never overlapped"
    assert rounds_in_which_neither_saw_the_other(target, "seq_cst", folder, 2) == 0


@pytest.mark.parametrize(
    "name",
    [
        # It has its own instructions for it: STLR and LDAR.
        "aarch64",
        *(machines.beyond(name) for name in [*machines.REQUIRED, *machines.OTHERS] if name != "aarch64"),
    ],
)
def test_one_of_two_threads_sees_the_other(tmp_path: Path, name: str) -> None:
    assert_consistent(machines.CATALOG.targets[name], tmp_path)


@pytest.mark.slow(instead="test_one_of_two_threads_sees_the_other")
def test_one_of_two_threads_sees_the_other_with_the_32_bit_instructions_of_armv8(tmp_path: Path) -> None:
    """STL and LDA: compilers for earlier processors emit DMB instead."""
    armv7 = machines.CATALOG.targets["armv7"]
    emulator = msgspec.structs.replace(armv7.emulator, cpu="max")
    flags = [*armv7.compiler_flags, "-march=armv8-a+simd"]
    assert_consistent(msgspec.structs.replace(armv7, emulator=emulator, compiler_flags=flags), tmp_path)
