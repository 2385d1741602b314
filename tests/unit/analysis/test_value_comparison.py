"""Where values of two machines part. tests/end_to_end/findings/test_value_recording.py records some."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from rich.console import Console

from harness.analysis.suspects import SuspectList
from harness.analysis.values.comparison import Usual, compare, usual_differences
from harness.analysis.values.moments import Moment, NamedValue, read_moments
from harness.core.finding import Finding, Frame, Suspect, ValueComparison
from harness.report import issue, terminal
from harness.report.finding import comparison_lines
from harness.report.formats import markdown, sarif
from harness.report.formats import registry as formats
from tests.support.judgements import HOSTILE, judgement, run_folder
from tests.unit.report.test_issue import FACTS

if TYPE_CHECKING:
    from pathlib import Path


def number(name: str, value: int, size: int = 4) -> NamedValue:
    return NamedValue(name, "number", value, size)


def text(name: str, value: bytes) -> NamedValue:
    return NamedValue(name, "bytes", value.hex(), len(value))


def call(
    function: str, given: list[NamedValue], made: list[NamedValue], *inside: Moment, call: int = 0
) -> list[Moment]:
    return [Moment(function, call, "entry", given), *inside, Moment(function, call, "return", made)]


def served(inner: int, *, given: int = 5) -> list[Moment]:
    return call(
        "dump",
        [text("key", b"k")],
        [number("result", inner)],
        *call("swap", [number("v", given)], [number("result", inner)]),
    )


def test_the_function_that_makes_another_value_of_equal_ones_is_named() -> None:
    found = compare(served(7), served(8), served(8), name="sparc64")
    assert found == ValueComparison(
        last_equal="call 1 enters swap: v = 5",
        first_different="call 1 leaves swap",
        differences=["result = 7 on sparc64, 8 natively"],
        within="swap",
        compared=3,
    )


def test_where_arguments_differ_the_function_around_is_named() -> None:
    found = compare(served(7, given=6), served(8), served(8), name="sparc64")
    assert found is not None
    assert (found.first_different, found.within) == ("call 1 enters swap", "dump")
    assert found.last_equal == "call 1 enters dump: key -> 'k'"
    outside = compare(*(call("swap", [number("v", given)], []) for given in (6, 5, 5)), name="sparc64")
    assert outside is not None
    assert (outside.within, outside.last_equal) == ("", "")


def test_the_place_is_the_call_of_an_entered_function_and_the_definition_of_a_left_one() -> None:
    def placed(result: int, given: int) -> list[Moment]:
        call_of = ("save", "/plumbline/tree/src/rdb.c", 180)
        definition = ("swap", "/plumbline/tree/src/endianconv.c", 70)
        entry, left = call("swap", [number("v", given)], [number("result", result)])
        return [msgspec.structs.replace(entry, place=call_of), msgspec.structs.replace(left, place=definition)]

    def place(given: int, result: int) -> Frame | None:
        found = compare(placed(result, given), placed(8, 5), placed(8, 5), name="sparc64")
        assert found is not None
        return found.place

    assert place(given=6, result=8) == Frame(function="save", file="src/rdb.c", line=180, origin="server", pc=0)
    assert place(given=5, result=7) == Frame(function="swap", file="src/endianconv.c", line=70, origin="server", pc=0)


def test_equal_values_have_no_difference() -> None:
    assert compare(served(7), served(7), served(7), name="armv5") is None


def test_what_two_runs_of_the_native_build_do_not_agree_on_is_not_compared() -> None:
    assert compare(served(7), served(8), served(9), name="armv5") is None


def test_the_highest_number_of_a_type_is_the_same_in_every_size() -> None:
    def told(value: int, size: int) -> list[Moment]:
        return call("count", [number("most", value, size)], [])

    assert compare(told(2**32 - 1, 4), told(2**64 - 1, 8), told(2**64 - 1, 8), name="armv5") is None
    assert compare(told(2**32 - 1, 8), told(2**64 - 1, 8), told(2**64 - 1, 8), name="armv5") is not None
    assert compare(told(1, 4), told(2**32 + 1, 8), told(2**32 + 1, 8), name="armv5") is not None


def test_a_plain_char_is_the_same_with_and_without_a_sign() -> None:
    def told(value: int, size: int) -> list[Moment]:
        return call("put", [number("c", value, size)], [])

    assert compare(told(200, 1), told(-56, 1), told(-56, 1), name="armv5") is None
    assert compare(told(201, 1), told(-56, 1), told(-56, 1), name="armv5") is not None
    assert compare(told(200, 4), told(-56, 4), told(-56, 4), name="armv5") is not None


def test_the_number_of_an_open_file_is_not_compared() -> None:
    def told(name: str, value: int) -> list[Moment]:
        return call("put", [number(name, value)], [])

    assert compare(told("fd", 9), told("fd", 8), told("fd", 8), name="armv5") is None
    assert compare(told("n", 9), told("n", 8), told("n", 8), name="armv5") is not None


def test_a_function_whose_return_was_missed_ended_with_its_caller() -> None:
    def told(given: int) -> list[Moment]:
        jumped_to = Moment("_grow", 0, "entry", [])
        return call("dump", [], [], *call("grow", [], [], jumped_to), *call("swap", [number("v", given)], []))

    found = compare(told(6), told(5), told(5), name="sparc64")
    assert found is not None
    assert found.within == "dump"


def test_the_caller_is_named_rather_than_what_was_entered_last() -> None:
    def told(given: int) -> list[Moment]:
        missed = Moment("_grow", 0, "entry", [])
        swap = Moment("swap", 0, "entry", [number("v", given)], ("dump", "/plumbline/tree/src/cluster.c", 80))
        return [Moment("dump", 0, "entry", []), missed, swap]

    found = compare(told(6), told(5), told(5), name="sparc64")
    assert found is not None
    assert found.within == "dump"


def test_addresses_are_not_compared() -> None:
    def told(where: str) -> list[Moment]:
        return call("free", [NamedValue("p", "pointer", where, 0)], [])

    assert compare(told("null"), told("somewhere"), told("somewhere"), name="armv5") is None


def test_a_call_is_compared_with_the_same_call_in_the_tree_of_calls() -> None:
    def made(value: int, *, timed: bool) -> list[Moment]:
        # The timer's call makes the command's call the second one.
        before = call("cron", [], [], *call("small", [number("v", 4)], [])) if timed else []
        inside = call("small", [number("v", value)], [], call=1 if timed else 0)
        return [*before, *call("dump", [], [], *inside)]

    assert compare(made(7, timed=True), made(7, timed=False), made(7, timed=False), name="armv5") is None
    found = compare(made(7, timed=True), made(8, timed=False), made(8, timed=False), name="armv5")
    assert found is not None
    assert (found.first_different, found.within) == ("call 2 enters small", "dump")


def test_a_function_that_one_compiler_made_inline_does_not_hide_what_it_calls() -> None:
    def made(value: int, *, inline: bool) -> list[Moment]:
        inside = call("swap", [number("v", value)], [])
        return call("dump", [], [], *(inside if inline else call("wrapper", [number("n", 1)], [], *inside)))

    assert compare(made(7, inline=True), made(7, inline=False), made(7, inline=False), name="armv5") is None
    found = compare(made(7, inline=True), made(8, inline=False), made(8, inline=False), name="armv5")
    assert found is not None
    assert (found.first_different, found.within) == ("call 1 enters swap", "dump")


@pytest.mark.parametrize("kind", ["variable", "unreadable"])
def test_the_caller_of_a_function_with_unknown_arguments_is_named(kind: str) -> None:
    unknown = NamedValue("...", kind, 0, 0)

    def printed(result: int) -> list[Moment]:
        inner = call("vprintf", [unknown], [number("result", 1)], *call("append", [number("len", result)], []))
        return call("report", [], [], *call("printf", [unknown], [number("result", result)], *inner))

    def within(one: list[Moment], other: list[Moment]) -> str:
        found = compare(one, other, other, name="armv5")
        assert found is not None
        return found.within

    assert within(printed(7), printed(8)) == "report"
    left = [msgspec.structs.replace(one, values=[]) if one.function == "append" else one for one in printed(7)]
    assert within(left, printed(8)) == "report"
    alone = [call("printf", [unknown], [number("result", result)]) for result in (7, 8)]
    assert within(*alone) == ""


def test_the_place_of_a_function_with_unknown_arguments_is_its_call() -> None:
    def printed(result: int) -> list[Moment]:
        entry, left = call("printf", [NamedValue("...", "variable", 0, 0)], [number("result", result)])
        called = msgspec.structs.replace(entry, place=("report", "/plumbline/tree/src/latency.c", 285))
        defined = msgspec.structs.replace(left, place=("printf", "/plumbline/tree/src/sds.c", 656))
        return call("report", [], [], called, defined)

    found = compare(printed(7), printed(8), printed(8), name="armv5")
    assert found is not None
    assert found.place == Frame(function="report", file="src/latency.c", line=285, origin="server", pc=0)
    ranking = SuspectList(suspects=[], failing=1, passing=2).compared(found)
    assert [(one.function, one.file) for one in ranking.suspects] == [("report", "src/latency.c")]


def test_calls_from_other_lines_are_not_compared() -> None:
    def added(*lines: int) -> list[Moment]:
        inside = [
            msgspec.structs.replace(one, place=("restore", "/plumbline/tree/src/cluster.c", line))
            for count, line in enumerate(lines)
            for one in call("notify", [number("type", line)], [], call=count)
        ]
        return call("restore", [], [], *inside)

    # Line 5 belongs to a function that one compiler has made inline.
    assert compare(added(5, 9), added(9), added(9), name="sparc64") is None


def test_what_two_runs_of_the_target_do_not_agree_on_is_not_compared() -> None:
    assert compare(served(7), served(8), served(8), name="armv5", repeated=served(9)) is None
    assert compare(served(7), served(8), served(8), name="armv5", repeated=served(7)) is not None


def test_many_bytes_are_shown_and_compared_by_their_ends_and_their_number() -> None:
    def given(content: bytes, size: int) -> list[Moment]:
        return call("put", [NamedValue("s", "bytes", content.hex(), size)], [])

    here, there = given(b"abcdWXYZ", 100), given(b"abcdWXYZ", 101)
    assert compare(here, here, here, name="armv5") is None
    found = compare(here, there, there, name="armv5")
    assert found is not None
    assert found.differences == ["s -> 'abcd' ... 'WXYZ' (100 bytes) on armv5, 'abcd' ... 'WXYZ' (101 bytes) natively"]


def test_a_recording_without_a_function_of_the_other_machine_is_compared_without_it() -> None:
    assert compare([], served(8), served(8), name="armv5") is None
    lost_entry = served(7)[1:]
    assert compare(lost_entry, served(7), served(7), name="armv5") is None, "a return without an entry"


def replied(size: int, *, narrowed: int = 2**40 + 7) -> list[Moment]:
    return [
        *call("bufferSize", [], [number("result", size)]),
        *call("swap", [number("v", narrowed, 8)], [number("result", 1)]),
    ]


def test_a_value_that_usually_differs_counts_only_if_no_other_does() -> None:
    usual = usual_differences(replied(48), replied(24))
    assert usual == {Usual("bufferSize", "return", "result")}
    found = compare(replied(48, narrowed=8), replied(24), replied(24), name="armv5", usual=usual)
    assert found is not None
    assert (found.first_different, found.last_equal, found.usual) == ("call 1 enters swap", "", False)
    alone = compare(replied(48), replied(24), replied(24), name="armv5", usual=usual)
    assert alone is not None
    assert (alone.first_different, alone.usual) == ("call 1 leaves bufferSize", True)
    assert compare(replied(48), replied(24), replied(24), name="armv5") == msgspec.structs.replace(alone, usual=False)


def test_what_a_function_makes_of_a_value_that_usually_differs_counts_last() -> None:
    def written(descriptor: int, length: int, value: int) -> list[Moment]:
        inner = call("length", [], [number("result", length)])
        printed = call("print", [number("n", descriptor)], [number("result", length)], *inner)
        return [*printed, *call("swap", [number("v", 5)], [number("result", value)])]

    usual = {Usual("print", "entry", "n")}
    found = compare(written(12, 2, 7), written(3, 1, 8), written(3, 1, 8), name="armv5", usual=usual)
    assert found is not None
    assert (found.first_different, found.usual) == ("call 1 leaves swap", False)
    found = compare(written(12, 2, 8), written(3, 1, 8), written(3, 1, 8), name="armv5", usual=usual)
    assert found is not None
    assert (found.first_different, found.usual) == ("call 1 enters print", True)
    found = compare(written(3, 2, 8), written(3, 1, 8), written(3, 1, 8), name="armv5", usual=usual)
    assert found is not None
    assert found.first_different == "call 1 leaves length", "nothing usual precedes it"


def test_a_wrong_conversion_counts_though_other_commands_execute_it() -> None:
    def converted(value: NamedValue) -> list[Moment]:
        return [*call("bufferSize", [], [number("result", len(str(value)))]), *call("swap", [value], [])]

    pairs = [
        (number("v", 0x0102), number("v", 0x02010000), True),
        (number("v", 0x0102, 2), number("v", 0x0201, 2), True),
        (number("v", 7), number("v", 2**40 + 7, 8), True),
        (number("v", -1), number("v", 2**32 - 1, 8), True),
        (number("v", 24), number("v", 48, 8), False),
        (text("v", b"\0\x01"), text("v", b"\x01\0"), True),
        (text("v", b"32"), text("v", b"64"), False),
        (NamedValue("v", "number", "0.5", 8), NamedValue("v", "number", "1.5", 8), False),
    ]
    for here, there, counts in pairs:
        usual = usual_differences(converted(here), converted(there)) | {Usual("bufferSize", "return", "result")}
        found = compare(converted(here), converted(there), converted(there), name="sparc64", usual=usual)
        assert found is not None
        assert (not found.usual) == counts, f"{here} and {there}"
        assert not counts or found.first_different == "call 1 enters swap"
        common = compare(converted(here), converted(there), converted(there), name="sparc64", common=usual)
        assert common is not None
        assert common.usual, "every server makes it, as siphash() does on a big-endian machine"


def test_what_cannot_be_compared_does_not_usually_differ() -> None:
    def given(value: NamedValue) -> list[Moment]:
        return call("put", [value], [])

    assert usual_differences(given(number("n", 1)), []) == set()
    assert usual_differences(given(number("n", 1)), given(number("m", 2))) == set()
    assert (
        usual_differences(given(NamedValue("p", "pointer", "a", 0)), given(NamedValue("p", "pointer", "b", 0))) == set()
    )


def test_a_usual_difference_does_not_change_the_ranking() -> None:
    suspects = [Suspect(function=name, file="src/a.c", line=1, score=0.5, why="ran") for name in ("dump", "swap")]
    ranking = SuspectList(suspects=suspects, failing=1, passing=2)
    usual = msgspec.structs.replace(PARTED, usual=True)
    assert [one.function for one in ranking.compared(PARTED).suspects] == ["swap", "dump"]
    shown = ranking.compared(usual)
    assert (shown.suspects, shown.comparison) == (suspects, usual)
    assert ranking.compared(PARTED).compared(usual).suspects[0].why == "ran", "an earlier comparison no longer counts"
    above = msgspec.structs.replace(ranking, suspects=[msgspec.structs.replace(suspects[0], score=0.9), suspects[1]])
    assert above.compared(PARTED).compared(usual).suspects == above.suspects, "the order is that of the ranking again"
    assert comparison_lines(usual)[3:] == [
        "unlikely: these values also differ for similar commands with right replies, and no other value does"
    ]


def test_what_was_recorded_is_read_up_to_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "values.jsonl"
    assert read_moments(path) == []
    lines = [json.dumps(msgspec.to_builtins(one)) for one in served(7)]
    path.write_text("\n".join(lines)[:-5], "utf-8")
    assert read_moments(path) == served(7)[:-1]


def test_the_function_in_which_values_part_leads_the_ranking() -> None:
    suspects = [Suspect(function=name, file="src/a.c", line=1, score=0.5, why="ran") for name in ("dump", "swap")]
    found = compare(served(7), served(8), served(8), name="sparc64")
    assert found is not None
    ranking = SuspectList(suspects=suspects, failing=1, passing=2).compared(found)
    assert [(one.function, one.why) for one in ranking.suspects] == [
        ("swap", "ran; given equal values, it made the first different one"),
        ("dump", "ran"),
    ]
    other = msgspec.structs.replace(
        found, within="grow", place=Frame(function="grow", file="src/sds.c", line=70, origin="server", pc=0)
    )
    added = ranking.compared(other)
    assert [(one.function, one.line, one.score) for one in added.suspects] == [
        ("grow", 70, 0.0),
        ("swap", 1, 0.5),
        ("dump", 1, 0.5),
    ]
    assert (
        added.suspects[0].why == "not among the first by what runs; given equal values, it made the first different one"
    )
    assert added.compared(found).suspects == ranking.suspects, "nobody said so before"
    assert ranking.compared(msgspec.structs.replace(other, within="unknown")).suspects[0].why == "ran"
    # A second comparison says it once.
    assert ranking.compared(found).suspects == ranking.suspects
    assert comparison_lines(ranking.comparison) == [
        "last equal: call 1 enters swap: v = 5",
        "first different: call 1 leaves swap: result = 7 on sparc64, 8 natively",
        "place: swap",
    ]
    assert comparison_lines(None) == []


PARTED = ValueComparison(
    last_equal="call 2 enters swap: v = 5",
    first_different="call 2 leaves swap",
    differences=["result = 7 on sparc64, 8 natively"],
    within="swap",
    compared=3,
    place=Frame(function="swap", file="src/endianconv.c", line=70, origin="server", pc=0),
)


def explained(comparison: ValueComparison | None) -> Finding:
    (finding, *_) = judgement().findings
    return msgspec.structs.replace(finding, kind="wrong-result", comparison=comparison)


def test_the_function_around_is_named_beside_one_that_was_not_looked_at() -> None:
    assert comparison_lines(PARTED)[2:] == ["place: swap (src/endianconv.c:70)"]
    around = msgspec.structs.replace(PARTED, within="rdbSaveRio")
    assert comparison_lines(around)[2:] == ["place: swap (src/endianconv.c:70), within rdbSaveRio"]
    assert comparison_lines(msgspec.structs.replace(around, place=None))[2:] == ["place: rdbSaveRio"]
    assert comparison_lines(msgspec.structs.replace(PARTED, place=None, within=""))[2:] == []


def test_every_format_shows_where_values_part_and_says_that_no_function_need_be_at_fault(tmp_path: Path) -> None:
    finding = explained(PARTED)
    whole = msgspec.structs.replace(judgement(), findings=[finding])
    console = Console(file=(text := io.StringIO()), width=200)
    terminal.show(console, whole)
    shown = "last equal: call 2 enters swap: v = 5", "result = 7 on sparc64, 8 natively", "swap (src/endianconv.c:70)"
    formats.write(run_folder(tmp_path), whole)
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "<h4>Values</h4>" in page
    texts = {
        "terminal": text.getvalue(),
        "sarif": sarif.FORMAT.render(tmp_path, whole),
        "markdown": markdown.FORMAT.render(tmp_path, whole),
        "issue": issue.render(whole, finding, FACTS).replace("`", ""),
        "page": page.replace('</th><td class="long">', ": "),
    }
    for name, document in texts.items():
        assert [one for one in shown if one not in document] == [], name
        assert name == "terminal" or "need be at fault" in document, name
    (result,) = json.loads(texts["sarif"])["runs"][0]["results"]
    assert result["properties"]["comparison"]["differences"] == PARTED.differences
    related = result["relatedLocations"][-1]
    assert related["physicalLocation"]["artifactLocation"]["uri"] == "src/endianconv.c"
    assert "need not be at fault" in related["message"]["text"]
    stored = json.loads((tmp_path / "run" / "findings.json").read_text("utf-8"))
    assert stored["findings"][0]["comparison"] == msgspec.to_builtins(PARTED)


def test_nobody_reads_of_values_that_nobody_compared(tmp_path: Path) -> None:
    finding = explained(None)
    whole = msgspec.structs.replace(judgement(), findings=[finding])
    formats.write(run_folder(tmp_path), whole)
    assert "<h4>Values</h4>" not in (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "comparison" not in sarif.FORMAT.render(tmp_path, whole)
    assert "## Values" not in issue.render(whole, finding, FACTS)


def test_values_of_a_hostile_server_are_shown_harmless(tmp_path: Path) -> None:
    hostile = msgspec.structs.replace(
        PARTED,
        last_equal=HOSTILE,
        differences=[HOSTILE],
        place=Frame(function=HOSTILE, file="src/a.c", line=1, origin="server", pc=0),
    )
    finding = explained(hostile)
    whole = msgspec.structs.replace(judgement(), findings=[finding])
    formats.write(run_folder(tmp_path), whole)
    assert "<script>" not in (tmp_path / "run" / "report.html").read_text("utf-8")
    console = Console(file=(text := io.StringIO()), width=200)
    terminal.show(console, whole)
    documents = [text.getvalue(), sarif.FORMAT.render(tmp_path, whole), markdown.FORMAT.render(tmp_path, whole)]
    assert all("\x1b" not in each for each in [*documents, issue.render(whole, finding, FACTS)])
