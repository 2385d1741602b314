"""Each place in the code is one line of a report, however often a compiler emitted its access and suites showed it."""

from __future__ import annotations

import io
import itertools
import json
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console

from harness.record import run_folder as folders
from harness.report import finding_list, terminal
from harness.report.finding import by_place
from harness.report.formats import markdown, page, sarif
from tests.support.judgements import cell, judgement, run_folder

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.finding import Witness
    from harness.judge.findings import Judgement

EMISSIONS, SUITES = 12, 3
PLACE = "src/bitops.c:207"


def emitted() -> list[Witness]:
    """One access that the compiler emitted twelve times, in registers of each own, and that three suites showed."""
    first = next(one for one in judgement().findings[0].witnesses if one.file)
    return [
        msgspec.structs.replace(
            first,
            file=PLACE.partition(":")[0],
            line=207,
            suite=f"suite-{suite}",
            cells=[f"{first.target}/suite-{suite}"],
            instruction=f"ldrd r{2 * number}, [r3]",
            access=f"load of 8 bytes at {number % 2 + 1} mod 8",
            count=2,
            detector="signal",
            fate="",
            kernel="",
            difference=None,
        )
        for suite, number in itertools.product(range(SUITES), range(EMISSIONS))
    ]


def of(witnesses: list[Witness]) -> Judgement:
    whole = judgement()
    first = msgspec.structs.replace(whole.findings[0], witnesses=witnesses, targets=[witnesses[0].target])
    return msgspec.structs.replace(whole, findings=[first], causes=[])


def test_a_place_has_the_counts_and_cells_of_all_its_witnesses() -> None:
    (one,) = by_place(emitted())
    assert one.count == 2 * EMISSIONS * SUITES
    assert one.cells == [f"{one.target}/suite-{suite}" for suite in range(SUITES)]
    assert one.instruction == "ldrd r0, [r3] (and 11 more like it)"
    assert one.access == "load of 8 bytes at 1 mod 8, load of 8 bytes at 2 mod 8"


def test_other_targets_lines_functions_and_kinds_of_instruction_are_other_places() -> None:
    first = emitted()[0]
    frame = first.backtrace[0]
    others = [
        msgspec.structs.replace(first, target="another"),
        msgspec.structs.replace(first, line=208),
        msgspec.structs.replace(first, file="src/sds.c"),
        msgspec.structs.replace(first, instruction="vldr d0, [r3]"),
        msgspec.structs.replace(first, detector="audit", fate="kill"),
        msgspec.structs.replace(first, backtrace=[msgspec.structs.replace(frame, function="other")]),
    ]
    assert by_place([first, *others, first]) == [msgspec.structs.replace(first, count=4), *others]


def test_a_failed_test_is_not_a_place_in_the_code() -> None:
    failed = msgspec.structs.replace(emitted()[0], file="", line=0, backtrace=[])
    assert by_place([failed, failed]) == [failed, failed]


def test_a_failed_build_is_one_line_for_all_cells_of_a_target_and_says_nothing_twice() -> None:
    first = msgspec.structs.replace(
        emitted()[0], file="", line=0, backtrace=[], test="", instruction="", access="", detector="compiler"
    )
    cells = [msgspec.structs.replace(first, suite=name, cells=[f"{first.target}/{name}"]) for name in ("one", "two")]
    (one,) = by_place(cells)
    assert one.cells == [f"{first.target}/one", f"{first.target}/two"]
    console = Console(file=io.StringIO(), width=200)
    terminal.show(console, of(cells))
    assert f"    {first.target}" not in console.file.getvalue()  # type: ignore[attr-defined]
    assert f"- {first.target}:" not in markdown.render(of(cells))


def test_a_reason_that_cells_share_is_said_once_with_their_names(tmp_path: Path) -> None:
    reason = "it does not compile natively either"
    cells = [cell("armv5", name, "UNKNOWN", reason) for name in ("bitops", "sds")]
    others = [cell("armv5", "fuzz", "UNKNOWN", "no canary"), cell("armv5", "tls", "SKIP", reason)]
    folder = run_folder(tmp_path)
    found = msgspec.structs.replace(judgement(), cells=[*cells, *others])
    console = Console(file=io.StringIO(), width=200)
    terminal.show(console, found)
    html = page.render(folder, found, folders.read_run(folder), shows_history=False)
    for text in (console.file.getvalue(), markdown.render(found), html):  # type: ignore[attr-defined]
        assert text.count(f"armv5/bitops, armv5/sds: {reason}") == 1
        assert text.count("armv5/fuzz: no canary") == 1
    assert f"SKIP armv5/tls: {reason}" in console.file.getvalue()  # type: ignore[attr-defined]


def test_every_report_has_the_place_once_with_its_count(tmp_path: Path) -> None:
    run_folder(tmp_path)
    found = of(emitted())
    on_terminal, shown = (Console(file=io.StringIO(), width=200) for _ in range(2))
    terminal.show(on_terminal, found)
    finding_list.show_whole(shown, found.findings[0])
    folder = run_folder(tmp_path)
    html = page.render(folder, found, folders.read_run(folder), shows_history=False)
    for text in (on_terminal.file.getvalue(), shown.file.getvalue(), markdown.render(found)):  # type: ignore[attr-defined]
        assert text.count("and 11 more like it") == 1
        assert text.count(f"{2 * EMISSIONS * SUITES}×") == 1
    assert shown.file.getvalue().count("seen in") == 1  # type: ignore[attr-defined]
    witnesses = html[html.index('aria-label="Witnesses of') :].partition("</table>")[0]
    assert witnesses.count(f"<code>{PLACE}</code>") == 1
    assert f'<td class="number">{2 * EMISSIONS * SUITES}</td>' in witnesses
    document: dict[str, Any] = json.loads(sarif.render(found))
    (related,) = document["runs"][0]["results"][0]["relatedLocations"]
    assert related["message"]["text"].count("ldrd") == 1
