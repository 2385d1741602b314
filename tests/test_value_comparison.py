"""Where values of two machines part. tests/end_to_end/test_value_recording.py records some."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from harness.analysis.suspects import SuspectList
from harness.analysis.values.comparison import Moment, NamedValue, compare, read_moments
from harness.core.finding import Suspect, ValueComparison
from harness.report.finding import comparison_lines

if TYPE_CHECKING:
    from pathlib import Path


def number(name: str, value: int, size: int = 4) -> NamedValue:
    return NamedValue(name, "number", value, size)


def text(name: str, value: bytes) -> NamedValue:
    return NamedValue(name, "bytes", value.hex(), 0)


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


def test_addresses_are_not_compared() -> None:
    def told(where: str) -> list[Moment]:
        return call("free", [NamedValue("p", "pointer", where, 0)], [])

    assert compare(told("null"), told("somewhere"), told("somewhere"), name="armv5") is None


def test_a_function_with_calls_that_one_machine_made_inline_is_compared_last() -> None:
    def told(first: int, *, twice: bool) -> list[Moment]:
        often = [
            *call("small", [number("v", first)], []),
            *(call("small", [number("v", 4)], [], call=1) if twice else []),
        ]
        return [*often, *served(first)]

    found = compare(told(7, twice=True), told(8, twice=False), told(8, twice=False), name="armv5")
    assert found is not None
    assert found.within == "swap"


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
    # A second comparison says it once.
    assert ranking.compared(found).suspects == ranking.suspects
    assert comparison_lines(ranking.comparison) == [
        "last equal: call 1 enters swap: v = 5",
        "first different: call 1 leaves swap: result = 7 on sparc64, 8 natively",
    ]
    assert comparison_lines(None) == []
