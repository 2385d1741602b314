"""Workflow commands: one a finding, on its line, and nothing that a server says becomes another one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.report.formats import github
from tests.judgements import HOSTILE, judgement

if TYPE_CHECKING:
    from pathlib import Path


def test_a_finding_is_an_error_on_its_line_and_unknown_cells_are_warnings() -> None:
    first, *others = github.render(judgement()).splitlines()
    command, _, message = first.removeprefix("::").partition("::")
    assert command == "error file=src/bitops.c,line=452,title=misaligned load in bitopCommand"
    assert message.startswith("alignment-bitopCommand-load on armv5 (2×)%0Aldr r1, [r3]%0A")
    assert message.endswith("plumb replay /run/reproducers/alignment-bitopCommand-load.json")
    assert [line.split("::")[1] for line in others] == [
        "warning title=UNKNOWN sparc64/canary",
        "warning title=UNKNOWN sparc64/bitops",
    ]


@pytest.mark.parametrize(("place", "file"), [("", "src/bitops.c"), ("a/b", "a/b/src/bitops.c")])
def test_a_tree_in_a_folder_of_the_repository_is_found(place: str, file: str) -> None:
    assert f"file={file}," in github.render(msgspec.structs.replace(judgement(), place=place))


def test_a_known_finding_is_a_notice() -> None:
    whole = judgement()
    known = msgspec.structs.replace(whole.findings[0], known="fixed upstream")
    assert github.render(msgspec.structs.replace(whole, findings=[known])).startswith("::notice file=src/bitops.c,")


def test_what_a_server_says_stays_in_its_line_and_in_its_field() -> None:
    whole = judgement(title=HOSTILE + "\n::set-output name=a::b\r::error::x", reason=HOSTILE)
    odd = msgspec.structs.replace(whole.findings[0], title="a,file=b::c\nd%", id=HOSTILE)
    lines = github.render(msgspec.structs.replace(whole, findings=[odd])).splitlines()
    assert len(lines) == 3
    command = re.match(r"::error file=src/bitops\.c,line=452,title=([^,:]*)::", lines[0])
    assert command is not None
    assert command[1] == "a%2Cfile=b%3A%3Ac\\nd%25"
    assert all(line.isprintable() for line in lines)


def test_a_steps_outputs_count_what_is_not_known_and_name_the_page_if_there_is_one(tmp_path: Path) -> None:
    whole = judgement()
    known = msgspec.structs.replace(whole.findings[0], known="fixed upstream")
    (tmp_path / "summary.md").touch()
    outputs = dict(line.split("=") for line in github.outputs(tmp_path, whole).splitlines())
    assert outputs == {
        "verdict": "FAIL",
        "findings": "1",
        "run": str(tmp_path),
        "report": str(tmp_path / "summary.md"),
    }
    (tmp_path / "report.html").touch()
    text = github.outputs(tmp_path, msgspec.structs.replace(whole, findings=[known]))
    assert f"findings=0\nrun={tmp_path}\nreport={tmp_path}/report.html\n" in text
