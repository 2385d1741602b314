"""The report's files contain what the reference promises to programs, and what people need."""

from __future__ import annotations

import io
import json
import re
import unicodedata
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
import xmlschema
from rich.console import Console

from harness.core.finding import UNKNOWN_FILE, Frame, Verdict
from harness.core.untrusted_text import visible
from harness.report import terminal
from harness.report.formats import markdown
from harness.report.formats import registry as formats
from tests.support import fakes
from tests.support.judgements import HOSTILE, judgement, only_canaries, run_folder

if TYPE_CHECKING:
    from pathlib import Path

    from harness.judge.findings import Judgement

# docs: architecture.md, "Command line". Fields are added, never renamed.
DOCUMENTED = {"schema", "verdict", "server", "seed", "run", "cells", "findings", "stages"}
DOCUMENTED_CELL = {"target", "suite", "verdict", "seconds", "reason"}
DOCUMENTED_FINDING = {
    "id",
    "kind",
    "title",
    "function",
    "file",
    "line",
    "instruction",
    "access",
    "origin",
    "targets",
    "command",
    "replay",
    "known",
}


def shown(what: Judgement) -> str:
    console = Console(file=io.StringIO(), width=200)
    terminal.show(console, what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_an_audit_shows_the_findings_that_are_no_misaligned_site() -> None:
    """Regression: `plumb exec --audit` said "1 new finding" and showed none, for an abort or a failed command."""
    whole = judgement()
    (load,) = whole.findings
    (witness,) = load.witnesses
    site = msgspec.structs.replace(load, witnesses=[msgspec.structs.replace(witness, detector="audit")])
    abort = msgspec.structs.replace(
        load,
        id="sigabrt-main",
        kind="sigabrt",
        title="SIGABRT in main",
        witnesses=[msgspec.structs.replace(witness, detector="signal")],
    )
    text = shown(msgspec.structs.replace(whole, policy="audit", findings=[site, abort]))
    assert text.count(abort.title) == 1
    assert abort.replay in text
    assert site.title not in text, "the table shows it"


def test_findings_json_has_the_documented_keys_and_types(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    formats.write(folder, judgement())
    read: dict[str, Any] = json.loads((folder / "findings.json").read_text("utf-8"))
    assert set() == DOCUMENTED - set(read)
    assert (
        read["schema"],
        read["verdict"],
        read["server"],
        read["seed"],
        read["stages"],
    ) == (1, "FAIL", "redis-3.2.6", 7, {"build": 2.0})
    for each in read["cells"]:
        assert set() == DOCUMENTED_CELL - set(each)
    for each in read["findings"]:
        assert set() == DOCUMENTED_FINDING - set(each)
    assert (read["findings"][0]["targets"], read["findings"][0]["line"]) == (["armv5"], 452)


def junit(folder: Path) -> ET.Element:
    return ET.parse(folder / "junit.xml").getroot()  # noqa: S314 - we wrote it


def test_junit_tells_failures_from_errors_and_unknown_is_an_error(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    formats.write(folder, judgement())
    children = {
        f"{suite.get('name')}": [child.tag for case in suite.iter("testcase") for child in case]
        for suite in junit(folder).iter("testsuite")
    }
    assert children == {
        "armv5/canary": [],
        "armv5/bitops": ["failure"],
        "sparc64/canary": ["error"],
        "sparc64/bitops": ["error"],
        "armv6/bitops": ["skipped"],
    }


def test_junit_has_an_error_for_a_run_that_shows_nothing(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    formats.write(folder, only_canaries())
    (error,) = junit(folder).iter("error")
    assert error.get("message") == "the run did not end; no tests ran except the canaries"
    assert junit(folder).get("errors") == "1"


def test_junit_names_the_finding_and_how_to_see_it_again(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    formats.write(folder, judgement())
    failure = junit(folder).find(".//failure")
    assert failure is not None
    assert "plumb replay" in (failure.text or "")
    assert "1 finding" == failure.get("message")  # noqa: SIM300


def test_junit_names_no_line_of_code_without_debug_information(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    stored = judgement()
    unknown = [msgspec.structs.replace(one, file=UNKNOWN_FILE, line=0) for one in stored.findings]
    formats.write(folder, msgspec.structs.replace(stored, findings=unknown))
    failure = junit(folder).find(".//failure")
    assert failure is not None
    assert "line unknown in bitopCommand" in (failure.text or "")


def test_junit_is_valid_for_the_strictest_reader(tmp_path: Path) -> None:
    """Jenkins' own schema (tests/support/data/schemas); other readers accept what Jenkins accepts."""
    folder = run_folder(tmp_path)
    formats.write(folder, judgement(title=HOSTILE, reason=HOSTILE))
    xmlschema.XMLSchema(str(fakes.DATA / "schemas" / "junit-10.xsd")).validate(str(folder / "junit.xml"))
    root = junit(folder)
    assert tuple(root.get(name) for name in ("tests", "failures", "errors")) == ("5", "1", "2")
    assert [(case.get("classname"), case.get("name")) for case in list(root.iter("testcase"))[:2]] == [
        ("armv5", "canary"),
        ("armv5", "bitops"),
    ]


@pytest.mark.parametrize("text", ["<&>\"'", "bell \x07 null \x00 escape \x1b[31m", "é 漢 \U0001f600"])
def test_junit_parses_whatever_a_server_said(tmp_path: Path, text: str) -> None:
    folder = run_folder(tmp_path)
    formats.write(folder, judgement(title=f"wrong: {text}", reason=text))
    assert junit(folder).find(".//failure") is not None


def test_the_terminal_shows_verdicts_findings_places_and_the_last_line_is_the_verdict() -> None:
    text = shown(judgement())
    for words in (
        "alignment-bitopCommand-load",
        "src/bitops.c:452",
        "ldr r1, [r3]",
        "load of 4 bytes at 1 mod 4",
        "BITOP AND c a b",
        "plumb replay /run/reproducers/",
        "bitopCommand (src/bitops.c:452) ← call (src/bitops.c:9)",
        "UNKNOWN sparc64/bitops: its canaries misbehaved",
        "known finding x expired",
    ):
        assert words in text, f"the terminal does not show: {words}"
    last = text.strip().splitlines()[-1]
    assert last == "FAIL: 1 new finding; seed 7, run /run"


def test_terminal_and_summary_tell_the_base_that_was_compared_with_and_obey_nothing_of_its_subject() -> None:
    compared = msgspec.structs.replace(judgement(), base="0123456789ab '<b> [red]' (why)")
    assert "compared with BASE 0123456789ab '<b> [red]' (why)" in shown(compared)
    summary = markdown.render(compared)
    assert "- compared with BASE 0123456789ab" in summary
    assert "<b>" not in summary
    assert "BASE" not in shown(judgement()) + markdown.render(judgement())


@pytest.mark.parametrize("text", ["[/bold]", "x.c: error: bad [-Werror=cast-align]", "[red]", "a [/] b"])
def test_brackets_in_a_reason_are_shown_as_they_are(text: str) -> None:
    assert text in shown(judgement(reason=text, title=text))


@pytest.mark.parametrize(("detector", "mark"), [("ubsan", "[ubsan]"), ("audit", "[audit]"), ("signal", "")])
def test_a_witness_tells_what_saw_it_unless_it_was_a_signal(detector: str, mark: str) -> None:
    whole = judgement()
    witness = msgspec.structs.replace(whole.findings[0].witnesses[0], detector=detector)
    finding = msgspec.structs.replace(whole.findings[0], witnesses=[witness])
    judged = msgspec.structs.replace(whole, findings=[finding])
    (line,) = [line for line in shown(judged).splitlines() if "452  ldr" in line]
    assert line.strip().endswith(f"1 mod 4  {mark}".strip())
    (row,) = [line for line in markdown.render(judged).splitlines() if line.startswith("- armv5")]
    assert row.replace("\\", "").endswith(f"1 mod 4 {mark}".strip())


@pytest.mark.parametrize(
    ("level", "flags"), [("O2", "-O2"), ("Oz", "-Oz"), ("O2-lto", "-O2 -flto"), ("O3-lto", "-O3 -flto"), ("", "")]
)
def test_reports_show_the_compilers_own_flags_of_a_level(tmp_path: Path, level: str, flags: str) -> None:
    judged = msgspec.structs.replace(judgement(), optimisation=level)
    folder = run_folder(tmp_path)
    formats.write(folder, judged)
    page = (folder / "report.html").read_text("utf-8")
    texts = [shown(judged), (folder / "summary.md").read_text("utf-8"), page]
    for text in texts:
        assert (flags in text) if flags else ("-O" not in text)
        assert "-lto" not in text
    assert ("<dt>optimisation</dt>" in page) == bool(flags)


def test_a_hostile_server_gives_the_terminal_nothing_to_obey() -> None:
    text = shown(judgement(title=HOSTILE, reason=HOSTILE))
    assert [
        character for character in text if unicodedata.category(character) in {"Cc", "Cf"} and character != "\n"
    ] == []
    assert "\\x1b[31m" in text
    # A runner of GitHub's obeys a line that begins so, whatever is before it.
    assert [line for line in text.splitlines() if line.strip().startswith("::")] == []


@pytest.mark.parametrize("verdict", Verdict)
def test_the_sign_of_a_verdict_is_not_escaped_with_the_document(verdict: Verdict) -> None:
    """Regression: the heading of a run without a verdict had the escape of an invisible character."""
    assert visible(markdown.signed(verdict)) == markdown.signed(verdict)


def test_a_hostile_server_gives_a_summary_neither_html_nor_images_nor_lines() -> None:
    text = markdown.render(judgement(title=HOSTILE, reason=HOSTILE))
    assert "<script" not in text
    assert "![" not in text.replace("!\\[", "")
    assert [line for line in text.splitlines() if line.strip().startswith("::")] == []


def test_a_summary_is_cut_to_what_github_takes() -> None:
    whole = judgement()
    long = msgspec.structs.replace(whole.findings[0], title="x" * 10_000)
    text = markdown.render(msgspec.structs.replace(whole, findings=[long] * 150))
    assert 500_000 < len(text.encode()) < 1_048_576
    assert "cut: report.html and findings.json have the rest" in text


def test_a_summary_tells_a_targets_first_witnesses_and_how_many_more() -> None:
    whole = judgement()
    witness = whole.findings[0].witnesses[0]
    many = [msgspec.structs.replace(witness, line=line) for line in range(1, 11)]
    text = markdown.render(
        msgspec.structs.replace(whole, findings=[msgspec.structs.replace(whole.findings[0], witnesses=many)])
    )
    assert "src/bitops.c:3`" in text
    assert "src/bitops.c:4`" not in text
    assert "- armv5: and 7 more" in text


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}])
def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    console = Console(file=io.StringIO(), force_terminal=True, width=200, color_system="standard")
    terminal.show(console, judgement())
    assert isinstance(console.file, io.StringIO)
    coloured = re.search(r"\x1b\[[0-9;]*3[1-6]m", console.file.getvalue())
    assert (coloured is None) == bool(environment)


def test_what_a_person_pastes_is_one_line_on_the_narrowest_terminal() -> None:
    """A line break of ours in the command of a replay would make two commands of it."""
    console = Console(file=(text := io.StringIO()), force_terminal=True, width=20, color_system=None)
    terminal.show(console, judgement())
    lines = text.getvalue().splitlines()
    assert f"    replay       {judgement().findings[0].replay}" in lines
    assert lines[-1].endswith(f"run {judgement().run}")


def test_the_terminal_shows_the_function_that_a_wrong_result_points_to() -> None:
    whole = judgement()
    place = Frame(function="setCommand", file="src/t_string.c", line=9, origin="server", pc=0)
    wrong = msgspec.structs.replace(whole.findings[0], kind="wrong-result", implicated=place)
    assert "points to    setCommand (src/t_string.c:9)" in shown(msgspec.structs.replace(whole, findings=[wrong]))


def test_a_list_of_findings_shows_the_beginning_of_a_long_command_and_one_finding_all_of_it() -> None:
    finding = msgspec.structs.replace(judgement().findings[0], command="ZADD k " + "1 member " * 1000)

    def printed(*, whole: bool) -> str:
        console = Console(file=(text := io.StringIO()), width=20_000)
        terminal.show_finding(console, finding, whole=whole)
        return text.getvalue()

    line = next(line for line in printed(whole=False).splitlines() if line.startswith("    command"))
    assert line.endswith("…")
    assert len(line) < 400
    assert finding.command.strip() in printed(whole=True)


def test_a_list_of_findings_shows_of_the_languages_library_only_what_the_program_called() -> None:
    finding = judgement().findings[0]
    named = [("less", "x.cc", 16), *((f"std::step{n}", f"/usr/include/c++/12/bits/algo{n}.h", n) for n in (1, 2, 3))]
    named += [("main", "x.cc", 21), ("libc.so.6+0x10", "libc.so.6", 0)]
    frames = [
        Frame(function=name, file=file, line=line, origin="libc" if file[0] in "/l" else "program", pc=0)
        for name, file, line in named
    ]
    witness = msgspec.structs.replace(finding.witnesses[0], backtrace=frames)
    finding = msgspec.structs.replace(finding, witnesses=[witness])

    def printed(*, whole: bool) -> str:
        console = Console(file=(text := io.StringIO()), width=1000)
        terminal.show_finding(console, finding, whole=whole)
        return text.getvalue()

    short = "less (x.cc:16) ← … ← std::step3 (algo3.h:3) ← main (x.cc:21) ← libc.so.6+0x10 (libc.so.6)\n"
    assert short in printed(whole=False)
    assert "← std::step1 (/usr/include/c++/12/bits/algo1.h:1) ← std::step2" in printed(whole=True)


def test_a_data_race_shows_the_stacks_of_both_threads() -> None:
    finding = judgement().findings[0]
    other = [Frame(function=name, file="src/io.c", line=7, origin="server", pc=0) for name in ("poll", "thread")]
    witness = msgspec.structs.replace(finding.witnesses[0], against=other)
    console = Console(file=(text := io.StringIO()), width=1000)
    terminal.show_finding(console, msgspec.structs.replace(finding, witnesses=[witness]))
    assert "    against      poll (src/io.c:7) ← thread (src/io.c:7)\n" in text.getvalue()


def test_no_escapes_where_there_is_no_terminal() -> None:
    assert "\x1b" not in shown(judgement())


def test_markdown_has_a_row_a_target_and_a_section_a_finding(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    formats.write(folder, judgement())
    lines = (folder / "summary.md").read_text("utf-8").splitlines()
    rows = [re.findall(r"armv\d|sparc64|PASS|FAIL|UNKNOWN|XFAIL", line) for line in lines if line.startswith("| ")]
    assert rows[1:] == [["armv5", "PASS", "FAIL"], ["sparc64", "UNKNOWN", "UNKNOWN"], ["armv6", "XFAIL"]]
    assert "## misaligned load in bitopCommand, on armv5" in lines
    assert any("`alignment-bitopCommand-load`" in line for line in lines)
    assert any("`src/bitops.c:452` `ldr r1, [r3]`" in line for line in lines)
