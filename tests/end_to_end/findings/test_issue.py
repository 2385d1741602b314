"""A bug report about a known bad release: its few commands reproduce the bug, and its list of releases is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.core.errors import ExitCode
from tests.end_to_end.support.plumb_runs import PLUMB, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

BITPOS = "alignment-redisBitpos-load"


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("issue") / "run"
    words = ("--server", "redis-3.2.6", "--target", "armv5", "--suite", "bitops", "--test", "bitpos")
    around = ("--tier", "full", "--io", "tcp", "--seed", 5)
    assert run("check", *words, *around, "--run", folder).returncode == ExitCode.FINDINGS
    return folder


@pytest.mark.slow(instead="tests/unit/report/test_issue.py")
def test_a_bug_report_has_the_fewest_commands_and_the_releases(checked: Path) -> None:
    words = ("report", checked, BITPOS, "--format", "issue", "--ask", "redis-3.2.6", "--ask", "redis-7.0.15")
    finished = run(*words, program=PLUMB)
    text = finished.stdout
    assert finished.returncode == ExitCode.PASS, finished.stderr
    assert text.startswith("# redis-3.2.6: misaligned load in redisBitpos\n")
    assert "| redis-3.2.6 | has it |  |\n| redis-7.0.15 | does not have it |  |\n" in text
    assert ">   131 " in text, "the source line of the bug"
    again = "plumb check --server redis-3.2.6 --target armv5 --suite bitops --tier full --io tcp --seed 5"
    assert f"{again}\n" in text
    assert "allocator libc, clients over TCP.\n" in text
    _, _, rest = text.partition("## Commands\n")
    commands = rest.partition("```text\n")[2].partition("```")[0].splitlines()
    assert 1 < len(commands) <= 3, commands
    assert commands[-1].startswith("BITPOS ")


@pytest.mark.slow(
    instead=(
        "tests/unit/report/test_issue.py; tests/suites/test_fuzz.py, for shortened streams; "
        "test_a_finding_is_reproduced_and_gone_where_it_was_fixed"
    )
)
def test_the_fewest_commands_are_a_stream_that_reproduces_the_bug(checked: Path, tmp_path: Path) -> None:
    stream = tmp_path / "bug.stream"
    reproducer = checked / "reproducers" / f"{BITPOS}.json"
    shortened = run("replay", reproducer, "--shorten", stream, program=PLUMB)
    assert shortened.returncode == ExitCode.FINDINGS, shortened.stderr
    assert len(stream.read_text("utf-8").splitlines()) <= 3
    for server, expected in (("redis-3.2.6", ExitCode.FINDINGS), ("redis-7.0.15", ExitCode.PASS)):
        again = run("replay", stream, "--server", server, "--target", "armv5", program=PLUMB)
        assert again.returncode == expected, again.stdout


@pytest.mark.slow(instead="tests/unit/report/test_issue.py; tests/unit/cli/test_hints.py")
def test_wrong_requests_are_refused_with_advice(checked: Path) -> None:
    for words, error in (
        (("--format", "issue"), "a bug report is about one finding"),
        ((BITPOS,), "ID belongs to a bug report"),
        (("--ask", "redis-7.0.15"), "--ask belongs to a bug report"),
        ((BITPOS, "--format", "issue", "--ask", "redis-7.0.16"), "redis-7.0.16"),
        (("alignment-nothing", "--format", "issue"), "no finding 'alignment-nothing'"),
    ):
        finished = run("report", checked, *words, program=PLUMB)
        assert finished.returncode == ExitCode.USAGE, finished.stderr
        assert error in finished.stderr
