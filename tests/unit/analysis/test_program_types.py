"""The types of a program are told where they differ from those of x86-64."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from harness.analysis.program_traits.program_types import built_unlike, unlike_host

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """#include <time.h>
char letter; time_t moment; long number;
int main(void) { return (int)(letter + moment + number); }
"""


@pytest.mark.parametrize(
    ("flags", "told"), [([], ""), (["-funsigned-char"], "char is unsigned"), (["-g0"], ""), (["-gdwarf-4"], "")]
)
def test_the_types_of_a_host_program(tmp_path: Path, flags: list[str], told: str) -> None:
    (tmp_path / "t.c").write_text(SOURCE, "utf-8")
    command = ["gcc", "-fsigned-char", "-g", *flags, "-o", "t", "t.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert unlike_host(str(tmp_path / "t")) == told


def test_a_file_that_is_no_program_has_no_types(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("text", "utf-8")
    assert unlike_host(str(tmp_path / "t")) == ""
    assert unlike_host(str(tmp_path / "absent")) == ""
    assert built_unlike(str(tmp_path / "absent"), ("-march=armv5te",), 4) == ""


@pytest.mark.parametrize(
    ("flags", "time_bytes", "told"),
    [
        (("-march=haswell", "-O2"), 8, ""),
        (("-march=haswell", "-O2"), 0, ""),
        (("-march=nehalem", "-O2"), 8, "-march=haswell instead of nehalem"),
        (("-march=nehalem",), 4, "-march=haswell instead of nehalem, a time_t of 8 bytes instead of 4"),
        # GCC names every such option, so another compiler has made a program without it.
        (("-mfloat-abi=hard",), 8, ""),
    ],
)
def test_a_program_tells_whether_it_was_built_for_another_target(
    tmp_path: Path, flags: tuple[str, ...], time_bytes: int, told: str
) -> None:
    (tmp_path / "t.c").write_text(SOURCE, "utf-8")
    subprocess.run(["gcc", "-march=haswell", "-g", "-o", "t", "t.c"], cwd=tmp_path, check=True)
    assert built_unlike(str(tmp_path / "t"), flags, time_bytes) == told
