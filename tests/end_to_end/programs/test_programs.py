"""Commands whose target programs run under the emulator: plumb exec sees all of them, and reports every fault."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from harness.core.cache import Cache
from harness.core.digests import key_of
from harness.core.errors import ExitCode, InfrastructureError, UsageError
from harness.core.finding import Verdict
from harness.core.model import ArchivePlace
from harness.core.processes import process
from harness.isa import rules
from harness.judge.findings import judge
from harness.judge.reproducer import read_reproducer
from harness.judge.verdict import CellVerdict, cell_verdicts
from harness.record import evidence_seal, fault_log, program_launch, run_folder, stored_run
from harness.record.program_launch import CommandRecord
from harness.record.run_record import CellRecord, RunRecord
from harness.run.programs.command_events import write_events
from harness.run.programs.program_file import check_command
from harness.run.programs.traced_command import CommandEnd, Tracing, check_machine, prepare_tracing, run_traced
from harness.workflows.programs.cross_environment import failing_shell
from harness.workflows.programs.execution import environment_for, tracing_of
from harness.workflows.replay.replay import replay
from harness.workflows.replay.reruns import program
from harness.workflows.target_setup import TargetSetup, set_up_target
from harness.workflows.workbench import Workbench
from tests.end_to_end.support import machines
from tests.end_to_end.support.plumb_runs import PLUMB, processes_of, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.judge.reproducer import Reproducer

pytestmark = pytest.mark.end_to_end

SOURCE = r"""
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static uint32_t words[4];

__attribute__((noinline)) static uint32_t odd_load(const char *near)
{
    uint32_t word = *(const volatile uint32_t *)(near + 1); /* the line of the fault */
    return word ^ 5; /* fills a delay slot of SPARC, so that the load does not */
}

__attribute__((noinline)) static void check_sum(int sum) { assert(sum == 3); }

static void *in_thread(void *unused)
{
    (void)unused;
    return (void *)(uintptr_t)odd_load((const char *)words);
}

static int in_child(const char *program, const char *mode)
{
    int status;
    if (fork() == 0) {
        if (program)
            execl(program, program, mode, (char *)NULL);
        _exit((int)odd_load((const char *)words));
    }
    wait(&status);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "clean";
    pthread_t thread;
    char line[80] = "";
    if (!strcmp(mode, "ask")) {
        syscall(SYS_get_mempolicy, NULL, NULL, 0, NULL, 0);
        mode = argv[2];
    }
    if (!strcmp(mode, "odd"))
        return (int)odd_load((const char *)words);
    if (!strcmp(mode, "thread"))
        return pthread_create(&thread, NULL, in_thread, NULL) || pthread_join(thread, NULL);
    if (!strcmp(mode, "fork"))
        return in_child(NULL, "");
    if (!strcmp(mode, "exec"))
        return in_child("/proc/self/exe", "odd");
    if (!strcmp(mode, "abort"))
        abort();
    if (!strcmp(mode, "assert"))
        check_sum(argc);
    if (!strcmp(mode, "leave"))
        exit(9);
    if (!strcmp(mode, "say")) {
        fputs(argv[3], stderr);
        return atoi(argv[2]);
    }
    if (!strcmp(mode, "null"))
        return *(volatile int *)NULL;
    if (!strcmp(mode, "status"))
        return atoi(argv[2]);
    if (!strcmp(mode, "limit")) {
        signal(SIGXFSZ, SIG_IGN);
        return setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0});
    }
    if (!strcmp(mode, "wait"))
        pause();
    while (!strcmp(mode, "drain") && fgets(line, sizeof line, stdin))
        continue;
    if (!strcmp(mode, "read") && fgets(line, sizeof line, stdin))
        return !strcmp(line, "odd\n") ? (int)odd_load(line) : 0;
    printf("%s", argv[0]);
    for (int i = 1; i < argc; i++)
        printf(" [%s]", argv[i]);
    puts("");
    return 0;
}
"""
FAULT_LINE = next(n for n, line in enumerate(SOURCE.splitlines(), 1) if "the line of the fault" in line)
MAKEFILE = """\
odd: odd.c
\t$(CC) -O1 -pthread -o $@ $<
check: odd
\t./odd clean
\t-./odd $(MODE)
"""


@cache
def setup_of(target: str) -> TargetSetup:
    bench = Workbench.default()
    return set_up_target(bench, bench.catalog.targets[target])


@cache
def odd_program(target: str, *flags: str) -> Path:
    """The program, compiled as a build system does, with CC from the environment."""
    setup = setup_of(target)
    words = environment_for(setup)

    def compile_into(into: Path) -> None:
        (into / "odd.c").write_text(SOURCE, "utf-8")
        command = [words["CC"], "-O1", "-pthread", *flags, "-o", "odd", "odd.c"]
        process.run_successfully(command, problem="odd.c does not compile", deadline_seconds=120, folder=into)

    return Cache.default().folder("test-programs", key_of([SOURCE, target, words["CC"], *flags]), compile_into) / "odd"


class TracedRun:
    """One command in a folder with the program. It runs only under the tracer, without canaries and judgement."""

    def __init__(self, folder: Path, target: str) -> None:
        self.folder = folder / "tree"
        self.folder.mkdir()
        self.setup = setup_of(target)
        self.tracing: Tracing = tracing_of(self.setup, self.setup.runner("signal"))
        shutil.copy2(odd_program(target), self.folder / "odd")
        self.cells = folder / "cells"
        self.cell = self.cells

    def run(self, *words: str) -> int:
        self.cell = self.cells / str(time.monotonic_ns())
        self.cell.mkdir(parents=True)
        end = run_traced(
            self.tracing,
            self.cell,
            CommandRecord(words=list(words), folder=str(self.folder)),
            environment=environment_for(self.setup),
            log=self.cell / "output",
        )
        return end.code

    def judged(self, *words: str) -> tuple[list[str], CellVerdict]:
        """The ids of a command's findings, and its verdict if the canaries pass."""
        self.cells /= "armv5"
        code = self.run(*words)
        place = self.cell.rename(self.cells / program_launch.SUITE)
        command = CommandRecord(words=list(words), folder=str(self.folder))
        status = write_events(place, command, "armv5", CommandEnd(code=code, seconds=0.1))
        catalog = self.setup.bench.catalog
        record = RunRecord(
            server="sh",
            family="",
            policy="signal",
            optimisation="",
            emulator="pinned",
            seed=0,
            targets=["armv5"],
            suites=[program_launch.SUITE],
            binaries={},
            triples={"armv5": self.setup.toolchain.triple},
            machines={"armv5": self.setup.target},
            stages={},
            cells=[
                CellRecord(
                    target="armv5",
                    suite=program_launch.SUITE,
                    seconds=0.1,
                    status=status,
                    seal=evidence_seal.seal(place),
                )
            ],
            policies=rules.recorded_policies(catalog.policies, "signal", [self.setup.target]),
        )
        run_folder.write_run(self.cells.parent, record)
        findings, outcomes, _ = judge(stored_run.read(self.cells.parent))
        canary = msgspec.structs.replace(outcomes[0], suite="canary", passed=1, failed=0, doubts=[], unexplained=[])
        return [finding.id for finding in findings], cell_verdicts([canary, *outcomes], findings)[1]

    @property
    def output(self) -> str:
        return (self.cell / "output").read_text("utf-8")

    @property
    def launched(self) -> list[list[str]]:
        launches = map(program_launch.read_launch, program_launch.guests(self.cell))
        return [launch.words for launch in launches if launch is not None]

    @property
    def faults(self) -> list[int]:
        """The number of faults that each launch recorded."""
        guests = program_launch.guests(self.cell)
        return [len(fault_log.read_faults(guest / fault_log.NAME)) for guest in guests]


@pytest.fixture(params=["armv5", "sparc64"])
def traced(request: pytest.FixtureRequest, tmp_path: Path) -> TracedRun:
    return TracedRun(tmp_path, request.param)


@pytest.fixture
def traced_arm(tmp_path: Path) -> TracedRun:
    return TracedRun(tmp_path, "armv5")


WAYS = {
    "the command itself": ["./odd", "odd"],
    "a child of the shell": ["sh", "-c", "./odd odd; true"],
    "a grandchild": ["sh", "-c", "sh -c './odd odd; true'; true"],
    "a process in the background": ["sh", "-c", "./odd odd & wait"],
    "what the shell becomes": ["sh", "-c", "exec ./odd odd"],
    "another session": ["setsid", "--wait", "./odd", "odd"],
    "by the path": ["env", "PATH=.:/usr/bin:/bin", "odd", "odd"],
    "vfork": ["python3", "-c", "import subprocess; subprocess.run(['./odd', 'odd'])"],
    "posix_spawn": ["python3", "-c", "import os; os.waitpid(os.posix_spawn('./odd', ['./odd', 'odd'], os.environ), 0)"],
    "execveat": ["python3", "-c", "import os; os.execve(os.open('odd', 0), ['./odd', 'odd'], os.environ)"],
    "a thread's execution": [
        "python3",
        "-c",
        "import os, threading; threading.Thread(target=os.execv, args=('./odd', ['./odd', 'odd'])).start(); input()",
    ],
}


@pytest.mark.parametrize("words", WAYS.values(), ids=WAYS)
def test_every_way_to_execute_a_program_leads_to_the_emulator(traced_arm: TracedRun, words: list[str]) -> None:
    traced_arm.run(*words)
    assert [each[1:] for each in traced_arm.launched] == [["odd"]], traced_arm.output
    assert traced_arm.faults == [1]
    (guest,) = program_launch.guests(traced_arm.cell)
    assert [(note.how, note.number) for note in program_launch.read_ends(guest)] == [("killed", signal.SIGBUS)]


@pytest.mark.parametrize("end", ["leave", "abort"])
def test_a_program_that_asked_for_what_the_emulator_lacks_is_not_blamed_for_its_end(
    traced_arm: TracedRun, end: str
) -> None:
    """The tests of numactl ask for get_mempolicy(2) first, and fail without it."""
    found, cell = traced_arm.judged("./odd", "ask", end)
    assert (found, cell.verdict) == ([], Verdict.UNKNOWN)
    assert "get_mempolicy(2), which the emulator lacks" in cell.reason
    assert f"odd ask {end}" in cell.reason


def test_a_program_that_asked_for_what_the_emulator_lacks_may_pass(traced_arm: TracedRun) -> None:
    found, cell = traced_arm.judged("./odd", "ask", "clean")
    assert (found, cell.verdict) == ([], Verdict.PASS)


def test_what_the_emulator_lacks_excuses_no_misaligned_access(traced_arm: TracedRun) -> None:
    found, cell = traced_arm.judged("sh", "-c", "./odd ask odd; ./odd ask leave; ./odd leave")
    assert found == ["alignment-odd_load-load", "exit-odd_leave-9"]
    assert (cell.verdict, "odd ask leave" in cell.reason) == (Verdict.FAIL, True)


def test_programs_that_a_program_of_the_target_executes_are_traced_too(traced: TracedRun) -> None:
    assert traced.run("./odd", "exec") == 0
    assert [each[1] for each in traced.launched] == ["exec", "odd"]
    assert traced.faults == [0, 1]


def test_children_and_threads_belong_to_the_program_that_began_them(traced: TracedRun) -> None:
    assert traced.run("./odd", "fork") == 0
    assert traced.faults == [1]
    (guest,) = program_launch.guests(traced.cell)
    assert sorted(note.how for note in program_launch.read_ends(guest)) == ["exited", "killed"]
    traced.run("./odd", "thread")
    assert traced.faults == [1]


def test_a_program_sees_the_name_and_the_arguments_that_it_was_given(traced: TracedRun) -> None:
    assert traced.run("sh", "-c", "exec -a 'an other' ./odd 'one two' '' '*'") in {0, 2, 127}
    assert traced.run("bash", "-c", "exec -a 'an other' ./odd 'one two' '' '*'") == 0
    assert traced.output == "an other [one two] [] [*]\n"


def test_scripts_are_run_by_interpreters_of_the_target(traced_arm: TracedRun) -> None:
    tree = traced_arm.folder
    (tree / "script").write_text(f"#! {tree}/odd  first word \nnothing\n", "utf-8")
    (tree / "above").write_text(f"#!{tree}/script\n", "utf-8")
    for name in ("script", "above"):
        (tree / name).chmod(0o755)
    assert traced_arm.run("sh", "-c", "./script a b") == 0
    assert traced_arm.output == f"{tree}/odd [first word] [./script] [a] [b]\n"
    # As in the kernel, the interpreter of an interpreter comes first.
    assert traced_arm.run("./above", "c") == 0
    assert traced_arm.output == f"{tree}/odd [first word] [{tree}/script] [./above] [c]\n"


def test_host_programs_run_unchanged(traced_arm: TracedRun) -> None:
    assert traced_arm.run("sh", "-c", "uname -m; ls /proc/self/exe; exit 3") == 3
    assert traced_arm.output.split() == [os.uname().machine, "/proc/self/exe"]
    assert traced_arm.launched == []


def test_a_refused_execution_leaves_the_caller_unchanged(traced_arm: TracedRun) -> None:
    """The tracer has replaced the path, and the kernel refuses the arguments. The caller tries the next path."""
    program = """
import os
for words in (["./odd", "x" * (1 << 18)], ["./odd", "fine"]):
    try:
        os.execv("./odd", words)
    except OSError as error:
        print(error.strerror, flush=True)
"""
    assert traced_arm.run("python3", "-c", program) == 0
    assert traced_arm.output == "Argument list too long\n./odd [fine]\n"


REGISTERS = r"""
#include <stdio.h>
#include <sys/syscall.h>

int main(int argc, char **argv, char **environment)
{
    static char big[1 << 18];
    char *words[] = {argv[1], big, NULL};
    const char *path = argv[1];
    long result = SYS_execve;
    for (unsigned i = 0; i < sizeof big - 1; i++)
        big[i] = 'x';
    __asm__ volatile("syscall" : "+a"(result), "+D"(path) : "S"(words), "d"(environment) : "rcx", "r11", "memory");
    printf("%ld %s\n", result, path == argv[1] ? "kept" : "changed");
    return argc != 2;
}
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="it names registers of x86-64")
def test_a_refused_execution_changes_no_register(traced_arm: TracedRun) -> None:
    """A compiler assumes that a system call preserves them."""
    compiled_here(REGISTERS, traced_arm.folder, "registers")
    assert traced_arm.run("./registers", "./odd") == 0
    assert traced_arm.output == f"{-errno.E2BIG} kept\n"


def test_the_launch_is_recorded_with_environment_folder_and_input(traced_arm: TracedRun) -> None:
    (traced_arm.folder / "below").mkdir()
    (traced_arm.folder / "in").write_text("first\nodd\n", "utf-8")
    script = "cd below; unset HOME; NEW='a b' ; export NEW; { read one; ../odd read; } <../in; true"
    environment = {"HOME": "/root", **os.environ}
    assert "NEW" not in environment
    assert traced_arm.run("bash", "-c", script) == 0
    (guest,) = program_launch.guests(traced_arm.cell)
    launch = program_launch.read_launch(guest)
    assert launch is not None
    assert launch.words == ["../odd", "read"]
    assert launch.folder == str(traced_arm.folder / "below")
    assert launch.program == launch.file == str(traced_arm.folder / "odd")
    assert launch.environment["NEW"] == "a b"
    assert launch.environment.get("HOME", "unchanged") is None
    assert "PATH" not in launch.environment
    # The recorded input does not include what the shell had already read.
    assert (guest / program_launch.INPUT).read_text("utf-8") == "odd\n"
    assert traced_arm.faults == [1]


def test_what_a_failing_program_said_is_recorded(traced: TracedRun) -> None:
    """Wherever it goes, and its end if it is long: a pipe, a file and a terminal are the same to a program."""
    long = "".join(f"{number} " for number in range(2000))
    script = f"./odd say 3 'wrong sum' 2>/dev/null; ./odd say 0 fine; ./odd say 1 '{long}' 2>&1 | cat >all"
    assert traced.run("sh", "-c", script) == 0
    guests = program_launch.guests(traced.cell)
    assert [(guest / "log").is_file() for guest in guests] == [True, False, True]
    assert (guests[0] / "log").read_text("utf-8") == "wrong sum"
    assert (guests[2] / "log").read_text("utf-8") == long[-4096:]
    assert (traced.folder / "all").read_text("utf-8") == long


def test_the_order_in_which_programs_ended_is_recorded(traced_arm: TracedRun) -> None:
    script = "{ sleep 1; exec ./odd status 1; } & ./odd status 2; wait"
    traced_arm.run("sh", "-c", script)
    ends = [note for guest in program_launch.guests(traced_arm.cell) for note in program_launch.read_ends(guest)]
    assert [note.number for note in sorted(ends, key=lambda note: note.order)] == [2, 1]
    assert sorted(note.order for note in ends) == [1, 2]


def test_what_a_program_reads_from_a_pipe_is_recorded_unless_it_is_too_long(traced_arm: TracedRun) -> None:
    script = "printf 'odd\\nrest\\n' | ./odd read; yes fine | head -c 2000000 | ./odd drain; ./odd drain </dev/null"
    traced_arm.run("sh", "-c", script)
    guests = program_launch.guests(traced_arm.cell)
    kept = [
        (guest / program_launch.INPUT).read_text("utf-8") if (guest / program_launch.INPUT).is_file() else None
        for guest in guests
    ]
    assert kept == ["odd\nrest\n", None, None]
    assert traced_arm.faults == [1, 0, 0]


STREAMS = {
    "terminal": "import pty, subprocess; a, b = pty.openpty(); os.write(a, b'odd\\n')",
    "socket": "import socket, subprocess; a, b = socket.socketpair(); a.send(b'odd\\n'); a.close()",
}


@pytest.mark.parametrize("stream", STREAMS)
def test_what_a_program_reads_from_a_terminal_or_a_socket_is_recorded(traced_arm: TracedRun, stream: str) -> None:
    """Otherwise a replay reads nothing, and takes the finding for gone."""
    script = f"{STREAMS[stream]}; subprocess.run(['./odd', 'read'], stdin=b); subprocess.run(['./odd'], stdin=b)"
    traced_arm.run("sh", "-c", f'{PYTHON} "{script}"')
    guests = program_launch.guests(traced_arm.cell)
    assert [(guest / program_launch.INPUT).read_bytes() for guest in guests] == [b"odd\n", b""]
    assert traced_arm.faults == [1, 0]


def test_a_program_that_a_command_leaves_running_is_ended_and_makes_the_run_unknown(traced_arm: TracedRun) -> None:
    found, cell = traced_arm.judged("sh", "-c", "./odd; setsid ./odd wait & sleep 0.5")
    assert (found, cell.verdict) == ([], Verdict.UNKNOWN)
    assert f"Plumbline ended them: {traced_arm.folder / 'odd'}" in cell.reason
    place = traced_arm.cells / program_launch.SUITE
    assert program_launch.lines_of(place, program_launch.LEFT) == ["1"]
    assert processes_of(traced_arm.folder) == []


def test_a_host_program_that_a_command_leaves_running_does_not_affect_the_verdict(traced_arm: TracedRun) -> None:
    found, cell = traced_arm.judged("sh", "-c", "./odd; setsid sleep 1000 & true")
    assert (found, cell.verdict) == ([], Verdict.PASS)


def test_background_programs_have_time_to_end_after_the_command(traced_arm: TracedRun) -> None:
    found, cell = traced_arm.judged("sh", "-c", "{ sleep 1; ./odd odd; } >/dev/null 2>&1 & true")
    assert (len(found), cell.verdict) == (1, Verdict.FAIL)
    assert program_launch.lines_of(traced_arm.cells / program_launch.SUITE, program_launch.LEFT) == []


def test_a_program_for_another_machine_is_recorded(traced_arm: TracedRun) -> None:
    shutil.copy2(odd_program("sparc64"), traced_arm.folder / "other")
    assert traced_arm.run("sh", "-c", "./other 2>/dev/null; ./odd") == 0
    assert program_launch.lines_of(traced_arm.cell, program_launch.REFUSED) == ["43 ./other"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes its root folder")
def test_a_program_below_another_root_is_recorded(traced_arm: TracedRun) -> None:
    program = "import os; os.chroot('.'); os.execv('/odd', ['odd'])"
    assert traced_arm.run("python3", "-c", program) != 0
    (line,) = program_launch.lines_of(traced_arm.cell, program_launch.TROUBLE)
    assert line == "/odd, by a process that has another root folder"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_program_of_another_user_that_cannot_be_emulated_is_recorded(traced_arm: TracedRun) -> None:
    program = "import os; os.setgid(65534); os.setuid(65534); os.execv('./odd', ['odd', 'odd'])"
    traced_arm.cell.parent.chmod(0o755)
    found, cell = traced_arm.judged("sh", "-c", f'./odd; python3 -c "{program}"; true')
    assert (cell.verdict, found) == (Verdict.UNKNOWN, [])
    assert "./odd: the kernel refused its emulator: Permission denied" in cell.reason


def without_capabilities(traced: TracedRun, dropped: str) -> None:
    """Trace as a user without root's capabilities."""
    if os.geteuid() == 0:
        wrapper = traced.folder / "tracer"
        command = f'exec setpriv --bounding-set={dropped} {traced.tracing.tracer} "$@"'
        wrapper.write_text(f"#!/bin/sh\n{command}\n", "utf-8")
        wrapper.chmod(0o755)
        traced.tracing = msgspec.structs.replace(traced.tracing, tracer=wrapper)


@pytest.mark.parametrize(
    ("script", "verdict", "reason"),
    [
        ("chmod 111 odd; ./odd odd", Verdict.UNKNOWN, "a file that you may execute and not read"),
        ("cp /bin/true .; chmod 111 true; ./true", Verdict.PASS, ""),
    ],
)
def test_a_file_that_can_be_executed_but_not_read_is_recorded(
    traced_arm: TracedRun, script: str, verdict: Verdict, reason: str
) -> None:
    without_capabilities(traced_arm, "-dac_override,-dac_read_search")
    found, cell = traced_arm.judged("sh", "-c", f"cp odd clean; ./clean; {script}; true")
    assert (cell.verdict, found) == (verdict, []), cell
    assert reason in cell.reason


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a namespace everywhere")
def test_a_program_in_a_separate_pid_namespace_is_recorded(traced_arm: TracedRun) -> None:
    """The emulator would be the namespace's first process, which its own signals cannot kill."""
    found, cell = traced_arm.judged("sh", "-c", "./odd; timeout 20 unshare --pid --fork ./odd odd; true")
    assert (cell.verdict, found) == (Verdict.UNKNOWN, [])
    assert "./odd, by a process that has a PID namespace of its own" in cell.reason


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a namespace everywhere")
def test_a_status_is_not_blamed_beside_a_program_that_could_not_run(traced_arm: TracedRun) -> None:
    """The command may have failed because of that one, and may have expected the status."""
    found, cell = traced_arm.judged("sh", "-c", "./odd leave; unshare --pid --fork ./odd")
    assert (cell.verdict, found) == (Verdict.UNKNOWN, [])
    assert "programs failed, maybe because others could not be traced: odd leave" in cell.reason


@pytest.mark.parametrize(
    ("program", "verdict", "reason"),
    [("./odd", Verdict.UNKNOWN, "which lets nobody read its memory"), ("/bin/true", Verdict.PASS, "")],
)
def test_a_program_executed_by_an_unreadable_process_is_recorded(
    traced_arm: TracedRun, program: str, verdict: Verdict, reason: str
) -> None:
    without_capabilities(traced_arm, "-sys_ptrace")
    # PR_SET_DUMPABLE is 4.
    hidden = f"import ctypes, os; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); os.execv('{program}', ['odd', 'odd'])"
    found, cell = traced_arm.judged("sh", "-c", f'./odd; python3 -c "{hidden}"; true')
    assert (cell.verdict, found) == (verdict, []), cell
    assert reason in cell.reason


def test_commands_that_cannot_run_are_refused(traced_arm: TracedRun) -> None:
    tree, environment = traced_arm.folder, environment_for(traced_arm.setup)
    shutil.copy2(odd_program("sparc64"), tree / "other")
    # Byte order is at 5, and the machine at 18 (elf(5)).
    program = bytearray(odd_program("armv5").read_bytes())
    program[5], program[18:20] = 2, program[18:20][::-1]
    (tree / "armeb").write_bytes(program)
    (tree / "armeb").chmod(0o755)
    (tree / "script").write_text("#!/nowhere/at/all\n", "utf-8")
    (tree / "script").chmod(0o755)
    (tree / "plain").write_text("echo\n", "utf-8")
    for word, message in {
        "./absent": "there is no program ./absent",
        "absent-anywhere": "there is no program absent-anywhere",
        "./plain": "./plain cannot be executed",
        "./script": "the interpreter of ./script does not exist",
    }.items():
        with pytest.raises(UsageError, match=f"error: {message} \\(PROGRAM\\)"):
            check_command([word], environment, tree)
    for word, machine in {
        "./other": "EM_SPARCV9, 64 bits, big-endian",
        "./armeb": "EM_ARM, 32 bits, big-endian",
    }.items():
        with pytest.raises(UsageError, match=f"error: {word} is not a program for armv5") as refused:
            check_machine(traced_arm.tracing, word, check_command([word], environment, tree))
        assert f"it is for {machine}, and programs for armv5 are for EM_ARM, 32 bits, little-endian" in str(
            refused.value
        )
    for word in ("./odd", "sh", "make"):
        check_machine(traced_arm.tracing, word, check_command([word], environment, tree))


def test_a_misspelled_program_is_reported_before_anything_is_built(tmp_path: Path) -> None:
    """The error must not come after minutes of compiling QEMU."""
    cache = tmp_path / "cache"
    words = ["exec", "--target", "armv5", "--offline", "--no-install", "--", "./absent"]
    finished = subprocess.run(
        [*PLUMB, *words],
        cwd=tmp_path,
        env={**os.environ, "PLUMBLINE_CACHE": str(cache)},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (finished.returncode, "there is no program ./absent" in finished.stderr) == (ExitCode.USAGE, True), finished
    assert not list(tmp_path.glob("runs/*")), "a run folder was created"


@pytest.mark.parametrize("words", [["env"], ["deb", "zlib"], ["exec", "--", "true"]])
def test_a_second_target_is_refused_and_not_silently_ignored(tmp_path: Path, words: list[str]) -> None:
    finished = plumb(tmp_path, words[0], "--target", "sparc64", "--target", "armv5", *words[1:])
    printed = failing_shell() if words == ["env"] else ""
    assert (finished.returncode, finished.stdout) == (ExitCode.USAGE, printed)
    assert "one target at a time, not 2" in finished.stderr


def test_a_target_whose_programs_are_host_programs_is_refused() -> None:
    """For example `aarch64` on an AArch64 machine: the emulator is such a program, and would itself be emulated."""
    setup = setup_of("armv5")
    with pytest.raises(UsageError, match="programs for armv5 are host programs"):
        prepare_tracing(setup.bench.cache, setup.toolchain, setup.runner("signal"), Path(sys.executable))


def test_a_static_program_and_one_with_the_set_uid_bit_run(traced_arm: TracedRun) -> None:
    shutil.copy2(odd_program("armv5", "-static"), traced_arm.folder / "static")
    shutil.copy2(odd_program("armv5"), traced_arm.folder / "setuid")
    (traced_arm.folder / "setuid").chmod(0o4755)
    assert traced_arm.run("sh", "-c", "./static odd; ./setuid odd; true") == 0
    assert traced_arm.faults == [1, 1]


def plumb(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PLUMB, *map(str, words)], cwd=folder, capture_output=True, encoding="utf-8", timeout=600, check=False
    )


def executed(folder: Path, target: str, words: Sequence[str], *options: str) -> tuple[int, dict[str, Any]]:
    finished = plumb(folder, "exec", "--json", "--target", target, *options, "--", *words)
    assert finished.stdout.startswith("{"), finished.stderr
    return finished.returncode, json.loads(finished.stdout)


def written(folder: Path) -> Path:
    (folder / "odd.c").write_text(SOURCE, "utf-8")
    (folder / "Makefile").write_text(MAKEFILE, "utf-8")
    return folder


def committed(folder: Path) -> str:
    """Make a folder a repository with one commit of its sources, and return the commit."""
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "--quiet"], ["add", "odd.c", "Makefile"], ["commit", "--quiet", "--message", "first"]):
        subprocess.run([*git, *words], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, encoding="utf-8").stdout.strip()


@pytest.mark.parametrize("target", [machines.beyond("armv5"), "sparc64"])
def test_a_fault_below_make_is_located_and_replayed(tmp_path: Path, target: str) -> None:
    """The tree is compiled by its own makefile, and the fault happens in a child of its test."""
    code, found = executed(written(tmp_path), target, ["make", "check", "MODE=exec"])
    assert code == ExitCode.FINDINGS
    (finding,) = found["findings"]
    assert finding["id"] == "alignment-odd_load-load"
    assert (finding["function"], finding["file"], finding["line"]) == ("odd_load", "odd.c", FAULT_LINE)
    assert finding["origin"] == "program"
    assert finding["command"] == f"{tmp_path}/odd odd"
    assert [frame["function"] for frame in finding["witnesses"][0]["backtrace"]][:2] == ["odd_load", "main"]
    assert any(
        remark.startswith(f"3 executions below the command on {target}, 1 distinct: ") for remark in found["remarks"]
    )
    reproducer = finding["replay"].rpartition(" ")[2]
    again = plumb(tmp_path, "replay", reproducer)
    assert again.returncode == ExitCode.FINDINGS, again.stdout + again.stderr
    if target != "armv5":
        return
    # The program is fixed, and the finding is gone. A run records the commit.
    commit = committed(tmp_path)
    assert (found["revision"], "+changes" in commit) == ("", False)
    (tmp_path / "odd.c").write_text(SOURCE.replace("(near + 1)", "(near + 4)"), "utf-8")
    code, mended = executed(tmp_path, target, ["make", "check", "MODE=exec"], "--run", str(tmp_path / "fixed"))
    assert (code, mended["revision"]) == (ExitCode.PASS, f"{commit}+changes")
    assert plumb(tmp_path, "replay", reproducer).returncode == ExitCode.PASS


PYTHON = "python3 -c 'import os,sys; exec(sys.argv[1])'"
CASES: dict[str, tuple[Verdict, list[str], str]] = {
    "./odd": (Verdict.PASS, [], ""),
    "./odd abort; true": (Verdict.FAIL, ["crash-odd-SIGABRT"], ""),
    "./odd null; true": (Verdict.FAIL, ["sigsegv-main"], ""),
    "./odd fork": (Verdict.FAIL, ["alignment-odd_load-load"], ""),
    "./odd thread; true": (Verdict.FAIL, ["alignment-odd_load-load"], ""),
    "./odd odd": (Verdict.FAIL, ["alignment-odd_load-load"], ""),
    "./odd status 3 && true": (Verdict.FAIL, ["exit-odd_status_3-3"], ""),
    # Each program that failed is a finding, in the order in which they ended, and no program hides another.
    "./odd odd; ./odd status 3": (Verdict.FAIL, ["alignment-odd_load-load", "exit-odd_status_3-3"], ""),
    "./odd status 3; ./odd status 4; ./odd odd; ./odd abort; ./odd; false": (
        Verdict.FAIL,
        ["exit-odd_status_3-3", "exit-odd_status_4-4", "alignment-odd_load-load", "crash-odd-SIGABRT"],
        "",
    ),
    "{ sleep 1; exec ./odd status 1; } & ./odd status 2; wait; false": (
        Verdict.FAIL,
        ["exit-odd_status_2-2", "exit-odd_status_1-1"],
        "",
    ),
    # A command that succeeds expected the statuses of its programs.
    "./odd status 3; true": (Verdict.PASS, [], ""),
    # A skipped test and a program that was ended are no reasons beside one that failed.
    "./odd status 77; ./odd wait & sleep 0.3; kill $!; ./odd status 3": (Verdict.FAIL, ["exit-odd_status_3-3"], ""),
    "./odd assert; true": (Verdict.FAIL, ["assertion-check_sum"], ""),
    "./odd say 1 'odd.c:31: wrong sum'": (Verdict.FAIL, ["exit-odd_say_1_odd.c_31_wrong_sum-1"], ""),
    # Two reasons to abort are two findings, and the same one twice is one.
    "./odd say 134 'no memory at 0x10'; ./odd abort a; ./odd abort; false": (
        Verdict.FAIL,
        ["exit-odd_say_134_no_memory_at_0x10-134", "crash-odd-SIGABRT"],
        "",
    ),
    "./odd wait & sleep 0.3; kill $!": (Verdict.PASS, [], ""),
    "./odd; exit 3": (Verdict.UNKNOWN, [], "the reason lies outside of them"),
    # A build system's probe of a misaligned load is not a finding, and does not count as a program.
    "exec 5>config.log; mv odd conftest; ./conftest odd; ./conftest; true": (
        Verdict.UNKNOWN,
        [],
        "no program of armv5 ran below it",
    ),
    "cp odd conftest; (./conftest odd) 2>>config.log; ./odd": (Verdict.PASS, [], ""),
    # A project's own program of that name is not a probe.
    "cp odd conftest; ./conftest odd; true": (Verdict.FAIL, ["alignment-odd_load-load"], ""),
    # Tests that are skipped test nothing.
    "./odd status 77; ./odd status 77; true": (
        Verdict.UNKNOWN,
        [],
        "each program of armv5 that ran below it ended with status 77",
    ),
    "./odd status 77; ./odd": (Verdict.PASS, [], ""),
    "./odd status 77": (Verdict.FAIL, ["exit-odd_status_77-77"], ""),
    # A child that the kernel must not trace, at its parent's request.
    "./odd; ./untraced clone ./odd odd": (Verdict.FAIL, ["alignment-odd_load-load"], ""),
    "./odd; ./untraced clone3 ./odd odd": (Verdict.FAIL, ["alignment-odd_load-load"], ""),
    "./odd; ./untraced clone /bin/true; ./untraced clone3 /bin/true": (Verdict.PASS, [], ""),
    # Another process may decide that an execution bypasses the tracer.
    "./odd; ./untraced listener /bin/true": (Verdict.UNKNOWN, [], "it lets another one decide on system calls"),
    # The maximum number of interpreters that Linux follows.
    'ln odd s0; for i in 1 2 3 4 5; do echo "#!$PWD/s$((i - 1)) odd" >s$i; chmod +x s$i; done; ./odd; ./s5; true': (
        Verdict.FAIL,
        ["alignment-odd_load-load"],
        "",
    ),
    "mkdir gone; cd gone; rmdir ../gone; ../odd; ../odd odd; true": (
        Verdict.FAIL,
        ["alignment-odd_load-load"],
        "",
    ),
    # A folder may have any name, and the faults of its programs must still have functions.
    **{
        f'd="{name}"; mkdir "$d"; cp odd "$d"; "$d"/odd odd; true': (Verdict.FAIL, ["alignment-odd_load-load"], "")
        for name in ("$(printf 'a\\nb')", "$(printf 'a\\vb')", "ä", "\\\\101")
    },
    # Arguments are bytes.
    "./odd odd \"$(printf '\\377')\"; ./odd \"$(printf '\\376')\"": (Verdict.FAIL, ["alignment-odd_load-load"], ""),
    "./odd status 3 \"$(printf '\\377')\"": (Verdict.FAIL, ["exit-odd_status_3_xff-3"], ""),
    "true": (Verdict.UNKNOWN, [], "no program of armv5 ran below it"),
    "python3 -c pass; false": (
        Verdict.UNKNOWN,
        [],
        "it ended with status 1; only programs of this machine ran (",
    ),
    # A test that an earlier build compiled for the host.
    "cp /bin/true own; ./own": (
        Verdict.UNKNOWN,
        [],
        "only programs of this machine ran (cp, own): if an earlier build for this machine left own, remove it first",
    ),
    "./other 2>&1; ./odd": (
        Verdict.UNKNOWN,
        [],
        "programs for other machines could not run: ./other (EM_SPARCV9); if an earlier build left them",
    ),
    # The shell reads a script without an interpreter. A script with another machine's interpreter needs that machine's
    # kernel.
    "echo 'exit 0' >s; chmod +x s; ./s": (Verdict.UNKNOWN, [], "no program of armv5 ran below it"),
    'echo "#!$PWD/other" >s; chmod +x s; ./odd; ./s 2>&1; true': (
        Verdict.UNKNOWN,
        [],
        "programs for other machines could not run: ./s (EM_SPARCV9)",
    ),
    # A copy that was cut because the disk was full.
    "head -c 3000 odd >cut; chmod +x cut; ./odd; ./cut; true": (
        Verdict.UNKNOWN,
        [],
        "its emulator was killed by SIGBUS, and what it ran was not",
    ),
    "./odd limit": (Verdict.UNKNOWN, [], "that the emulator began"),
    # An open file is executed by its path. A file without a path would need the target's kernel.
    f"./odd; {PYTHON} \"os.execve('/proc/self/fd/%d' % os.open('odd', 0), ['odd', 'odd'], os.environ)\"; true": (
        Verdict.FAIL,
        ["alignment-odd_load-load"],
        "",
    ),
    f"./odd; {PYTHON} \"f = os.open('odd', 0); os.remove('odd'); os.execve(f, ['odd'], os.environ)\"; true": (
        Verdict.UNKNOWN,
        [],
        "odd (deleted), an open file that no path leads to",
    ),
    f"./odd; {PYTHON} \"f = os.memfd_create('m'); os.sendfile(f, os.open('odd', 0), 0, 1 << 30);"
    " os.execve(f, ['odd'], os.environ)\"; true": (
        Verdict.UNKNOWN,
        [],
        "/memfd:m (deleted), an open file that no path leads to",
    ),
    "./odd; ./odd odd; rm -r ../cells/armv5/[0-9]*/guest-2; true": (
        Verdict.UNKNOWN,
        [],
        "guest-2, whose evidence was removed while the command ran",
    ),
    "./odd; ./qemu-arm ./odd odd; ./qemu-arm-static ./odd odd; true": (
        Verdict.UNKNOWN,
        [],
        "/qemu-arm, which the command runs programs under by itself",
    ),
    "ulimit -f 0; trap '' XFSZ; ./odd; true": (Verdict.UNKNOWN, [], "no record shows which program was executed"),
    "sed -i s/linux/limux/g odd; ./odd; true": (Verdict.UNKNOWN, [], "/lib/ld-limux.so.3, is not among the libraries"),
    # Then the command's failure is no finding.
    "sed -i s/linux/limux/g odd; ./odd": (Verdict.UNKNOWN, [], "/lib/ld-limux.so.3, is not among the libraries"),
    # The emulator takes no options from the command.
    "./odd; QEMU_ALIGNMENT=all=ignore ./odd odd; true": (Verdict.FAIL, ["alignment-odd_load-load"], ""),
    "QEMU_STRACE=1 QEMU_VERSION=1 ./odd": (Verdict.PASS, [], ""),
}


UNTRACED = r"""
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static long begin(const char *way)
{
    /* Read-only memory. */
    static const struct clone_args fixed = {.flags = CLONE_UNTRACED, .exit_signal = SIGCHLD};
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {1, &all};
    if (!strcmp(way, "clone3"))
        return syscall(SYS_clone3, &fixed, sizeof fixed);
    if (!strcmp(way, "clone"))
        return syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0);
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
    return fork();
}

int main(int count, char **words)
{
    int status;
    long pid = count > 2 ? begin(words[1]) : -1;
    if (pid == 0) {
        execv(words[2], words + 2);
        _exit(99);
    }
    return pid < 0 || waitpid((pid_t)pid, &status, 0) != pid || (WIFEXITED(status) && WEXITSTATUS(status) == 99);
}
"""


def compiled_here(text: str, into: Path, name: str) -> None:
    """Compile a host program into a folder."""
    (into / f"{name}.c").write_text(text, "utf-8")
    process.run_successfully(
        ["gcc", "-O2", "-o", name, f"{name}.c"],
        problem=f"{name}.c does not compile",
        deadline_seconds=60,
        folder=into,
    )


@pytest.mark.parametrize("script", CASES)
def test_the_verdict_of_a_command(traced_arm: TracedRun, script: str) -> None:
    """CASES has the verdict, the findings and, for UNKNOWN, a part of the reason."""
    verdict, identities, reason = CASES[script]
    if "untraced" in script:
        compiled_here(UNTRACED, traced_arm.folder, "untraced")
    shutil.copy2(odd_program("sparc64"), traced_arm.folder / "other")
    for name in ("qemu-arm", "qemu-arm-static"):
        (traced_arm.folder / name).symlink_to(str(traced_arm.tracing.runner.program))
    found, cell = traced_arm.judged("sh", "-c", script)
    assert (cell.verdict, found) == (verdict, identities), cell
    assert reason in cell.reason


RENAMED = SOURCE.replace("odd_load", "even_load")


def test_a_finding_in_an_overwritten_program_names_no_function(tmp_path: Path) -> None:
    """Tests compile one program after another to the same name. The last program is not the one with the fault."""
    (tmp_path / "odd.c").write_text(SOURCE, "utf-8")
    (tmp_path / "even.c").write_text(RENAMED, "utf-8")
    build = '"$CC" -pthread -o test'
    script = f"{build} odd.c; ./test odd; {build} even.c; ./test clean; {build} even.c; ./test odd; true"
    code, found = executed(tmp_path, "armv5", ["sh", "-c", script])
    assert code == ExitCode.FINDINGS
    assert {(one["id"], one["origin"], one["file"]) for one in found["findings"]} == {
        ("alignment-??-load", "program", "test"),
        ("alignment-even_load-load", "program", "even.c"),
    }
    kept = next(remark for remark in found["remarks"] if "overwritten" in remark)
    assert kept.startswith(
        f"findings lack function names in files that were overwritten or removed while the command ran: {tmp_path}/test"
    )


def test_a_removed_probe_causes_no_remark(traced_arm: TracedRun) -> None:
    """A configure script removes its probes."""
    traced_arm.run(
        "sh", "-c", "exec 5>config.log; cp odd conftest; ./conftest odd; rm conftest; cp odd gone; ./gone odd; rm gone"
    )
    changed = [
        program_launch.lines_of(guest, program_launch.CHANGED) for guest in program_launch.guests(traced_arm.cell)
    ]
    assert changed == [[], [str(traced_arm.folder / "gone")]]


def test_an_audit_counts_every_access_but_enforces_nothing(tmp_path: Path) -> None:
    shutil.copy2(odd_program("armv5"), tmp_path / "odd")
    code, found = executed(tmp_path, "armv5", ["sh", "-c", "./odd odd; ./odd fork"], "--audit")
    assert code == ExitCode.FINDINGS
    (finding,) = found["findings"]
    assert finding["witnesses"][0]["detector"] == "audit"
    assert finding["occurrences"] == 2


@pytest.mark.parametrize("number", [signal.SIGKILL, *map(machines.beyond, (signal.SIGTERM, signal.SIGINT))])
def test_no_process_outlives_an_interrupted_command(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C reaches every process of the terminal; the other signals reach only plumb."""
    shutil.copy2(odd_program("armv5"), tmp_path / "odd")
    words = [*PLUMB, "exec", "--target", "armv5", "--", "sh", "-c", "setsid ./odd wait & ./odd wait"]
    silent = subprocess.DEVNULL
    with subprocess.Popen(words, cwd=tmp_path, stdout=silent, stderr=silent, start_new_session=True) as one:
        try:
            # One of the processes is in a separate session.
            assert wait_for(lambda: len(processes_of(tmp_path, named="qemu-")) == 2, seconds=120)
        finally:
            os.killpg(one.pid, number) if number == signal.SIGINT else one.send_signal(number)
    assert one.returncode == (-number if number == signal.SIGKILL else ExitCode.INTERRUPTED)
    assert wait_for(lambda: not processes_of(tmp_path), seconds=30), processes_of(tmp_path)


def test_killing_the_tracer_kills_the_traced_processes(traced_arm: TracedRun) -> None:
    """The kernel kills them, even if no process of the harness is left."""
    place = traced_arm.cells / "place"
    place.mkdir(parents=True)
    command = ["sh", "sh", "-c", "setsid sleep 300 & sleep 300"]
    words = [str(traced_arm.tracing.tracer), str(place), str(place), "none", "none", "1,1,40", *command]
    with (
        tempfile.TemporaryDirectory(prefix="x") as short,
        subprocess.Popen([words[0], short, *words[2:]], cwd=traced_arm.folder) as tracer,
    ):
        try:
            assert wait_for(lambda: len(processes_of(traced_arm.folder, named="sleep")) == 2, seconds=20)
        finally:
            tracer.kill()
    assert wait_for(lambda: not processes_of(traced_arm.folder), seconds=10), processes_of(traced_arm.folder)


ENDS_OF_TRACERS = {
    "kill -9 $PPID": "the tracer was killed by SIGKILL",
    """rm -r "$(tr '\\0' '\\n' </proc/$PPID/cmdline | sed -n 2p)"; ./odd""": "which the tracer needs, while",
    "rm -r ../cells; true": "something removed its folder while the command ran",
}


@pytest.mark.parametrize("script", ENDS_OF_TRACERS)
def test_a_command_that_removes_its_tracer_has_no_verdict(traced_arm: TracedRun, script: str) -> None:
    with pytest.raises(InfrastructureError) as caught:
        traced_arm.run("sh", "-c", script)
    assert ENDS_OF_TRACERS[script] in caught.value.because
    assert processes_of(traced_arm.folder) == []


def test_a_reproducer_from_elsewhere_is_refused(tmp_path: Path) -> None:
    shutil.copy2(odd_program("armv5"), tmp_path / "odd")
    _, found = executed(tmp_path, "armv5", ["./odd", "odd"])
    path = Path(found["findings"][0]["replay"].rpartition(" ")[2])
    path.write_text(path.read_text("utf-8").replace('"odd"', '"fork"'), "utf-8")
    for options in ((), ("--trust",)):
        refused = plumb(tmp_path, "replay", str(path), *options)
        assert refused.returncode == ExitCode.USAGE
        assert "no run on this host made the reproducer" in refused.stderr


@pytest.mark.slow(instead="the other tests of test_programs.py, whose programs are linked with shared libraries")
def test_programs_find_their_loader_and_libraries_in_the_given_root(tmp_path: Path) -> None:
    """The root is another distribution's, such as Buildroot's. A loader of this name exists nowhere else."""
    tree, root = tmp_path / "tree", tmp_path / "root"
    tree.mkdir()
    (root / "lib").mkdir(parents=True)
    shutil.copy2(odd_program("armv5", "-Wl,--dynamic-linker=/lib/ld-other.so.1"), tree / "odd")
    usual = setup_of("armv5").guest_root / "lib"
    shutil.copy2(usual / "ld-linux.so.3", root / "lib" / "ld-other.so.1")
    for name in ("libc.so.6", "libpthread.so.0"):
        shutil.copy2(usual / name, root / "lib" / name)
    code, found = executed(tree, "armv5", ["./odd"])
    assert (code, found["verdict"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN")
    assert executed(tree, "armv5", ["./odd"], "--sysroot", "../root")[0] == ExitCode.PASS
    code, found = executed(tree, "armv5", ["sh", "-c", "./odd odd; true"], "--sysroot", "../root")
    (finding,) = found["findings"]
    assert (code, finding["id"], finding["line"]) == (ExitCode.FINDINGS, "alignment-odd_load-load", FAULT_LINE)
    reproducer = finding["replay"].rpartition(" ")[2]
    assert plumb(tmp_path, "replay", reproducer).returncode == ExitCode.FINDINGS
    root.rename(tmp_path / "moved")
    gone = plumb(tmp_path, "replay", reproducer)
    assert gone.returncode == ExitCode.USAGE
    assert "the root folder of the target's programs no longer exists" in gone.stderr
    assert plumb(tree, "exec", "--target", "armv5", "--sysroot", "../root", "--", "./odd").returncode == ExitCode.USAGE


def test_the_environment_compiles_for_the_target_in_a_shell(tmp_path: Path) -> None:
    printed = plumb(tmp_path, "env", "--target", "armv5")
    assert printed.returncode == ExitCode.PASS
    (tmp_path / "odd.c").write_text(SOURCE, "utf-8")
    (tmp_path / "env").write_text(printed.stdout, "utf-8")
    script = 'set -eu; . ./env; "$CC" -pthread -o odd odd.c; "$AR" --version >/dev/null; "$READELF" -h odd'
    shown = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=120, check=True
    ).stdout
    assert "ARM" in shown


HASHED = r"""
#include <stdio.h>
#include <string.h>
#include "murmur3_hash.h"

int main(void)
{
    static char request[64] __attribute__((aligned(8)));
    strcpy(request, "get a key");
    /* As in memcached: hash the key at its place in the request. */
    printf("%x\n", (unsigned)MurmurHash3_x86_32(request + strlen("get a"), strlen(" key")));
    return 0;
}
"""


@pytest.mark.slow(instead="the other tests of test_programs.py, on a program that faults in every way")
@pytest.mark.parametrize("target", ["armv5", "sparc64"])
def test_the_hash_of_memcached_1_6_18_is_found(tmp_path: Path, target: str) -> None:
    """The release dereferences a word of the key (memcached issue 1291). The test does not build the rest of memcached,
    which needs libevent.
    """
    source = Workbench.default().fetcher.tree(
        "memcached-1.6.18",
        "35872bd25f8d29d7cc2072d23e74344530891bfd0aa4f4f64184a8ae7291164b",
        [ArchivePlace(registry="debian", package="memcached", file="memcached_1.6.18.orig.tar.xz", suite="bookworm")],
    )
    for name in ("murmur3_hash.c", "murmur3_hash.h"):
        shutil.copy2(source / name, tmp_path / name)
    (tmp_path / "hashed.c").write_text(HASHED, "utf-8")
    script = '"$CC" -O2 -o hashed hashed.c murmur3_hash.c && ./hashed'
    code, found = executed(tmp_path, target, ["sh", "-c", script])
    assert code == ExitCode.FINDINGS
    (finding,) = found["findings"]
    assert (finding["kind"], finding["file"]) == ("alignment", "murmur3_hash.c")
    assert "MurmurHash3_x86_32" in {frame["function"] for frame in finding["witnesses"][0]["backtrace"]}


@pytest.mark.slow(instead="the other tests of test_programs.py, on a program that is executed in every way")
@pytest.mark.parametrize("target", ["armv5", "sparc64"])
def test_the_tests_of_zlib_pass(tmp_path: Path, target: str) -> None:
    """A third party's release, built by its own configure script, causes no false alarm."""
    source = Workbench.default().fetcher.tree(
        "zlib-1.2.13",
        "71feb7947e3c00ef125f83b79a4e529bde31171e5babe48b391f06758d1ab0a1",
        [ArchivePlace(registry="debian", package="zlib", file="zlib_1.2.13.dfsg.orig.tar.bz2", suite="bookworm")],
    )
    shutil.copytree(source, tmp_path / "zlib")
    code, found = executed(tmp_path / "zlib", target, ["sh", "-c", "./configure && make test"])
    assert (code, found["findings"]) == (ExitCode.PASS, []), found["cells"]
    assert any(remark.startswith("9 executions below the command") for remark in found["remarks"]), found["remarks"]


def test_a_failing_program_is_shown_with_its_output_and_replayed_alone(tmp_path: Path) -> None:
    shutil.copy2(odd_program("armv5"), tmp_path / "odd")
    script = "date >>times; ./odd odd; printf '\\033[1mone\\ntwo' >in; A=b ./odd say 3 'Expected 1, got 2'"
    code, found = executed(tmp_path, "armv5", ["sh", "-c", script])
    assert code == ExitCode.FINDINGS
    assert [one["id"] for one in found["findings"]] == ["alignment-odd_load-load", "exit-odd_say_3_Expected_1_got_2-3"]
    failed = found["findings"][1]
    assert failed["title"] == "odd exited with status 3: Expected 1, got 2"
    assert failed["witnesses"][0]["output"] == "Expected 1, got 2"
    assert len(found["causes"]) == 2
    (cell,) = [one for one in found["cells"] if one["suite"] == "program"]
    assert (cell["passed"], cell["failed"]) == (0, 2)
    (tmp_path / "odd").rename(tmp_path / "gone")
    again = plumb(tmp_path, "replay", failed["replay"].rpartition(" ")[2])
    assert again.returncode == ExitCode.FINDINGS, again.stdout + again.stderr
    (tmp_path / "gone").rename(tmp_path / "odd")
    assert (tmp_path / "times").read_text("utf-8").count("\n") == 1
    # Known findings excuse the programs themselves, in whatever command.
    for one in found["findings"]:
        added = plumb(tmp_path, "known", "add", found["run"], one["id"], "--reason", "issue 1")
        assert added.returncode == ExitCode.PASS, added.stderr
    code, other = executed(
        tmp_path, "armv5", ["sh", "-c", f"{tmp_path}/odd odd; {tmp_path}/odd say 3 'Expected 1, got 2'"]
    )
    assert (code, other["cells"][1]["verdict"]) == (ExitCode.PASS, "XFAIL"), other["cells"]
    code, other = executed(tmp_path, "armv5", ["sh", "-c", "./odd odd; ./odd say 3 'Expected 2, got 1'"])
    assert (code, other["verdict"]) == (ExitCode.FINDINGS, "FAIL")


def test_a_program_that_no_instruction_ends_is_placed_where_it_ended(tmp_path: Path) -> None:
    """abort() has no return address in an index of tables, exit() is called by the program or by what called main(),
    and a signal may come from another program.
    """
    shutil.copy2(odd_program("armv5"), tmp_path / "odd")
    code, found = executed(tmp_path, "armv5", ["sh", "-c", "./odd abort; ./odd assert; ./odd leave; ./odd status 3"])
    assert code == ExitCode.FINDINGS
    places = {one["id"]: (one["function"], one["line"]) for one in found["findings"]}
    assert places == {
        "assertion-check_sum": ("check_sum", line_of("assert(sum == 3)")),
        "crash-odd-SIGABRT": ("main", line_of("abort();")),
        "exit-odd_leave-9": ("main", line_of("exit(9);")),
        "exit-odd_status_3-3": ("main", line_of("int main(") + 1),
    }
    (assertion,) = [one for one in found["findings"] if one["kind"] == "assertion"]
    stack = [(frame["function"], frame["line"]) for frame in assertion["witnesses"][0]["backtrace"]]
    assert stack[:2] == [("check_sum", line_of("assert(sum == 3)")), ("main", line_of("check_sum(argc);"))]
    assert stack[-1][0] == "_start"
    # The dynamic loader exits here, and not main().
    script = (
        'echo "int v;" >v.c; "$CC" -shared -o libv.so v.c; "$CC" -Wl,--no-as-needed -o needs odd.c -L. -lv -pthread'
    )
    (tmp_path / "odd.c").write_text(SOURCE, "utf-8")
    code, found = executed(tmp_path, "armv5", ["sh", "-c", f"{script}; rm libv.so; ./needs"])
    assert [(one["id"], one["line"]) for one in found["findings"]] == [("exit-needs-127", 0)]
    code, found = executed(tmp_path, "armv5", ["timeout", "1", "./odd", "wait"])
    (finding,) = found["findings"]
    assert (finding["title"], finding["line"]) == ("odd was killed by SIGTERM", line_of("pause();"))


def line_of(text: str) -> int:
    """The line of the program that has a text."""
    (number,) = [number for number, line in enumerate(SOURCE.splitlines(), 1) if text in line]
    return number


def test_a_program_of_another_target_is_named_although_another_failed(tmp_path: Path) -> None:
    shutil.copy2(odd_program("armv5"), tmp_path / "odd")
    shutil.copy2(odd_program("sparc64"), tmp_path / "other")
    (tmp_path / "t.c").write_text("int main(void) { return 0; }\n", "utf-8")
    script = "$HOST_TRIPLET-gcc -march=armv7-a -g -o newer t.c; cp /bin/true own; ./own; ./other; ./newer; ./odd odd"
    code, found = executed(tmp_path, "armv5", ["sh", "-c", script])
    assert (code, [one["id"] for one in found["findings"]]) == (ExitCode.FINDINGS, ["alignment-odd_load-load"])
    told = "\n".join(found["remarks"])
    assert "programs for other machines could not run: ./other (EM_SPARCV9)" in told
    assert f"with -march=armv7-a instead of armv5te: {tmp_path}/newer" in told
    assert f"programs of the host below the command's folder, which ran natively: {tmp_path}/own; if an" in told


def test_a_replayed_program_receives_its_pipe_again_and_ends_within_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy2(odd_program("armv5"), tmp_path / "odd")

    def reproducer_of(script: str) -> Reproducer:
        _, found = executed(tmp_path, "armv5", ["sh", "-c", script])
        (finding,) = found["findings"]
        return read_reproducer(finding["replay"].rpartition(" ")[2])

    reading, waiting = reproducer_of("echo odd | ./odd read; true"), reproducer_of("timeout 0.5 ./odd wait")
    monkeypatch.chdir(tmp_path)
    bench = Workbench.default()
    assert replay(bench, reading, server="").outcome == "reproduced"
    monkeypatch.setattr(program, "LEAST_LIMIT_SECONDS", 2.0)
    monkeypatch.setattr(program, "LIMIT_FACTOR", 1)
    result = replay(bench, waiting, server="")
    assert (result.outcome, "it still ran after 2 s, and was ended" in result.reason) == ("unknown", True), result
    assert "running odd wait again, for at most 2 s" in capsys.readouterr().err
    assert processes_of(tmp_path, named="qemu-") == []
