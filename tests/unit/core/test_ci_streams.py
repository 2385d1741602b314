"""Plumbline's output contains no command for a CI system's runner, except Plumbline's own commands."""

from __future__ import annotations

import html
import io
import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as some

from harness.core import progress
from harness.core.ci_streams import EscapedStream, in_json, in_markup
from harness.core.errors import ExitCode
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fakes import Plumb

HOSTILE = "a ##[error]b\n::error file=x::y\n  ::stop-commands::z\n\r::set-output name=v::1 ##[add-mask]e"


def obeyed(printed: str) -> list[str]:
    """The lines that GitHub's runner executes as commands (actions/runner, src/Runner.Common/ActionCommand.cs)."""
    lines = re.split(r"\r\n|\r|\n", printed)
    return [line for line in lines if re.match(r"\s*::.*::", line) or re.search(r"##\[.*\]", line)]


def printed(*pieces: str) -> str:
    below = io.StringIO()
    stream = EscapedStream(below)
    for piece in pieces:
        assert stream.write(piece) == len(piece)
    return below.getvalue()


PIECES = some.lists(some.text(alphabet="#[]:a \t\r\n\ufeff\x1b\x85"), max_size=8)


@given(PIECES)
def test_no_text_in_any_pieces_is_executed_as_a_command(pieces: list[str]) -> None:
    assert obeyed(printed(*pieces)) == []


@given(PIECES)
def test_the_output_does_not_depend_on_the_pieces_and_loses_nothing(pieces: list[str]) -> None:
    whole = "".join(pieces)
    assert printed(*pieces) == printed(whole)
    assert printed(whole).replace("\\", "") == whole


def test_harmless_text_is_printed_unchanged() -> None:
    text = "std::string at 10:20:30 # [dim] ## a[1] #[0] a::b ::\n"
    assert printed(text) == text
    assert printed("##[error] x\n ::error::y\n") == "##\\[error] x\n :\\:error::y\n"


@given(some.text(alphabet='#[]:a \n"\\'))
def test_a_document_in_json_keeps_its_meaning_and_contains_no_command(text: str) -> None:
    document = in_json(json.dumps({"text": text}, indent=1))
    assert json.loads(document) == {"text": text}
    assert obeyed(document) == []


@given(some.text(alphabet="#[]:a \n"))
def test_a_document_in_xml_keeps_its_meaning_and_contains_no_command(text: str) -> None:
    document = in_markup(f"<a>{text}</a>")
    assert html.unescape(document) == f"<a>{text}</a>"
    assert obeyed(document) == []


@pytest.fixture
def hostile(tmp_path: Path) -> StoredRun:
    stored = StoredRun(tmp_path / "run")
    stored.canary("armv5")
    stored.test("armv5", "bitops", "test_a", outcome="failed", message=HOSTILE)
    stored.problem("armv5", "bitops", HOSTILE, "crash")
    return stored


@pytest.mark.parametrize("form", ["", "--json"])
def test_a_judgement_that_quotes_commands_prints_only_its_own_annotations(
    plumb: Plumb, hostile: StoredRun, form: str
) -> None:
    code, out, err = plumb("judge", hostile.finish(), "--annotations", "github", *[form] * bool(form))
    assert code in {ExitCode.FINDINGS, ExitCode.INCONCLUSIVE}
    assert "#" in out
    assert obeyed(out) == []
    assert {line.partition(" ")[0] for line in obeyed(err)} <= {"::error", "::warning"}
    assert all(line.count("##[") == 0 for line in obeyed(err))


@pytest.mark.parametrize(
    "form",
    ["json", "sarif", "junit", "markdown", "html", "throughput", "processor-time", "flame-graph", "upstream-tests"],
)
def test_no_document_on_standard_output_has_a_command(plumb: Plumb, hostile: StoredRun, form: str) -> None:
    plumb("judge", hostile.finish())
    code, out, _ = plumb("report", hostile.folder, "--format", form)
    assert code == 0
    assert obeyed(out) == []


def test_neither_an_error_nor_progress_is_executed_as_a_command(plumb: Plumb, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        progress.Progress().say(f"{HOSTILE}\x1b[2J")
        raise RuntimeError(f"{HOSTILE}\x1b[2J")

    monkeypatch.setattr("harness.cli.replays.open_reproducer", fails)
    code, out, err = plumb("replay", "x.json")
    assert (code, out) == (ExitCode.HARNESS_BUG, "")
    assert err.count("stop-commands") == 2
    assert obeyed(err) == []
    assert "\x1b" not in err
