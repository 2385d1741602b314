"""A changed tree whose unedited lines keep the numbers that they have in the base. The repositories are real."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import pytest

from harness.judge.baseline import BaseRevision
from harness.workflows.git.checkout import Checkout
from harness.workflows.preparation.reach import unmoved_lines
from tests.support import fakes
from tests.support.repositories import commit, git

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.costly

LINES = [f"int line{number};" for number in range(1, 13)]


def numbers(text: str) -> dict[str, int]:
    """Each line -> its number, as a compiler counts."""
    found: dict[str, int] = {}
    number = 1
    for line in text.splitlines():
        if directive := re.fullmatch(r"#line (\d+)", line):
            number = int(directive[1])
        else:
            found[line] = number
            number += 1
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = fakes.server_tree(tmp_path / "valkey")
    fakes.write(path / "src" / "lines.c", "\n".join([*LINES, ""]))
    fakes.write(path / "src" / "same.c", "int same;\nint more;\n")
    git(path, "init", "--quiet")
    commit(path, "base")
    return path


def unmoved(tree: Path, into: Path) -> dict[str, str]:
    """File -> its text in the copy, for those in which a line has moved."""
    checkout = Checkout(tree)
    base = BaseRevision(commit=git(tree, "rev-parse", "HEAD"), subject="", why="")
    files = unmoved_lines.moving_files(checkout, base)
    unmoved_lines.write(tree, files, into)
    return {name: (into / name).read_text("utf-8", "replace") for name in files}


@pytest.mark.parametrize(
    "edit",
    [
        {2: ["int line3;", "int more;"]},
        {0: ["int first;", "int line1;"], 4: [], 8: ["int other;", "int another;", "int third;"]},
        {11: [], 10: []},
        {11: ["int line12;", "int last;"]},
        {0: []},
        {5: ["int line6;", ""], 6: ["int line7;", "", ""]},
        {1: ["int other;", "int more;"], 3: []},
    ],
    ids=[
        "added",
        "added, removed and replaced",
        "removed at the end",
        "added at the end",
        "removed first",
        "twice",
        "a line between two edits",
    ],
)
def test_lines_that_are_not_edited_keep_their_numbers(tree: Path, tmp_path: Path, edit: dict[int, list[str]]) -> None:
    edited = [line for at, old in enumerate(LINES) for line in edit.get(at, [old])]
    fakes.write(tree / "src" / "lines.c", "\n".join([*edited, ""]))
    text = unmoved(tree, tmp_path / "copy")["src/lines.c"]
    kept = {line: number for line, number in numbers(text).items() if line in LINES}
    assert kept == {line: LINES.index(line) + 1 for line in edited if line in LINES}
    assert [line for line in text.splitlines() if not line.startswith("#line")] == edited


@pytest.mark.parametrize("behind", ["", " ", "\r"])
def test_a_directive_divides_no_macro(tree: Path, tmp_path: Path, behind: str) -> None:
    """A compiler takes a backslash for the last character also if blanks follow it."""
    more = f"\\{behind}"
    macro = [f"#define MACRO(a) {more}", f"    first(a), {more}", "    second(a)", "int behind;", "int last;"]
    (tree / "src" / "macro.c").write_bytes("\n".join([*macro, ""]).encode())
    commit(tree, "macro")
    (tree / "src" / "macro.c").write_bytes("\n".join([macro[0], f"    added(a), {more}", *macro[1:], ""]).encode())
    text = unmoved(tree, tmp_path / "copy")["src/macro.c"]
    lines = text.replace("\r", "").split("\n")
    in_front = [line for line, following in itertools.pairwise(lines) if following.startswith("#line")]
    assert in_front
    assert not any(line.rstrip().endswith("\\") for line in in_front)
    assert numbers(text)["int behind;"] == 4
    assert numbers(text)["int last;"] == 5


def test_a_file_in_which_no_line_moves_is_left_as_it_is(tree: Path, tmp_path: Path) -> None:
    fakes.write(tree / "src" / "lines.c", "\n".join([*LINES[:3], "int other;", *LINES[4:], ""]))
    fakes.write(tree / "src" / "new.c", "int added;\n")
    assert unmoved(tree, tmp_path / "copy") == {}
    assert (tmp_path / "copy" / "src" / "lines.c").read_bytes() == (tree / "src" / "lines.c").read_bytes()


def test_a_file_keeps_its_bytes_and_its_time(tree: Path, tmp_path: Path) -> None:
    """Otherwise make would take what was generated from a newer file for outdated."""
    path = tree / "src" / "lines.c"
    path.write_bytes(b"int \xff;\r\n" + path.read_bytes())
    unmoved(tree, tmp_path / "copy")
    copy = tmp_path / "copy" / "src" / "lines.c"
    assert copy.read_bytes() == b"int \xff;\r\n#line 1\n" + path.read_bytes().partition(b"\n")[2]
    assert copy.stat().st_mtime_ns == path.stat().st_mtime_ns


def test_a_tracked_file_that_is_no_part_of_a_build_is_left_out(tree: Path, tmp_path: Path) -> None:
    """Regression: make writes release.h, so no copy of a tree has it."""
    fakes.write(tree / "src" / "release.h", "#define ONE 1\n#define TWO 2\n")
    git(tree, "add", "--force", "src/release.h")
    commit(tree, "release")
    fakes.write(tree / "src" / "release.h", "#define ONE 1\n\n#define TWO 2\n")
    into = tmp_path / "copy"
    checkout = Checkout(tree)
    base = BaseRevision(commit=git(tree, "rev-parse", "HEAD"), subject="", why="")
    files = unmoved_lines.moving_files(checkout, base)
    assert [*files] == ["src/release.h"]
    unmoved_lines.write(tree, files, into)
    assert not (into / "src" / "release.h").exists()
