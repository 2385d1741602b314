"""Which programs failed as what ran them expected: what succeeded above them, and what drivers of tests report."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal

import pytest

from harness.record.program_launch import ProgramLaunch
from harness.run.programs.expected_ends import Opinion, opinion
from harness.run.programs.program_callers import Caller

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PROGRAM = ["/tree/t", "1"]
NOW_MS = 1_700_000_000_000
Way = Literal["exited", "killed", ""]


def launched(words: list[str] = PROGRAM, **environment: str) -> ProgramLaunch:
    return ProgramLaunch(
        guest="guest-1",
        pid=1,
        began_ms=NOW_MS - 2000,
        folder="/tree",
        program=words[0],
        file=words[0],
        words=words,
        environment=dict(environment),
    )


def is_expected(number: int, callers: dict[int, Caller], words: list[str], **environment: str) -> bool:
    """Whether a program that the process with this number made failed as expected."""
    held = opinion(9, number, callers, launched(words, **environment))
    assert held is not Opinion.SURVIVED
    return held is Opinion.EXPECTED


def caller(
    words: Sequence[str] = ("sh",), *, above: int = 0, folder: str = "", how: Way = "exited", number: int = 1
) -> Caller:
    return Caller(caller=above, folder=folder, words=list(words), how=how, number=number, ended_ms=NOW_MS)


def written(folder: Path, name: str, text: str, *, ms: int = NOW_MS) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    os.utime(path, ns=(ms * 1_000_000, ms * 1_000_000))


@pytest.mark.parametrize(
    ("callers", "expected"),
    [
        ({}, False),
        ({1: caller()}, False),
        ({1: caller(number=0)}, True),
        ({1: caller(how="killed", number=0)}, False),
        # It still ran when it was noted, or its end could not be.
        ({1: caller(how="", number=0)}, False),
        ({1: caller(number=0), 5: caller(above=1)}, True),
        ({1: caller(), 5: caller(above=1)}, False),
        # What is above it is unknown.
        ({5: caller(above=1)}, False),
    ],
)
def test_a_status_is_expected_if_something_above_its_program_succeeded(
    callers: dict[int, Caller], *, expected: bool
) -> None:
    assert is_expected(max(callers, default=5), callers, PROGRAM) is expected


AUTOMAKE = ["/bin/sh", "./test-driver", "--test-name", "t", "--trs-file", "t.trs", "--", "/tree/t", "1"]


@pytest.mark.parametrize(
    ("text", "ms", "expected"),
    [
        (":test-result: FAIL\n:recheck: yes\n", NOW_MS, False),
        (":test-result: XPASS\n", NOW_MS, False),
        (":test-result: PASS 1\n:test-result: ERROR - too few\n:global-test-result: ERROR\n", NOW_MS, False),
        (":test-result: PASS\n", NOW_MS, True),
        (":test-result: XFAIL\n", NOW_MS, True),
        (":test-result: SKIP\n", NOW_MS, True),
        # A later driver's.
        (":test-result: PASS\n", NOW_MS + 5000, False),
        ("", NOW_MS, False),
    ],
)
def test_a_driver_of_automake_succeeds_whatever_its_test_did(
    tmp_path: Path, text: str, ms: int, *, expected: bool
) -> None:
    written(tmp_path, "t.trs", text, ms=ms)
    callers = {1: caller(["make"]), 2: caller(AUTOMAKE, above=1, folder=str(tmp_path), number=0)}
    assert is_expected(2, callers, PROGRAM) is expected


@pytest.mark.parametrize("words", [AUTOMAKE, AUTOMAKE[:5]])
def test_a_driver_of_automake_without_a_report_expected_nothing(tmp_path: Path, words: list[str]) -> None:
    assert is_expected(2, {2: caller(words, folder=str(tmp_path), number=0)}, PROGRAM) is False


def test_a_script_that_succeeds_below_a_driver_expected_the_status(tmp_path: Path) -> None:
    """Its driver reports another failure of the same test, which is not the program's."""
    written(tmp_path, "t.trs", ":test-result: FAIL\n")
    callers = {2: caller(AUTOMAKE, folder=str(tmp_path), number=0), 3: caller(["sh", "part"], above=2, number=0)}
    assert is_expected(3, callers, PROGRAM) is True


def test_an_option_of_the_test_is_not_one_of_a_driver(tmp_path: Path) -> None:
    words = ["wrap", "--", "./t", "--trs-file", "t.trs"]
    assert is_expected(2, {2: caller(words, folder=str(tmp_path), number=0)}, PROGRAM) is True


CTEST_LOG = """\
Start testing: Nov 30 23:06 UTC
1/3 Testing: may fail
1/3 Test: may fail
Command: "/tree/t" "1"
Directory: /tree
Output:
Test Failed.
<end of output>
Test Passed.

2/3 Test: bad
Command: "/tree/t" "2"
Output:
<end of output>
Test Passed.

3/3 Test: script
Command: "/usr/bin/sh" "all.sh"
"""


@pytest.mark.parametrize(("words", "expected"), [(PROGRAM, True), (["/tree/t", "2"], False), (["/tree/t", "3"], False)])
def test_ctests_log_says_which_test_failed(tmp_path: Path, words: list[str], *, expected: bool) -> None:
    """A test may have to fail (WILL_FAIL), or to print something."""
    written(tmp_path, "Testing/Temporary/LastTest.log", CTEST_LOG)
    written(tmp_path, "Testing/Temporary/LastTestsFailed.log", "2:bad\n")
    callers = {1: caller(["/usr/bin/ctest", "-j2"], folder=str(tmp_path), number=8)}
    assert is_expected(1, callers, words) is expected


def test_a_script_below_ctest_is_looked_up_by_its_own_command_line(tmp_path: Path) -> None:
    written(tmp_path, "Testing/Temporary/LastTest.log", CTEST_LOG)
    written(tmp_path, "Testing/Temporary/LastTestsFailed.log", "2:bad\n")
    ctest = caller(["ctest"], folder=str(tmp_path), number=8)
    assert is_expected(2, {1: ctest, 2: caller(["/usr/bin/sh", "all.sh"], above=1)}, ["/tree/t", "9"]) is True


def test_ctest_that_names_no_failed_test_says_nothing(tmp_path: Path) -> None:
    written(tmp_path, "Testing/Temporary/LastTest.log", CTEST_LOG)
    assert is_expected(1, {1: caller(["ctest"], folder=str(tmp_path), number=8)}, PROGRAM) is False


@pytest.mark.parametrize(
    ("result", "expected"),
    [("FAIL", False), ("TIMEOUT", False), ("UNEXPECTEDPASS", False), ("EXPECTEDFAIL", True), ("OK", True)],
)
@pytest.mark.parametrize(
    "words", [["/usr/bin/meson", "test"], ["/usr/bin/python3", "/usr/bin/meson", "--internal", "test"]]
)
def test_mesons_log_says_what_came_of_a_test(tmp_path: Path, words: list[str], result: str, *, expected: bool) -> None:
    others = [{"command": ["/tree/other"], "result": "OK"}, ["no test"]]
    lines = [json.dumps(one) for one in [*others, {"command": PROGRAM, "result": result}]]
    written(tmp_path, "meson-logs/testlog.json", "\n".join([*lines, "{"]))
    assert is_expected(1, {1: caller(words, folder=str(tmp_path))}, PROGRAM) is expected
    assert is_expected(1, {1: caller(words, folder=str(tmp_path))}, ["/tree/t", "2"]) is False


PYTEST = ["/usr/bin/python3", "-I", "-m", "pytest", "-q", "tests/test_t.py::test_a"]
WORKER = ["/usr/bin/python3", "-u", "-c", "import sys;exec(eval(sys.stdin.readline()))"]
CACHE = ".pytest_cache/v/cache/"


def in_pytest(folder: Path, test: str, *, words: list[str] = PYTEST, number: int = 1, by: Sequence[str] = ()) -> bool:
    """Whether a program that a test of pytest runs failed as expected. `by`: a process between them, which succeeds."""
    driver = caller(words, folder=str(folder), number=number)
    callers = {1: driver, 2: caller(by or ["sh"], above=1, number=0 if by else 1)}
    return is_expected(2, callers, PROGRAM, PYTEST_CURRENT_TEST=test)


@pytest.mark.parametrize("by", [(), WORKER])
@pytest.mark.parametrize("words", [PYTEST, ["/usr/bin/python3", "/usr/bin/pytest"], ["pytest", "-q"]])
@pytest.mark.parametrize("below", [".", "tests"])
def test_pytests_cache_says_what_came_of_the_test_that_ran_a_program(
    tmp_path: Path, below: str, words: list[str], by: Sequence[str]
) -> None:
    if below != "." and "tests" not in " ".join(words):
        words = [*words, "tests"]
    written(tmp_path, f"{below}/t.py", "def a(): ...\n")
    written(tmp_path, f"{below}/{CACHE}nodeids", "[]", ms=NOW_MS + 20)
    # It is not written again if the same tests failed before.
    written(tmp_path, f"{below}/{CACHE}lastfailed", json.dumps({"t.py::b (call)": True}), ms=NOW_MS - 90_000)
    assert in_pytest(tmp_path, "t.py::a (call)", words=words, by=by) is True
    assert in_pytest(tmp_path, "t.py::b (call) (call)", words=words, by=by) is False


@pytest.mark.parametrize(
    "change",
    [
        # A fixture, on which other tests may depend.
        {"test": "t.py::a (setup)"},
        # A test of another pytest, which this one ran.
        {"test": "other.py::a (call)"},
        {"test": ""},
        # It was interrupted, and may not have written.
        {"number": 2},
        # Another run wrote it, before or later.
        {"nodeids_ms": NOW_MS - 5000},
        {"nodeids_ms": NOW_MS + 5000},
        {"failed": "{}"},
        {"failed": "{"},
        {"failed": "[1]"},
    ],
    ids=str,
)
def test_pytest_without_a_record_of_its_own_expected_nothing(tmp_path: Path, change: dict[str, Any]) -> None:
    def expected(*, test: str = "t.py::a (call)", number: int = 1, **files: Any) -> bool:
        written(tmp_path, "t.py", "def a(): ...\n")
        written(tmp_path, f"{CACHE}nodeids", '["t.py::a"]', ms=files.get("nodeids_ms", NOW_MS + 20))
        written(tmp_path, f"{CACHE}lastfailed", files.get("failed", '{"t.py::b": true}'), ms=NOW_MS)
        return in_pytest(tmp_path, test, number=number)

    assert expected() is True
    assert expected(**change) is False


def test_a_worker_of_pytest_that_succeeds_expected_nothing(tmp_path: Path) -> None:
    assert in_pytest(tmp_path, "", by=WORKER) is False
    assert in_pytest(tmp_path, "", by=["sh", "-c", "./t || true"]) is True


def shell(words: Sequence[str], folder: Path, *, last: int = 8, last_status: int = 1, number: int = 1) -> Caller:
    return Caller(
        caller=1,
        folder=str(folder),
        words=list(words),
        how="exited",
        number=number,
        ended_ms=NOW_MS,
        last=last,
        last_status=last_status,
    )


@pytest.mark.parametrize(
    "words", [["sh", "-ec", "all"], ["/bin/bash", "-xe", "gone"], ["sh", "all"], ["dash", "-x", "of"]]
)
def test_a_shell_that_ends_at_a_failure_minded_its_last_program_alone(tmp_path: Path, words: list[str]) -> None:
    written(tmp_path, "all", "#!/bin/sh\n. ./more\nset -eu\n./t 1 && die\n")
    written(tmp_path, "of", "#!/bin/sh -e\n")
    above = {1: caller()}
    assert opinion(7, 2, {**above, 2: shell(words, tmp_path)}, launched()) is Opinion.SURVIVED
    assert opinion(8, 2, {**above, 2: shell(words, tmp_path)}, launched()) is Opinion.FAILED


@pytest.mark.parametrize(
    "one",
    [
        {"words": ["sh", "-c", "set -e"]},
        {"words": ["sh", "-x", "plain"]},
        {"words": ["sh", "gone"]},
        {"words": ["sh"]},
        {"words": ["python3", "all"]},
        # It ends on its own, with a status that it chose.
        {"words": ["sh", "all"], "last_status": 2},
        {"words": ["sh", "all"], "last": 0, "last_status": 0},
        {"words": ["sh", "some"]},
    ],
)
def test_another_shell_may_count_failures(tmp_path: Path, one: dict[str, Any]) -> None:
    written(tmp_path, "all", "set -e\n")
    written(tmp_path, "some", "set -e\nset +e\n")
    written(tmp_path, "plain", "echo set -e\n")
    assert opinion(7, 2, {1: caller(), 2: shell(**{"folder": tmp_path, **one})}, launched()) is Opinion.FAILED


def test_the_script_of_a_shell_that_changed_its_folder_is_found_from_what_made_it(tmp_path: Path) -> None:
    written(tmp_path, "all", "set -e\n")
    callers = {1: caller(["make"], folder=str(tmp_path)), 2: shell(["sh", "all"], tmp_path / "gone")}
    assert opinion(7, 2, callers, launched()) is Opinion.SURVIVED
