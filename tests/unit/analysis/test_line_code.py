"""The code of a source's lines. In records, a line counts like a function. The host's compiler compiles the sources."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from harness.analysis.code.line_code import line_code
from harness.build.executed_blocks import code_of
from harness.core.model import COMPILED_IN
from harness.workflows.preparation.reach.edited_lines import EditedLines
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "src/a.c"
TEXT = """int volatile n;
int f(int a) {
    if (a > 1)
        n = a;
    int unused;
    return n;
}
int main(void) { return f(0); }
"""


def compiled(tmp_path: Path) -> Path:
    tree = tmp_path / COMPILED_IN
    fakes.write(tree / SOURCE, TEXT)
    program = tmp_path / "a"
    subprocess.run(["gcc", "-g", "-O0", "-o", program, tree / SOURCE], check=True)
    return program


def test_a_line_has_the_code_that_its_debug_information_names(tmp_path: Path) -> None:
    program = compiled(tmp_path)
    found = line_code(program, {SOURCE: {3, 4, 5}})
    assert {(one.file, one.line) for one in found} == {(SOURCE, 3), (SOURCE, 4)}
    (function,) = [one for one in code_of(program, "x86_64").functions if "f" in one.names]
    assert all(function.start <= one.start < one.end <= function.start + function.size for one in found)
    assert line_code(program, {"src/b.c": {3}}) == line_code(program, {}) == []
    assert line_code(tmp_path / "none", {SOURCE: {3}}) == []


@pytest.mark.parametrize("version", [4, 5])
def test_a_source_that_another_one_includes_has_its_code_there(tmp_path: Path, version: int) -> None:
    """A driver of units includes the source. Regression: the lines that units execute were unknown."""
    tree = tmp_path / COMPILED_IN
    fakes.write(tree / SOURCE, TEXT)
    fakes.write(tmp_path / "drivers" / "unit.c", '#include "a.c"\n')
    flags = ["-g", f"-gdwarf-{version}", "-O0", "-I", str(tree / "src")]
    subprocess.run(["gcc", *flags, "-o", str(tmp_path / "a"), "unit.c"], check=True, cwd=tmp_path / "drivers")
    found = line_code(tmp_path / "a", {SOURCE: {3, 4, 5}, "src/b.c": {3}, "deps/src/a.c": {3}})
    assert {(one.file, one.line) for one in found} == {(SOURCE, 3), (SOURCE, 4)}


def test_an_edited_line_is_recorded_by_its_text_and_found_among_entered_code(tmp_path: Path) -> None:
    program = compiled(tmp_path)
    names = {(SOURCE, line): f"{SOURCE}: {text.strip()}" for line, text in enumerate(TEXT.splitlines(), 1)}
    edited = EditedLines(pieces={SOURCE: [range(3, 6)]}, names=names, whole=True)
    code = edited.noted_in(code_of(program, "x86_64"), edited.code_in(program))
    (taken, *_) = [one for one in edited.code_in(program) if one.line == 4]
    assert code.names_in([code.block(taken.start, 1)]) == {"f", "src/a.c: n = a;"}
    lines, whole = edited.with_code(edited.code_in(program))
    assert (lines, whole) == ({(SOURCE, 3), (SOURCE, 4)}, True)
    assert edited.not_executed(lines, {"f", "src/a.c: if (a > 1)"}) == [(SOURCE, 4)]
    without_code = edited._replace(pieces={SOURCE: [range(3, 5), range(5, 6)]})
    assert without_code.with_code(without_code.code_in(program)) == (lines, False), (
        "a declaration may matter wherever its name is used"
    )
