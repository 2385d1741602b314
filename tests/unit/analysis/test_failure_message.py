"""The place that the output of a failing program names is found, whichever assertion, check or panic wrote it."""

from __future__ import annotations

import pytest

from harness.analysis.program_traits.failure_message import asserted_place, checked_place, last_line

GO = """panic: runtime error: index out of range [5] with length 3

goroutine 1 [running]:
runtime.gopanic({0x1b2a3c0?, 0xc000012})
\t/usr/lib/go/src/runtime/panic.go:770 +0x132
main.sum({0x4000, 0x3})
\t/tree/sum.go:12 +0x1c
main.main()
\t/tree/main.go:5 +0x20
exit status 2
"""


@pytest.mark.parametrize(
    ("output", "place"),
    [
        ("t: ../src/t.c:7: check: Assertion `v == 3' failed.\nAborted\n", ("check", "../src/t.c", 7)),
        ("t: a.cc:7: void ns::check(int): Assertion `v' failed.\n", ("check", "a.cc", 7)),
        ("Assertion failed: v == 3 (t.c: check: 7)\n", ("check", "t.c", 7)),
        ("**\nERROR:t.c:7:test_check: assertion failed (a == b): (1 == 2)\n", ("test_check", "t.c", 7)),
        ("thread 'main' panicked at src/main.rs:4:5:\nboom\nnote: run with", ("??", "src/main.rs", 4)),
        ("thread 'main' panicked at 'boom', src/main.rs:4:5\n", ("??", "src/main.rs", 4)),
        (
            (
                "thread 't' panicked at 'assertion failed: `(left == right)`\n"
                "  left: `1`,\n right: `2`', src/lib.rs:16:9\n"
                "stack backtrace:\n   4: parcel::tests::seconds\n             at ./src/lib.rs:14:9\n"
            ),
            ("??", "src/lib.rs", 16),
        ),
        (GO, ("main.sum", "/tree/sum.go", 12)),
        # The last one ended the program.
        ("t: t.c:7: f: Assertion `a' failed.\nt: t.c:9: g: Assertion `b' failed.\n", ("g", "t.c", 9)),
    ],
)
def test_the_place_of_an_assertion(output: str, place: tuple[str, str, int]) -> None:
    found = asserted_place(output)
    assert found is not None
    assert (found.function, found.file, found.line) == place


@pytest.mark.parametrize(
    "line",
    [
        "tests/t.c:7: wrong sum",
        "tests/t.c:7:E:core:test_sum:0: wrong sum",
        "not ok 3 - sum (tests/t.c:7)",
        "[  ERROR   ] --- tests/t.c:7: error: Failure!",
        "#   at tests/t.c:7",
    ],
)
def test_the_place_of_a_failed_check(line: str) -> None:
    found = checked_place(f"1..3\n{line}\nFAILED\n")
    assert found is not None
    assert (found.function, found.file, found.line) == ("??", "tests/t.c", 7)
    assert asserted_place(line) is None


@pytest.mark.parametrize("output", ["", "Expected 4142305122, got 3703547805\n", "at 10:30: done\n", "t.c failed\n"])
def test_other_output_names_no_place(output: str) -> None:
    assert (asserted_place(output), checked_place(output)) == (None, None)


def test_the_last_line_that_says_something_is_the_message() -> None:
    assert last_line("first\n  second \n\n") == "second"
    assert last_line("\n") == ""
    assert last_line(GO.replace("exit status 2\n", "")) == "panic: runtime error: index out of range [5] with length 3"
