"""A program that failed as its command expected is no finding, and the command's own failure is none either."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import pytest

from harness.core.finding import Verdict
from harness.judge.program_runs.program_evidence import program_remarks
from harness.record import stored_run
from tests.end_to_end.programs.test_programs import TracedRun

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

DRIVER = """\
while test "$1" != --; do
    case $1 in --trs-file) trs=$2;; --expect-failure) expected=$2;; esac
    shift
done
shift
"$@"
case $?:$expected in 0:no) told=PASS;; 0:yes) told=XPASS;; *:yes) told=XFAIL;; *) told=FAIL;; esac
echo ":test-result: $told" >"$trs"
"""
"""A driver of tests, as Automake has them."""


@pytest.fixture
def traced_arm(tmp_path: Path) -> TracedRun:
    return TracedRun(tmp_path, "armv5")


@pytest.mark.parametrize(
    "script",
    [
        "sh -c './odd status 1; true'; exit 3",
        "sh -c 'if ./odd status 1; then exit 1; fi'; no-such-tool",
        'python3 -c \'import subprocess; subprocess.run(["./odd", "status", "1"])\'; exit 3',
        # Nobody waits for it.
        "sh -c './odd status 1 & true'; sleep 0.5; exit 3",
    ],
)
def test_a_command_that_fails_for_another_reason_blames_no_program_whose_status_was_expected(
    traced_arm: TracedRun, script: str
) -> None:
    found, cell = traced_arm.judged("sh", "-c", script)
    assert (found, cell.verdict) == ([], Verdict.UNKNOWN)
    assert "what ran the programs of armv5 that failed expected it: ./odd status 1" in cell.reason


def test_only_the_status_that_made_the_command_fail_is_a_finding(traced_arm: TracedRun) -> None:
    script = "sh -c './odd status 1; true'; sh -c './odd status 2' || exit 1"
    found, cell = traced_arm.judged("sh", "-ec", script)
    assert (found, cell.verdict) == (["exit-odd_status_2-2"], Verdict.FAIL)
    (_, told) = program_remarks(traced_arm.cells.parent, stored_run.read(traced_arm.cells.parent).record)
    assert told == "programs of armv5 that failed as what ran them expected, and are not judged: ./odd status 1"


def test_a_shell_that_ends_at_a_failure_leaves_its_earlier_failures_in_doubt(traced_arm: TracedRun) -> None:
    script = "set -e; ! ./odd status 1; ! ./odd status 2; ./odd; ./odd status 1 again; echo on"
    (traced_arm.folder / "script").write_text(script, "utf-8")
    found, cell = traced_arm.judged("sh", "-c", "sh script; exit $?")
    assert (found, cell.verdict) == (["exit-odd_status_1_again-1"], Verdict.FAIL)
    assert cell.reason.endswith("as if it expected it: ./odd status 1; ./odd status 2")


def test_a_crash_is_a_finding_whatever_its_caller_made_of_it(traced_arm: TracedRun) -> None:
    found, cell = traced_arm.judged("sh", "-c", "sh -c './odd abort; ./odd status 1; true'; exit 3")
    assert (found, cell.verdict) == (["crash-odd-SIGABRT"], Verdict.FAIL)


def test_a_driver_of_automake_is_believed_and_not_its_own_status(traced_arm: TracedRun) -> None:
    (traced_arm.folder / "driver").write_text(DRIVER, "utf-8")
    (traced_arm.folder / "script").write_text("! ./odd status 3", "utf-8")
    tests = {"a": ("no", "./odd status 1"), "b": ("yes", "./odd status 2"), "c": ("no", "sh script")}
    runs = "; ".join(
        f"sh driver --test-name {name} --trs-file {name}.trs --expect-failure {expected} -- {words}"
        for name, (expected, words) in tests.items()
    )
    found, cell = traced_arm.judged("sh", "-c", f"{runs}; ! grep -h FAIL *.trs")
    assert (found, cell.verdict) == (["exit-odd_status_1-1"], Verdict.FAIL)


CTEST = """\
add_test(bad "./odd" "status" "1")
add_test(expected "./odd" "status" "2")
set_tests_properties(expected PROPERTIES WILL_FAIL TRUE)
"""
MESON = """\
project('tests')
odd = find_program('./odd')
test('bad', odd, args: ['status', '1'])
test('expected', odd, args: ['status', '2'], should_fail: true)
"""


@pytest.mark.slow(instead="test_ctests_log_says_which_test_failed, test_mesons_log_says_what_came_of_a_test")
@pytest.mark.parametrize(
    ("files", "script"),
    [
        ({"CTestTestfile.cmake": CTEST}, "ctest"),
        ({"meson.build": MESON}, "meson setup b >&2 && meson test -C b"),
    ],
    ids=["ctest", "meson"],
)
def test_a_test_that_has_to_fail_is_no_finding_beside_one_that_must_not(
    traced_arm: TracedRun, files: dict[str, str], script: str
) -> None:
    for name, text in files.items():
        (traced_arm.folder / name).write_text(text, "utf-8")
    found, cell = traced_arm.judged("sh", "-c", script)
    assert (found, cell.verdict) == (["exit-odd_status_1-1"], Verdict.FAIL)


PYTEST = """\
import subprocess

def status(number):
    return subprocess.run(["./odd", "status", str(number)]).returncode

def test_bad():
    assert status(1) == 0

def test_expected():
    assert status(2) == 2
"""


@pytest.mark.parametrize("options", ["", "-n 1"])
def test_a_status_that_a_test_of_pytest_expects_is_no_finding(traced_arm: TracedRun, options: str) -> None:
    (traced_arm.folder / "test_status.py").write_text(PYTEST, "utf-8")
    (traced_arm.folder / "pytest.ini").touch()
    found, cell = traced_arm.judged("sh", "-c", f"{shlex.quote(sys.executable)} -m pytest -q {options}")
    assert (found, cell.verdict) == (["exit-odd_status_1-1"], Verdict.FAIL)
