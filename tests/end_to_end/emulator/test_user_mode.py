"""The emulator's user mode behaves like a kernel where unmodified QEMU does not."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from harness.core.target_model import ORACLE
from tests.end_to_end.support import machines

pytestmark = pytest.mark.end_to_end

LATE_SECONDS = 60
STATX = r"""
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* struct statx, of which older C libraries have no declaration, has its mode at byte 28 on every machine. */
int main(int count, char **names)
{
    union { unsigned char bytes[256]; unsigned long long aligned; } found;
    struct stat usual;
    unsigned short mode;

    for (int i = 1; i < count; i++) {
        memset(&found, 0, sizeof(found));
        int statx = syscall(SYS_statx, AT_FDCWD, names[i], 0, 0x7ff, &found);
        memcpy(&mode, found.bytes + 28, sizeof(mode));
        int agrees = stat(names[i], &usual) == statx && (statx || usual.st_mode == mode);
        printf("%s: %d, a folder: %d, as stat: %d\n", names[i], statx, S_ISDIR(mode), agrees);
    }
    return 0;
}
"""
# The thread has run before the process forks, because QEMU registers a thread when it runs.
FORK = r"""
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int begun[2];

static void *stay(void *unused)
{
    if (write(begun[1], "", 1) == 1) {
        for (;;) {
            pause();
        }
    }
    return unused;
}

static void *pass(void *number)
{
    return number;
}

int main(void)
{
    pthread_t thread;
    char byte;
    int status = -1;

    if (pipe(begun) || pthread_create(&thread, NULL, stay, NULL) || read(begun[0], &byte, 1) != 1) {
        return 2;
    }
    pid_t child = fork();
    if (child == 0) {
        pthread_t threads[3];
        for (long i = 0; i < 3; i++) {
            if (pthread_create(&threads[i], NULL, pass, (void *)i)) {
                _exit(3);
            }
        }
        for (long i = 0; i < 3; i++) {
            void *number;
            if (pthread_join(threads[i], &number) || number != (void *)i) {
                _exit(4);
            }
        }
        _exit(0);
    }
    waitpid(child, &status, 0);
    printf("%#x\n", status);
    return 0;
}
"""
MAPS = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_t first;

/* The kernel shows nothing of a process whose first thread has ended. It wakes the joining thread somewhat earlier. */
static void *look(void *unused)
{
    int is_empty = 0;

    pthread_join(first, NULL);
    for (int tries = 0; tries < 10000 && !is_empty; tries++) {
        FILE *maps = fopen("/proc/self/maps", "r");
        is_empty = maps && fgetc(maps) == EOF;
        if (maps) {
            fclose(maps);
        }
        usleep(1000);
    }
    printf("%d\n", is_empty);
    exit(0);
    return unused;
}

int main(void)
{
    pthread_t thread;

    first = pthread_self();
    if (pthread_create(&thread, NULL, look, NULL)) {
        return 2;
    }
    pthread_exit(NULL);
}
"""
ABORT = r"""
#include <pthread.h>
#include <stdlib.h>

static pthread_t first;

static void *die(void *unused)
{
    pthread_join(first, NULL);
    abort();
    return unused;
}

int main(void)
{
    pthread_t thread;

    first = pthread_self();
    if (pthread_create(&thread, NULL, die, NULL)) {
        return 2;
    }
    pthread_exit(NULL);
}
"""
# LoongArch Reference Manual, volume 1, 2.2.10: the stable counter's rate is CPUCFG.4 times the multiplier of CPUCFG.5,
# divided by its divisor.
COUNTER = r"""
#include <stdio.h>
#include <time.h>

static unsigned long counter(void)
{
    unsigned long ticks;
    __asm__ volatile("rdtime.d %0, $zero" : "=r"(ticks));
    return ticks;
}

static unsigned long setting(unsigned long number)
{
    unsigned long word;
    __asm__ volatile("cpucfg %0, %1" : "=r"(word) : "r"(number));
    return word;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

int main(void)
{
    double rate = (double)setting(4) * (setting(5) & 0xffff) / (setting(5) >> 16 & 0xffff);
    double before = seconds();
    unsigned long ticks = counter();

    while (seconds() - before < 0.5) {
    }
    ticks = counter() - ticks;
    printf("%.3f\n", ticks / rate / (seconds() - before));
    return 0;
}
"""


def output_of(target: str, text: str, folder: Path, *words: str, root: Path | None = None) -> str:
    """A program's output on a target. `root`: a folder with files that the host lacks, and the target's
    libraries.
    """
    ended = run(target, text, folder, *words, root=root)
    assert ended.returncode == 0, ended
    return ended.stdout


def run(
    target: str, text: str, folder: Path, *words: str, root: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """A program on a target, at its end. `root`: as of `output_of`."""
    source = folder / f"{target}.c"
    source.write_text("#define _GNU_SOURCE\n" + text, "utf-8")
    command = [str(machines.compiled(target, source, folder)), *words]
    if target != ORACLE:
        runner = machines.runner(target)
        at = runner.options.index("-L") + 1
        if root:
            for one in Path(runner.options[at]).iterdir():
                (root / one.name).symlink_to(one.resolve())
        libraries = str(root or runner.options[at])
        command = [str(runner.program), *runner.options[:at], libraries, *runner.options[at + 1 :], *command]
    return subprocess.run(command, check=False, capture_output=True, encoding="utf-8", timeout=LATE_SECONDS)


@pytest.mark.parametrize("target", machines.TESTED)
def test_statx_finds_files_in_the_folder_of_libraries_as_stat_does(target: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "plumbline-only-there").mkdir(parents=True)
    shown = output_of(target, STATX, tmp_path, "/plumbline-only-there", "/proc", "/plumbline-nowhere", root=root)
    assert shown.splitlines() == [
        "/plumbline-only-there: 0, a folder: 1, as stat: 1",
        "/proc: 0, a folder: 1, as stat: 1",
        "/plumbline-nowhere: -1, a folder: 0, as stat: 1",
    ]


@pytest.mark.parametrize(
    "target", machines.sampled(*(name for name in [*machines.REQUIRED, *machines.OTHERS] if name != "sparc32plus"))
)
def test_a_loader_searches_the_folder_of_libraries_first(target: str, tmp_path: Path) -> None:
    """Otherwise a program would get the host's libraries on a host that has the target's, such as AArch64 for aarch64.

    The loader of sparc32plus looks in /lib32 first, where no host of Plumbline has SPARC's libraries.
    """
    source = tmp_path / "plain.c"
    source.write_text("int main(void) { return 0; }\n", "utf-8")
    program, runner = machines.compiled(target, source, tmp_path), machines.runner(target)
    command = [str(runner.program), *runner.options, "-E", "LD_DEBUG=libs", str(program)]
    ended = subprocess.run(command, check=True, capture_output=True, encoding="utf-8", timeout=LATE_SECONDS)
    tried = re.findall(r"trying file=(\S+)", ended.stderr)
    (found,) = re.findall(r"calling init: (\S+/libc\.so\.6)", ended.stderr)
    # Below each folder the loader first looks for variants for CPU features, such as tls/v5l, which nobody installs.
    assert found in tried, ended
    assert [one for one in tried if not Path(one).is_relative_to(Path(found).parent)] == []


@pytest.mark.parametrize("target", [ORACLE, *machines.TESTED])
def test_a_child_of_a_program_with_threads_starts_threads(target: str, tmp_path: Path) -> None:
    assert output_of(target, FORK, tmp_path) == "0\n"


@pytest.mark.parametrize("target", [ORACLE, *machines.TESTED])
def test_the_mappings_of_a_process_whose_first_thread_has_ended_are_those_that_the_kernel_shows(
    target: str, tmp_path: Path
) -> None:
    """A server that panics in a thread ends the others and then reads them."""
    assert output_of(target, MAPS, tmp_path) == "1\n"


@pytest.mark.parametrize("target", [ORACLE, *machines.TESTED])
def test_a_process_whose_first_thread_has_ended_dies_by_the_signal_that_it_raises(target: str, tmp_path: Path) -> None:
    """A server that panics in a thread ends the others, tests its memory and aborts."""
    # Unmended, every other run dies by SIGSEGV.
    assert {run(target, ABORT, tmp_path).returncode for _ in range(5)} == {-signal.SIGABRT}


@pytest.mark.slow(instead="nothing: no required target has this counter")
@pytest.mark.parametrize("target", [machines.beyond("loongarch64")])
def test_the_counter_of_loongarch_has_the_rate_that_its_cpu_tells(target: str, tmp_path: Path) -> None:
    # Both clocks are the host's; the time between the two readings is far below a tenth of half a second.
    assert float(output_of(target, COUNTER, tmp_path)) == pytest.approx(1, rel=0.1)
