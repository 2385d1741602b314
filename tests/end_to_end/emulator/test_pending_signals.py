"""A SIGBUS or SIGSEGV that is sent while it is blocked is delivered when the program waits for it, as other signals."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from harness.build import toolchain
from harness.core.target_model import ORACLE
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

CATALOG = machines.CATALOG
LATE_SECONDS = 20
# The program waits for each signal after it was sent. Alarms end a wait for a signal that never arrives.
PROGRAM = r"""
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>

static volatile sig_atomic_t handled;

static void note(int number)
{
    handled = number;
}

static void show(const char *what, int number, int result)
{
    sigset_t pending;

    sigpending(&pending);
    printf("%s: %d, handled %d, pending %d\n", what, result, handled == number, sigismember(&pending, number));
    handled = 0;
}

static void await(int number)
{
    struct sigaction action = { .sa_handler = note };
    struct timespec moment = { 1, 0 };
    sigset_t only, none;
    siginfo_t info;
    int got = 0;

    sigemptyset(&none);
    sigemptyset(&only);
    sigaddset(&only, number);
    sigaction(number, &action, NULL);
    sigprocmask(SIG_BLOCK, &only, NULL);

    kill(getpid(), number);
    show("sent", number, 0);
    show("sigsuspend", number, sigsuspend(&none));
    raise(number);
    show("pselect", number, pselect(0, NULL, NULL, NULL, &moment, &none));
    raise(number);
    show("ppoll", number, ppoll(NULL, 0, &moment, &none));
    raise(number);
    show("sigwait", number, sigwait(&only, &got) == 0 && got == number);
    kill(getpid(), number);
    memset(&info, 0, sizeof(info));
    got = sigtimedwait(&only, &info, &moment);
    show("sigtimedwait", number, got == number && info.si_signo == number && info.si_pid == getpid());
    show("sigtimedwait of none", number, sigtimedwait(&only, &info, &(struct timespec){ 0, 1000 }));
    raise(number);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
    show("sigprocmask", number, 0);
    sigprocmask(SIG_BLOCK, &only, NULL);
    raise(number);
    signal(number, SIG_IGN);
    show("ignored", number, ppoll(NULL, 0, &(struct timespec){ 0, 1000 }, &none));
}

int main(void)
{
    alarm(10);
    await(SIGUSR1);
    await(SIGBUS);
    await(SIGSEGV);
    return 0;
}
"""


def output_of(target: str, folder: Path) -> str:
    """The program's output on a target."""
    spec = CATALOG.targets[target]
    source, built = folder / "program.c", folder / target
    source.write_text(PROGRAM, "utf-8")
    compiler = toolchain.tool(CATALOG.toolchain_of(spec), "gcc")
    flags = [*spec.compiler_flags, "-O1", "-D_GNU_SOURCE"]
    subprocess.run([compiler, str(source), *flags, "-o", str(built)], check=True)
    command = [str(built)]
    if target != ORACLE:
        runner = machines.runner(target)
        command = [str(runner.program), *runner.options, *command]
    ended = subprocess.run(command, check=False, capture_output=True, encoding="utf-8", timeout=LATE_SECONDS)
    assert ended.returncode == 0, ended
    return ended.stdout


@pytest.mark.parametrize("target", machines.TESTED)
def test_a_signal_that_was_sent_while_it_was_blocked_arrives_as_on_this_machine(target: str, tmp_path: Path) -> None:
    here = output_of(ORACLE, tmp_path)
    assert here.count("sigsuspend: -1, handled 1, pending 0\n") == 3
    assert output_of(target, tmp_path) == here
