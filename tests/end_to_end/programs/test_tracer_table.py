"""The tracer's table of threads: it moves when it grows, and nothing stays in it that has ended."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from harness.core.strict_toml import PACKAGE

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

COUNTED = """\
#define main tracer_main
#include "tracer.c"
#undef main

int main(int argc, char **argv)
{
    int code = tracer_main(argc, argv);
    fprintf(stderr, "%zu threads are left\\n", thread_count);
    return code;
}
"""
NO_TARGET = ["/bin/false", "/bin/false", "1,2,2"]
"""The starter, the emulator and the header of a target of which no program runs."""


@pytest.mark.parametrize(
    "script",
    [
        # The first table has room for 64.
        "for i in $(seq 150); do sleep 1 & done; wait",
        # The end of a new process may arrive before the report that its parent made it.
        "for i in $(seq 400); do (echo a | cat | sed s/a/b/); done",
    ],
    ids=["at the same time", "one after the other"],
)
def test_the_table_outlives_its_growth_and_forgets_what_has_ended(tmp_path: Path, script: str) -> None:
    (tmp_path / "counted.c").write_text(COUNTED, "utf-8")
    for name in ("place", "home"):
        (tmp_path / name).mkdir()
    # AddressSanitizer, because memory that was freed usually keeps its content.
    flags = ["-g", "-fsanitize=address", f"-I{PACKAGE / 'run' / 'programs'}"]
    subprocess.run(["gcc", *flags, "-o", "counted", "counted.c"], cwd=tmp_path, check=True)
    ended = subprocess.run(
        ["./counted", "place", "home", *NO_TARGET, "bash", "bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "0 threads are left\n")
