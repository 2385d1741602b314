"""The types of a program are told where they differ from those of x86-64."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from harness.analysis.program_traits.program_types import unlike_host

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
