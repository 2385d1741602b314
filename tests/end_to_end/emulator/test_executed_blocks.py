"""The emulator's plugin records the functions that a program executes, and no others."""

from __future__ import annotations

import subprocess
import time
from functools import cache
from typing import TYPE_CHECKING, Literal

import pytest

from harness.build.executed_blocks import code_of, compile_blocks
from harness.build.sources.archives import Fetcher
from harness.core.cache import Cache
from harness.core.target_model import ORACLE
from harness.record.executed_blocks.block_map import BlockMap
from tests.end_to_end.support import machines
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

PROGRAM = r"""
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 40 };
volatile int sum;

#define FUNCTION(name) __attribute__((noinline)) void name(void) { sum++; }
FUNCTION(by_the_first_thread)
FUNCTION(by_both)
FUNCTION(by_a_child)
FUNCTION(by_a_thread)
FUNCTION(by_nobody)
FUNCTION(by_one_of_many)

static jmp_buf back;

__attribute__((noinline)) static void jumps(void)
{
    longjmp(back, 1);
}

/* It waits in its middle, and continues with a jump, so nothing enters it at its beginning. */
__attribute__((noinline)) int in_the_middle(void)
{
    if (setjmp(back) == 0) {
        puts("ready");
        fflush(stdout);
        if (getchar() == 'x') {
            jumps();
        }
        return 0;
    }
    return ++sum;
}

static void *elsewhere(void *unused)
{
    by_a_thread();
    by_both();
    return unused;
}

static void *one_of_many(void *unused)
{
    by_one_of_many();
    return unused;
}

int main(int count, char **words)
{
    pthread_t thread, many[THREADS];
    (void)words;

    by_the_first_thread();
    by_both();
    if (count > 9) {
        by_nobody();
    }
    pid_t child = fork();
    if (child == 0) {
        by_a_child();
        _exit(0);
    }
    waitpid(child, NULL, 0);
    pthread_create(&thread, NULL, elsewhere, NULL);
    pthread_join(thread, NULL);
    /* The following code is executed after the reader has read the map once. */
    if (in_the_middle() == 0) {
        return 1;
    }
    by_the_first_thread();
    puts("done");
    fflush(stdout);
    if (getchar() != 'y') {
        return 1;
    }
    /* The threads exist at the same time, so that the emulator must enlarge its table. */
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&many[i], NULL, one_of_many, NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(many[i], NULL);
    }
    child = fork();
    if (child == 0) {
        by_a_child();
        _exit(0);
    }
    waitpid(child, NULL, 0);
    puts("gone");
    fflush(stdout);
    getchar();
    return 0;
}
"""
OWN = {
    "by_the_first_thread",
    "by_both",
    "by_a_child",
    "by_a_thread",
    "by_nobody",
    "by_one_of_many",
    "in_the_middle",
}


@cache
def plugin() -> Path:
    cache = Cache.default()
    return compile_blocks(cache, machines.toolchain_of(ORACLE), Fetcher(cache, fakes.quiet()))


@pytest.mark.parametrize("target", machines.TESTED)
def test_functions_are_recorded_for_the_thread_that_enters_them(target: str, tmp_path: Path) -> None:
    source = tmp_path / "functions.c"
    source.write_text(PROGRAM, "utf-8")
    program = machines.compiled(target, source, tmp_path)
    runner = machines.runner(target)
    code = code_of(program, runner.target.emulator.qemu)
    blocks = BlockMap(tmp_path / "map", code)

    def entered(whose: Literal["first", "others"]) -> set[str]:
        return code.names_in(blocks.take(whose)) & {*OWN, "main"}

    def until_it_waits() -> None:
        """Wait until the program has written a line, and is about to read."""
        deadline = time.monotonic() + 10 * runner.target.slowdown
        while entered("first"):
            assert time.monotonic() < deadline
            time.sleep(0.2)

    command = runner.command(program, [], plugin=f"{plugin()},map={blocks.path},of={program}")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as ran:
        assert ran.stdin is not None
        assert ran.stdout is not None
        assert ran.stdout.readline() == b"ready\n"
        assert entered("first") == {"main", "by_the_first_thread", "by_both", "in_the_middle"}
        assert entered("others") - {"main"} == {"by_a_child", "by_a_thread", "by_both"}
        until_it_waits()
        ran.stdin.write(b"x")
        ran.stdin.flush()
        assert ran.stdout.readline() == b"done\n"
        assert entered("first") == {"main", "by_the_first_thread", "in_the_middle"}
        assert entered("others") == set()
        until_it_waits()
        ran.stdin.write(b"y")
        ran.stdin.flush()
        assert ran.stdout.readline() == b"gone\n"
        assert entered("first") == {"main"}
        assert entered("others") - {"main"} == {"by_a_child", "by_one_of_many"}
        ran.stdin.close()
    assert ran.returncode == 0
    blocks.close()
    assert not blocks.path.exists()


def test_a_map_of_another_program_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "functions.c"
    source.write_text(PROGRAM, "utf-8")
    program = machines.compiled("armv5", source, tmp_path)
    (tmp_path / "map").write_bytes(bytes(1 << 20))
    command = machines.runner("armv5").command(program, [], plugin=f"{plugin()},map={tmp_path / 'map'},of={program}")
    ran = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert ran.returncode != 0
    assert b"blocks: cannot use map=" in ran.stderr
