"""ci/test, with fake programs in place of linters and pytest: what runs beside what, and what makes it fail."""

from __future__ import annotations

import fnmatch
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, TypeAlias

import pytest

from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROGRAMS = ("ruff", "codespell", "mypy", "plumb", "python", "shellcheck")
FAKE = """#!/bin/sh
words="$(basename "$0") $*"
echo "begin $words" >>"$LOG"
case "$words" in
*"$HOLDS"*) while ! grep -q "^end .*$UNTIL" "$LOG"; do sleep 0.2; done ;;
esac
echo "end $words" >>"$LOG"
case "$words" in
*"$FAILS"*) echo "what $words found"; exit "$CODE" ;;
esac
"""
LINTERS = "mypy"
PREPARATION = "tests.end_to_end.preparation"
UNIT, END_TO_END = "build/test-times/unit", "build/test-times/end_to_end"
NOTHING = "no such word"
DEADLINE_SECONDS = 60

Script: TypeAlias = "Callable[..., tuple[int, str, list[str]]]"


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Run ci/test: exit code, standard error, and the programs that began and ended in order."""
    (tmp_path / "ci").mkdir()
    shutil.copy(ROOT / "ci" / "test", tmp_path / "ci")
    (tmp_path / "ci" / "setup").touch()
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name in PROGRAMS:
        (folder / name).write_text(FAKE, "utf-8")
        (folder / name).chmod(0o755)
    log = tmp_path / "log"

    def run(
        *words: str, holds: str = NOTHING, until: str = "", fails: str = NOTHING, code: int = 1
    ) -> tuple[int, str, list[str]]:
        log.write_text("", "utf-8")
        environment = {
            **os.environ,
            "PATH": f"{folder}:{os.environ['PATH']}",
            "LOG": str(log),
            "HOLDS": holds,
            "UNTIL": until,
            "FAILS": fails,
            "CODE": str(code),
        }
        result = subprocess.run(
            [tmp_path / "ci" / "test", *words],
            env=environment,
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=DEADLINE_SECONDS,
        )
        return result.returncode, result.stderr, log.read_text("utf-8").splitlines()

    return run


def position(log: list[str], event: str, words: str) -> int:
    return next(number for number, line in enumerate(log) if line.startswith(event) and words in line)


@pytest.mark.parametrize("beside", [LINTERS, PREPARATION])
def test_the_harness_tests_wait_neither_for_linters_nor_for_builds(script: Script, beside: str) -> None:
    code, _, log = script(holds=beside, until=UNIT)
    assert code == 0
    assert position(log, "end", UNIT) < position(log, "end", beside)


def test_end_to_end_tests_begin_when_everything_is_built(script: Script) -> None:
    _, _, log = script(holds=PREPARATION, until=LINTERS)
    assert position(log, "begin", END_TO_END) > position(log, "end", PREPARATION)


@pytest.mark.parametrize("fails", [LINTERS, "ruff format", UNIT])
def test_what_fails_is_told_and_the_other_tests_run(script: Script, fails: str) -> None:
    code, errors, log = script(fails=fails)
    assert code == 1
    assert position(log, "end", END_TO_END)
    assert fails == UNIT or f"what {fails}" in errors


def test_a_failure_of_the_last_tests_counts(script: Script) -> None:
    assert script(fails=END_TO_END)[0] == 1


def test_without_what_they_need_end_to_end_tests_do_not_run(script: Script) -> None:
    code, errors, log = script(fails=PREPARATION, code=7)
    assert code == 7
    assert f"what python -m {PREPARATION}" in errors
    assert not any(END_TO_END in line for line in log)


def test_one_half_without_chosen_tests_is_no_failure(script: Script) -> None:
    assert script("-k", "name", fails=UNIT, code=5)[0] == 0


def test_quick_builds_nothing(script: Script) -> None:
    code, _, log = script("--quick", "-x")
    assert code == 0
    assert not any(word in line for line in log for word in (PREPARATION, END_TO_END))
    assert any(UNIT in line and line.endswith(" --quick -x") for line in log)
    assert any(LINTERS in line for line in log)


def test_pytest_passes_over_no_folder_of_tests(request: pytest.FixtureRequest) -> None:
    """Regression: by default it looks for no tests below a folder called `build`, and 567 never ran."""
    passed_over = request.config.getini("norecursedirs")
    folders = {part for path in (ROOT / "tests").rglob("test_*.py") for part in path.relative_to(ROOT).parts[:-1]}
    assert "build" in folders
    assert [name for name in sorted(folders) if any(fnmatch.fnmatch(name, glob) for glob in passed_over)] == []
