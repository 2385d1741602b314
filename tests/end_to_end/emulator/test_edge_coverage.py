"""The edges that the emulator reports are exactly those in an independent trace of the program's blocks."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING

import pytest

from harness.build import toolchain
from harness.core.cache import Cache
from harness.core.digests import key_of
from harness.record.edge_coverage import SIZE_BYTES, EdgeCoverage
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

CATALOG = machines.CATALOG
PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int sum;

static __attribute__((noinline)) void twice(int number)
{
    if (number > 3) {
        sum += 2 * number;
    } else {
        sum -= number;
    }
}

static void *elsewhere(void *unused)
{
    twice(9);
    return unused;
}

static void in_a_child(void)
{
    pid_t child = fork();

    if (child == 0) {
        twice(9);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void in_a_thread(void)
{
    pthread_t thread;

    pthread_create(&thread, NULL, elsewhere, NULL);
    pthread_join(thread, NULL);
}

int main(int count, char **words)
{
    for (const char *letter = count > 1 ? words[1] : ""; *letter; letter++) {
        switch (*letter) {
        case 's': twice(1); break;
        case 'l': twice(7); break;
        case 'p': puts("libc is not the program's own"); break;
        case 'f': in_a_child(); break;
        case 't': in_a_thread(); break;
        default: sum++;
        }
    }
    return 0;
}
"""


@cache
def program(name: str) -> Path:
    target = CATALOG.targets[name]
    compiler = toolchain.tool(machines.toolchain_of(name), "gcc")
    flags = [*target.compiler_flags, "-O1", "-pthread"]

    def compile_into(into: Path) -> None:
        (into / "branches.c").write_text(PROGRAM, "utf-8")
        subprocess.run([compiler, "branches.c", *flags, "-o", "branches"], cwd=into, check=True)

    key = key_of([PROGRAM, toolchain.version(compiler), *flags])
    return Cache.default().folder("canaries", f"branches-{name}-{key}", compile_into) / "branches"


def taken(name: str, letters: str, folder: Path, *, log: Path | None = None) -> frozenset[int]:
    """The edges of one run of the program. With a log, QEMU also writes its trace of the entered blocks there."""
    edges = EdgeCoverage(folder / "edges")
    # Without chaining, every block goes through QEMU's main loop, which writes the trace.
    trace = ["-d", "exec,nochain,page", "-D", str(log)] if log else []
    command = machines.runner(name).command(program(name), [letters], coverage=edges.path)
    subprocess.run([command[0], *trace, *command[1:]], check=True, stdout=subprocess.DEVNULL, timeout=60)
    found = edges.taken()
    edges.close()
    return found


_ENTERED = re.compile(r"^Trace \d+: 0x[0-9a-f]+ \[[0-9a-f]+/([0-9a-f]+)/", re.MULTILINE)


def traced(log: Path) -> frozenset[int]:
    """The edges that follow from a trace: between consecutive blocks of the program's text."""
    text = log.read_text("utf-8", "replace")
    start, end = (
        int(re.findall(rf"^{name}_code +0x([0-9a-f]+)", text, re.MULTILINE)[-1], 16) for name in ("start", "end")
    )
    blocks = [int(one, 16) - start for one in _ENTERED.findall(text)]
    last, found = 0, set()
    for block in (one for one in blocks if 0 <= one < end - start):
        found.add(last + number(block, 0x85EBCA77))
        last = number(block, 0x9E3779B1)
    return frozenset(found)


def number(block: int, multiplier: int) -> int:
    """A block's number, as in toolchains/qemu/overlay/linux-user/coverage.c."""
    block = (block ^ block >> 15) * multiplier & 0xFFFFFFFF
    return ((block ^ block >> 13) * multiplier & 0xFFFFFFFF) >> (32 - (SIZE_BYTES.bit_length() - 2))


@pytest.mark.parametrize("name", machines.TESTED)
@pytest.mark.parametrize("letters", ["", "s", "l", "psslxlp"])
def test_the_edges_are_those_of_the_trace(name: str, letters: str, tmp_path: Path) -> None:
    unchained = taken(name, letters, tmp_path, log=tmp_path / "trace")
    assert unchained == traced(tmp_path / "trace")
    # Chained blocks, which never return to the main loop, are recorded too.
    assert taken(name, letters, tmp_path) == unchained
    assert len(unchained) > 10


@pytest.mark.parametrize("name", machines.TESTED)
def test_a_branch_taken_for_the_first_time_is_a_new_edge(name: str, tmp_path: Path) -> None:
    known_edges: set[int] = set()
    new = {}
    # Each run, and whether it has new edges.
    for run, letters in enumerate(("s", "s", "ss", "sss", "sl", "sl", "psl", "slp")):
        edges = taken(name, letters, tmp_path)
        new[f"{run}: {letters}"] = bool(edges - known_edges)
        known_edges |= edges
    assert new == {
        "0: s": True,
        "1: s": False,
        # GCC tests the condition of a loop at its end. Clang jumps to a test at the beginning, as for one letter.
        "2: ss": name != "loongarch64",
        "3: sss": False,
        "4: sl": True,
        "5: sl": False,
        "6: psl": True,
        "7: slp": False,
    }


@pytest.mark.parametrize("name", machines.TESTED)
@pytest.mark.parametrize("letter", ["f", "t"])
def test_forked_children_and_threads_are_seen(name: str, letter: str, tmp_path: Path) -> None:
    # `twice` takes a branch for large numbers that nothing else takes.
    own = taken(name, "sl", tmp_path) - taken(name, "s", tmp_path)
    assert own & taken(name, letter, tmp_path)


@pytest.mark.slow(instead="test_forked_children_and_threads_are_seen, which runs such a program once for each target")
@pytest.mark.parametrize("covered", [False, True], ids=["plain", "coverage"])
def test_a_program_ends_well_while_its_last_thread_ends(tmp_path: Path, *, covered: bool) -> None:
    """Regression: one run in several hundred crashed, because the emulator read the translations of a freed CPU."""
    edges = EdgeCoverage(tmp_path / "edges")
    command = machines.runner("armv5").command(program("armv5"), ["t"], coverage=edges.path if covered else None)
    with ThreadPoolExecutor(6) as pool:
        ran = pool.map(lambda _: subprocess.run(command, check=False, capture_output=True, timeout=60), range(2000))
        assert {one.returncode for one in ran} == {0}
    edges.close()


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "edges").write_bytes(bytes(1000))
    command = machines.runner("armv5").command(program("armv5"), [], coverage=tmp_path / "edges")
    refused = subprocess.run(command, check=False, capture_output=True, encoding="utf-8", timeout=60)
    assert refused.returncode == 1
    assert "has 1000 bytes; make it a power of two" in refused.stderr
