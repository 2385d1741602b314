"""Each misaligned access of a program that hides its actions is a finding, or the verdict is UNKNOWN.

A program of the target executes another one in every way that C offers, or makes the access where its emulator may be
unable to record it: with its descriptors closed, with SIGBUS blocked or handled, in the background, in a library.
"""

from __future__ import annotations

import shutil
from functools import cache
from typing import TYPE_CHECKING

import pytest

from harness.core.cache import Cache
from harness.core.digests import key_of
from harness.core.finding import Verdict
from harness.core.processes import process
from harness.workflows.programs.execution import environment_for
from tests.end_to_end.programs.test_programs import TracedRun, setup_of
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

EVASIVE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static uint32_t words[4];
static sigjmp_buf before;
static char *odd[] = {"./odd", "odd", NULL}, *nothing[] = {NULL};

__attribute__((noinline)) static uint32_t hidden_load(const char *near)
{
    uint32_t word = *(const volatile uint32_t *)(near + 1);
    return word ^ 5;
}

static int hide(void)
{
    return (int)hidden_load((const char *)words);
}

static void leave(int number)
{
    (void)number;
    _exit(0);
}

static void jump(int number)
{
    (void)number;
    siglongjmp(before, 1);
}

static int executed_by_vfork(void)
{
    int status;
    if (vfork() == 0) {
        execv(odd[0], odd);
        _exit(0);
    }
    return wait(&status) < 0;
}

static int spawned(void)
{
    pid_t pid;
    int status;
    return posix_spawn(&pid, odd[0], NULL, NULL, odd, nothing) || waitpid(pid, &status, 0) != pid;
}

static int read_from_pipe(void)
{
    char line[80];
    FILE *stream = popen("exec ./odd odd", "r");
    while (stream && fgets(line, sizeof line, stream))
        ;
    return !stream || pclose(stream) < 0;
}

static int loaded(void)
{
    void *library = dlopen("./hidden.so", RTLD_NOW);
    int (*load)(const char *) = library ? (int (*)(const char *))dlsym(library, "load_in_library") : NULL;
    return load ? load((const char *)words) : 99;
}

/* As in a daemon, the parent has ended, and the process has its own session. */
static int in_background(void)
{
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            usleep(100000);
            hide();
        }
        _exit(0);
    }
    return 0;
}

int main(int count, char **given)
{
    const char *mode = count > 1 ? given[1] : "";
    sigset_t all;
    if (!strcmp(mode, "vfork"))
        return executed_by_vfork();
    if (!strcmp(mode, "spawn"))
        return spawned();
    if (!strcmp(mode, "system"))
        return system("./odd odd; true");
    if (!strcmp(mode, "popen"))
        return read_from_pipe();
    if (!strcmp(mode, "bare"))
        return execve(odd[0], odd, nothing);
    if (!strcmp(mode, "loaded"))
        return loaded();
    if (!strcmp(mode, "background"))
        return in_background();
    if (!strcmp(mode, "closed"))
        for (int i = 0; i < 1024; i++)
            close(i);
    if (!strcmp(mode, "ranged"))
        closefrom(0);
    if (!strcmp(mode, "limited"))
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, 0});
    if (!strcmp(mode, "blocked")) {
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
    }
    if (!strcmp(mode, "ignored"))
        signal(SIGBUS, SIG_IGN);
    if (!strcmp(mode, "handled"))
        signal(SIGBUS, leave);
    if (!strcmp(mode, "jumped")) {
        signal(SIGBUS, jump);
        if (sigsetjmp(before, 1))
            return 0;
    }
    return hide();
}
"""
LIBRARY = r"""
#include <stdint.h>

int load_in_library(const char *near)
{
    uint32_t word = *(const volatile uint32_t *)(near + 1);
    return (int)word ^ 5;
}
"""


@cache
def evasive_programs(target: str) -> Path:
    """A folder with the program, and the library that it loads."""
    words = environment_for(setup_of(target))

    def compile_into(into: Path) -> None:
        (into / "evasive.c").write_text(EVASIVE, "utf-8")
        (into / "hidden.c").write_text(LIBRARY, "utf-8")
        for name, options in {"evasive": [], "hidden": ["-shared", "-fPIC"]}.items():
            made = f"{name}.so" if options else name
            process.run_successfully(
                [words["CC"], "-O1", *options, "-o", made, f"{name}.c", "-ldl"],
                problem=f"{name}.c does not compile",
                deadline_seconds=120,
                folder=into,
            )

    return Cache.default().folder("test-programs", key_of([EVASIVE, LIBRARY, target, words["CC"]]), compile_into)


EXECUTED, HIDDEN = "alignment-odd_load-load", "alignment-hidden_load-load"
MODES = {
    "vfork": EXECUTED,
    "spawn": EXECUTED,
    "system": EXECUTED,
    "popen": EXECUTED,
    "bare": EXECUTED,
    "loaded": "alignment-load_in_library-load",
    "closed": HIDDEN,
    "ranged": HIDDEN,
    # The emulator cannot open the file with the location.
    "limited": "alignment-??-load",
    "blocked": HIDDEN,
    "ignored": HIDDEN,
    "handled": HIDDEN,
    "jumped": HIDDEN,
    "background": HIDDEN,
}
"""Mode of the program -> the finding."""


@pytest.mark.parametrize("mode", MODES)
def test_a_program_that_hides_its_access_is_found(tmp_path: Path, mode: str) -> None:
    """The command always succeeds, so only the finding shows the access."""
    traced = TracedRun(tmp_path, "armv5")
    for path in evasive_programs("armv5").iterdir():
        shutil.copy2(path, traced.folder)
    found, cell = traced.judged("sh", "-c", f"./evasive {mode}; sleep 0.5; true")
    assert (cell.verdict, found) == (Verdict.FAIL, [MODES[mode]]), cell


PRELOADED = """\
export LD_PRELOAD="$PWD/hidden.so" LD_LIBRARY_PATH="$PWD"
ls > listed; grep -c "^LD_PRELOAD=/" /proc/self/environ -z > seen
sh -c 'env | grep -c "^LD_PRELOAD=/"' >> seen
./odd && echo ran >> seen
LD_PRELOAD=./gone.so:./hidden.so ls > listed 2> others
"""


@pytest.mark.parametrize("target", ["armv5", machines.beyond("sparc64")])
def test_libraries_of_the_target_in_variables_of_the_loader_reach_its_programs_alone(
    tmp_path: Path, target: str
) -> None:
    """The host's loader would print that it cannot preload them, or would not start the emulator at all.

    From a folder with the name of a library that the emulator needs, it takes one of a 64-bit big-endian machine.
    """
    traced = TracedRun(tmp_path, target)
    for name in ("hidden.so", "libglib-2.0.so.0"):
        shutil.copy2(evasive_programs(target) / "hidden.so", traced.folder / name)
    assert traced.run("sh", "-c", f"({PRELOADED}) 2> said") == 0
    assert (traced.folder / "said").read_text("utf-8") == ""
    # A program has the variable again when it begins, and gives it to others.
    assert (traced.folder / "seen").read_text("utf-8") == "1\n1\nran\n"
    # One that names anything else is for the host's programs as well.
    assert "hidden.so" in (traced.folder / "others").read_text("utf-8")


LOG = "../cells/armv5/*/guest-1/faults.jsonl"
SCRIPTS: dict[str, tuple[Verdict, list[str], str]] = {
    "env -i ./odd odd; true": (Verdict.FAIL, [EXECUTED], ""),
    # Libraries of the target, which the emulator's own loader refuses.
    "LD_PRELOAD=./hidden.so ./odd odd; true": (Verdict.FAIL, [EXECUTED], ""),
    'LD_LIBRARY_PATH="$PWD" ./odd odd; true': (Verdict.FAIL, [EXECUTED], ""),
    "make -j2 check": (Verdict.FAIL, [EXECUTED], ""),
    # With a time limit, the command's failure is the finding.
    "timeout 0.5 ./odd wait": (Verdict.FAIL, ["exit-odd_wait-SIGTERM"], ""),
    "timeout -s KILL 0.5 ./odd wait": (Verdict.FAIL, ["exit-odd_wait-SIGKILL"], ""),
    # The command can also name the loader.
    "$LOADER ./odd odd; true": (Verdict.FAIL, [EXECUTED], ""),
    # A log that lost its end, its fault, or everything: for a program that the access killed, and one that handled it.
    f"./odd odd; truncate --size=-40 {LOG}; true": (
        Verdict.FAIL,
        [EXECUTED],
        "did not start the program, or could not",
    ),
    f"./odd odd; sed -i 1d {LOG}; true": (
        Verdict.FAIL,
        ["crash-odd-SIGBUS"],
        "has 1 lines, of 2 that the emulator began",
    ),
    f"./odd odd; truncate --size=0 {LOG}; true": (Verdict.UNKNOWN, [], "has 0 lines"),
    f"./odd odd; rm {LOG}; true": (Verdict.UNKNOWN, [], "has 0 lines"),
    f"./evasive handled; truncate --size=100 {LOG}; true": (Verdict.UNKNOWN, [], "has 0 lines"),
    f"./evasive handled; truncate --size=0 {LOG}; true": (Verdict.UNKNOWN, [], "has 0 lines"),
    f"./evasive handled; sed -i 1d {LOG}; true": (Verdict.UNKNOWN, [], "has 1 lines"),
    f"./evasive handled; rm {LOG}; true": (Verdict.UNKNOWN, [], "has 0 lines"),
}
"""Command -> verdict, findings and a part of the reason."""


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_command_that_hides_the_faults_of_its_programs_does_not_pass(tmp_path: Path, script: str) -> None:
    verdict, identities, reason = SCRIPTS[script]
    traced = TracedRun(tmp_path, "armv5")
    for path in evasive_programs("armv5").iterdir():
        shutil.copy2(path, traced.folder)
    (traced.folder / "Makefile").write_text("check: one two\none two:\n\t-./odd odd\n\t./odd\n", "utf-8")
    loader = setup_of("armv5").guest_root / "lib" / "ld-linux.so.3"
    found, cell = traced.judged("sh", "-c", script.replace("$LOADER", str(loader)))
    assert (cell.verdict, found) == (verdict, identities), cell
    assert reason in cell.reason
