"""A fault inside the C library is placed in the program's function that called it, and has its name."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import ExitCode
from tests.end_to_end.programs.test_programs import setup_of
from tests.end_to_end.support import machines
from tests.end_to_end.support.plumb_runs import PLUMB

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

SOURCE = """
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* SPARC's memcmp reads without faults. */
volatile uintptr_t place = 0xdead0040;

__attribute__((noinline)) static int use_key(const char *key, size_t length)
{
    char own[64];

    memset(own, length & 1, sizeof own);
    return CALL + own[5];
}

__attribute__((noinline)) static int look_up(const char *key) { return 1 + use_key(key, 33 + strlen(key)); }

int main(int argc, char **argv)
{
    printf("%d\\n", look_up(argv[argc - 1]));
    return 0;
}
"""
CALLS = [
    ("sparc64", "(int)strlen((char *)place)", "strlen"),
    machines.beyond("armv5", "memcmp((char *)place, key, length) == 0", "__memcmpeq"),
    machines.beyond("armv7", "memcmp((char *)place, key, length) == 0", "__memcmpeq"),
    # Several functions have this name. A program chooses one when it starts, and that one jumps to another.
    machines.beyond("sparc64", "(memcpy(own, (char *)place, length << 20) == key)", ""),
]


@pytest.mark.parametrize(("target", "call", "library"), CALLS)
def test_a_fault_in_the_c_library_names_the_function_that_called_it(
    tmp_path: Path, target: str, call: str, library: str
) -> None:
    (tmp_path / "keys.c").write_text(SOURCE.replace("CALL", call), "utf-8")
    compiler = f"{setup_of(target).toolchain.prefix}-gcc"
    command = [compiler, "-g", "-O2", "-fno-builtin-strlen", "keys.c", "-o"]
    # One of them contains the C library, whose code has no lines.
    for name, option in (("keys", "-rdynamic"), ("keys-static", "-static")):
        subprocess.run([*command, name, option], cwd=tmp_path, check=True)
    words = [*PLUMB, "exec", "--json", "--target", target, "--", "sh", "-c", "./keys; ./keys-static; true"]
    finished = subprocess.run(words, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=600, check=False)
    assert finished.returncode == ExitCode.FINDINGS, finished.stderr
    (finding,) = json.loads(finished.stdout)["findings"]
    assert (finding["id"], finding["occurrences"]) == ("sigsegv-use_key", 2)
    assert finding["title"].startswith(f"SIGSEGV in {library}")
    assert finding["title"].endswith(", called by use_key")
    assert (finding["function"], finding["line"], finding["origin"]) == ("use_key", 14, "program")
    assert [frame["function"] for frame in finding["witnesses"][0]["backtrace"]][:3] == ["use_key", "look_up", "main"]
