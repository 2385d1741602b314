"""The report's files hold what architecture.md promises to programs, and what people need."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from rich.console import Console

from harness import report
from harness.judge import CellVerdict, Judgement
from harness.model import Finding, Frame, Witness

if TYPE_CHECKING:
    from pathlib import Path

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
FRAMES = [
    Frame(function=name, file="src/bitops.c", line=line, origin="server", pc=1)
    for name, line in (("bitopCommand", 452), ("call", 9), ("main", 1))
]


def cell(target: str, suite: str, verdict: str, reason: str = "") -> CellVerdict:
    return CellVerdict(
        target=target, suite=suite, verdict=verdict, seconds=1.5, reason=reason, passed=3, failed=1, skipped=2
    )


def judgement(
    *, title: str = "misaligned load in bitopCommand", reason: str = "its canaries did not behave"
) -> Judgement:
    witness = Witness(
        target="armv5",
        suite="bitops",
        file="src/bitops.c",
        line=452,
        instruction="ldr r1, [r3]",
        access="load of 4 bytes at 1 mod 4",
        test="test_bitop",
        evidence="armv5/bitops/guest-1/faults.jsonl",
        backtrace=FRAMES,
    )
    finding = Finding(
        id="alignment-bitopCommand-load",
        kind="alignment",
        title=title,
        function="bitopCommand",
        file="src/bitops.c",
        line=452,
        instruction="ldr r1, [r3]",
        access="load of 4 bytes at 1 mod 4",
        origin="server",
        targets=["armv5"],
        command="BITOP AND c a b",
        replay="plumb replay /run/reproducers/alignment-bitopCommand-load.json",
        known="",
        witnesses=[witness],
        occurrences=2,
    )
    return Judgement(
        schema=1,
        verdict="FAIL",
        server="redis-3.2.6",
        seed=7,
        run="/run",
        policy="signal",
        optimisation="O2",
        cells=[
            cell("armv5", "canary", "PASS"),
            cell("armv5", "bitops", "FAIL", "1 finding"),
            cell("sparc64", "canary", "UNKNOWN", "1 canary did not behave"),
            cell("sparc64", "bitops", "UNKNOWN", reason),
            cell("armv6", "bitops", "XFAIL", "known: why"),
        ],
        findings=[finding],
        remarks=["known finding x expired"],
        stages={"build": 2.0},
    )


def shown(what: Judgement) -> str:
    console = Console(file=io.StringIO(), width=200)
    report.show(console, what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_findings_json_has_the_documented_keys_and_types(tmp_path: Path) -> None:
    report.write(tmp_path, judgement())
    read: dict[str, Any] = json.loads((tmp_path / "findings.json").read_text("utf-8"))
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
    report.write(tmp_path, judgement())
    seen = {
        f"{suite.get('name')}": [child.tag for case in suite.iter("testcase") for child in case]
        for suite in junit(tmp_path).iter("testsuite")
    }
    assert seen == {
        "armv5/canary": [],
        "armv5/bitops": ["failure"],
        "sparc64/canary": ["error"],
        "sparc64/bitops": ["error"],
        "armv6/bitops": [],
    }


def test_junit_names_the_finding_and_how_to_see_it_again(tmp_path: Path) -> None:
    report.write(tmp_path, judgement())
    failure = junit(tmp_path).find(".//failure")
    assert failure is not None
    assert "plumb replay" in (failure.text or "")
    assert "1 finding" == failure.get("message")  # noqa: SIM300


@pytest.mark.parametrize("text", ["<&>\"'", "bell \x07 null \x00 escape \x1b[31m", "é 漢 \U0001f600"])
def test_junit_parses_whatever_a_server_said(tmp_path: Path, text: str) -> None:
    report.write(tmp_path, judgement(title=f"wrong: {text}", reason=text))
    assert junit(tmp_path).find(".//failure") is not None


def test_the_terminal_shows_verdicts_findings_places_and_the_last_line_is_the_verdict() -> None:
    text = shown(judgement())
    for told in (
        "alignment-bitopCommand-load",
        "src/bitops.c:452",
        "ldr r1, [r3]",
        "load of 4 bytes at 1 mod 4",
        "BITOP AND c a b",
        "plumb replay /run/reproducers/",
        "bitopCommand (src/bitops.c:452) ← call (src/bitops.c:9)",
        "UNKNOWN sparc64/bitops: its canaries did not behave",
        "known finding x expired",
    ):
        assert told in text, f"the terminal does not show: {told}"
    assert "FAIL  1 finding, seed 7, run /run" == text.strip().splitlines()[-1]  # noqa: SIM300


@pytest.mark.parametrize("text", ["[/bold]", "x.c: error: bad [-Werror=cast-align]", "[red]", "a [/] b"])
def test_brackets_in_a_reason_are_shown_as_they_are(text: str) -> None:
    assert text in shown(judgement(reason=text, title=text))


@pytest.mark.parametrize(("detector", "told"), [("ubsan", "[ubsan]"), ("audit", "[audit]"), ("signal", "")])
def test_a_witness_tells_what_saw_it_unless_it_was_a_signal(detector: str, told: str) -> None:
    whole = judgement()
    witness = msgspec.structs.replace(whole.findings[0].witnesses[0], detector=detector)
    finding = msgspec.structs.replace(whole.findings[0], witnesses=[witness])
    seen = msgspec.structs.replace(whole, findings=[finding])
    (line,) = [line for line in shown(seen).splitlines() if "452  ldr" in line]
    assert line.strip().endswith(f"1 mod 4  {told}".strip())
    (row,) = [line for line in report.markdown(seen).splitlines() if line.startswith("- armv5")]
    assert row.endswith(f"1 mod 4 {told}".strip())


def test_markdown_has_a_row_a_target_and_a_section_a_finding(tmp_path: Path) -> None:
    report.write(tmp_path, judgement())
    lines = (tmp_path / "summary.md").read_text("utf-8").splitlines()
    assert "| armv5 | PASS | FAIL |" in lines
    assert "| sparc64 | UNKNOWN | UNKNOWN |" in lines
    assert "## alignment-bitopCommand-load" in lines
    assert any("`src/bitops.c:452` `ldr r1, [r3]`" in line for line in lines)
