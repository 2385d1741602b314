"""The emulator's plugin notes which functions of a program are entered: those that the program says, and no others."""

from __future__ import annotations

import subprocess
from functools import cache
from typing import TYPE_CHECKING

import pytest

from harness.build.function_reach import compile_reach, functions_of
from harness.core.cache import Cache
from harness.core.target_model import ORACLE
from harness.record.reach.function_map import FunctionMap
from tests.end_to_end import machines

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

volatile int sum;

#define FUNCTION(name) __attribute__((noinline)) void name(void) { sum++; }
FUNCTION(by_the_first_thread)
FUNCTION(by_both)
FUNCTION(by_a_child)
FUNCTION(by_a_thread)
FUNCTION(by_nobody)

static void *elsewhere(void *unused)
{
    by_a_thread();
    by_both();
    return unused;
}

int main(int count, char **words)
{
    pthread_t thread;
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
    puts("ready");
    fflush(stdout);
    /* What follows is entered after the reader has looked once. */
    if (getchar() != 'x') {
        return 1;
    }
    by_the_first_thread();
    puts("done");
    fflush(stdout);
    getchar();
    return 0;
}
"""
OWN = {"by_the_first_thread", "by_both", "by_a_child", "by_a_thread", "by_nobody"}


@cache
def plugin() -> Path:
    made = compile_reach(Cache.default(), machines.toolchain_of(ORACLE))
    assert made is not None, "the emulator's source is in the cache: it was compiled here"
    return made


@pytest.mark.parametrize("target", machines.TESTED)
def test_functions_are_noted_by_who_enters_them_and_when(target: str, tmp_path: Path) -> None:
    source = tmp_path / "functions.c"
    source.write_text(PROGRAM, "utf-8")
    program = machines.compiled(target, source, tmp_path)
    entered = FunctionMap(tmp_path / "map", functions_of(program))
    loaded = f"{plugin()},map={entered.path},of={program}"
    command = machines.runner(target).command(program, [], plugin=loaded)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as ran:
        assert ran.stdin is not None
        assert ran.stdout is not None
        assert ran.stdout.readline() == b"ready\n"
        first = entered.take()
        assert "main" in first
        assert first & OWN == {"by_the_first_thread", "by_both"}
        assert entered.beside() & OWN == {"by_a_child", "by_a_thread", "by_both"}
        assert entered.take() & OWN == set()
        ran.stdin.write(b"x")
        ran.stdin.flush()
        assert ran.stdout.readline() == b"done\n"
        assert entered.take() & OWN == {"by_the_first_thread"}
        ran.stdin.close()
    assert ran.returncode == 0
    entered.close()
    assert not entered.path.exists()


def test_a_map_of_another_program_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "functions.c"
    source.write_text(PROGRAM, "utf-8")
    program = machines.compiled("armv5", source, tmp_path)
    (tmp_path / "map").write_bytes(bytes(64))
    command = machines.runner("armv5").command(program, [], plugin=f"{plugin()},map={tmp_path / 'map'},of={program}")
    ran = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert ran.returncode != 0
    assert b"reach: cannot use map=" in ran.stderr
