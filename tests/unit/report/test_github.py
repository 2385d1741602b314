"""Workflow commands: one for each finding, on its line. Nothing in a server's output becomes another command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.core.finding import Cause, Frame
from harness.report.finding import frame_in_tree
from harness.report.formats import github
from tests.support.judgements import HOSTILE, cell, judgement, only_canaries

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


def test_a_verdict_without_a_finding_or_an_unknown_cell_has_a_line() -> None:
    assert github.render(only_canaries()).splitlines() == [
        "::warning title=UNKNOWN::the run did not end",
        "::warning title=UNKNOWN::no tests ran except the canaries",
    ]
    failed = msgspec.structs.replace(
        judgement(), cells=[cell("armv5", "bitops", "FAIL", "1 tests failed")], findings=[]
    )
    assert github.render(failed) == "::error title=FAIL armv5/bitops::1 tests failed\n"


@pytest.mark.parametrize(("place", "file"), [("", "src/bitops.c"), ("a/b", "a/b/src/bitops.c")])
def test_a_tree_in_a_folder_of_the_repository_is_found(place: str, file: str) -> None:
    assert f"file={file}," in github.render(msgspec.structs.replace(judgement(), place=place))


def test_a_known_finding_is_a_notice() -> None:
    whole = judgement()
    known = msgspec.structs.replace(whole.findings[0], known="fixed upstream")
    assert github.render(msgspec.structs.replace(whole, findings=[known])).startswith("::notice file=src/bitops.c,")


def test_a_possible_consequence_is_on_no_line_and_names_its_cause() -> None:
    whole = judgement()
    (start,) = whole.findings
    follower = msgspec.structs.replace(start, id="crash-handler-sigsegv-free")
    cause = Cause(title="", where="", start=start.id, members=[], shared="", followers=[follower.id], known=False)
    lines = github.render(msgspec.structs.replace(whole, findings=[start, follower], causes=[cause])).splitlines()
    assert lines[0].startswith("::error file=src/bitops.c,")
    assert lines[1].startswith("::error title=")
    assert f"%0Amay follow from {start.id}%0A" in lines[1]


@pytest.mark.parametrize(
    ("inner", "place"),
    [
        (("libc", "libc.so.6"), ("src/sds.c", 271)),
        (("server", "src/zmalloc.c"), ("src/zmalloc.c", 1)),
        (("libc", "libc.so.6", "alone"), None),
    ],
)
def test_a_fault_in_the_allocator_is_shown_where_the_server_requested_memory(
    inner: tuple[str, ...], place: tuple[str, int] | None
) -> None:
    origin, file, *alone = inner
    frames = [Frame(function="inner", file=file, line=1, origin=origin, pc=0)]
    frames.append(Frame(function="zrealloc", file="src/zmalloc.c", line=286, origin="server", pc=0))
    frames += [Frame(function="sdsgrow", file="src/sds.c", line=271, origin="server", pc=0)] * (not alone)
    (found,) = judgement().findings
    witness = msgspec.structs.replace(found.witnesses[0], backtrace=frames)
    shown = frame_in_tree(msgspec.structs.replace(found, witnesses=[witness]))
    assert (shown and (shown.file, shown.line)) == place


def test_a_servers_text_stays_in_its_line_and_in_its_field() -> None:
    whole = judgement(title=HOSTILE + "\n::set-output name=a::b\r::error::x", reason=HOSTILE)
    odd = msgspec.structs.replace(whole.findings[0], title="a,file=b::c\nd%", id=HOSTILE)
    lines = github.render(msgspec.structs.replace(whole, findings=[odd])).splitlines()
    assert len(lines) == 3
    command = re.match(r"::error file=src/bitops\.c,line=452,title=([^,:]*)::", lines[0])
    assert command is not None
    assert command[1] == "a%2Cfile=b%3A%3Ac\\nd%25"
    assert all(line.isprintable() for line in lines)


def test_a_steps_outputs_count_unknown_findings_and_name_the_page_if_it_exists(tmp_path: Path) -> None:
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
