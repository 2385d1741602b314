"""Standard output that is closed, full, without a reader or unable to encode a letter never shows as a bug of ours."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import ExitCode
from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.costly

PLUMB = [sys.executable, "-m", "harness.cli"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate cache. The user's cache may exceed its limit, and commands would then print a message."""
    monkeypatch.setenv("PLUMBLINE_CACHE", str(tmp_path / "cache"))


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command in which "$@" is `plumb`."""
    return subprocess.run(
        ["bash", "-c", line, "bash", *PLUMB],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        errors="backslashreplace",
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_closed_standard_output_is_exit_7_before_any_work() -> None:
    ended = shell('"$@" list targets >&-')
    assert (ended.returncode, ended.stderr.splitlines()[0]) == (
        ExitCode.INFRASTRUCTURE,
        "error: standard output is closed",
    )


def test_a_full_disk_behind_standard_output_is_exit_7() -> None:
    ended = shell('"$@" list targets --json >/dev/full')
    assert ended.returncode == ExitCode.INFRASTRUCTURE, ended.stderr
    assert ended.stderr == (
        "error: standard output cannot be written: No space left on device\n  because: the exit status was 0\n"
    )


def test_a_reader_that_closes_the_pipe_does_not_change_the_exit_status() -> None:
    ended = shell('"$@" list policies --json | true; exit "${PIPESTATUS[0]}"')
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "Traceback" not in ended.stderr
    assert ended.stderr == "standard output was closed by its reader (Broken pipe); the exit status is 0\n"


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_standard_input_and_error_may_be_closed(closed: str) -> None:
    ended = shell(f'"$@" list targets {closed}')
    assert (ended.returncode, "armv5" in ended.stdout) == (0, True), ended.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_utf_8_gets_the_letters_that_it_can_show(tmp_path: Path, encoding: str) -> None:
    absent = str(tmp_path / "снег")
    ended = shell(f'"$@" judge {shlex.quote(absent)}', PYTHONIOENCODING=encoding)
    assert ended.returncode == ExitCode.USAGE, ended.stderr
    assert "not a run folder" in ended.stderr
    assert "\\u0441" in ended.stderr


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_a_document_loses_nothing_whatever_the_terminal_is(encoding: str) -> None:
    line = "from harness.cli.output import print_json; print_json({'name': 'снег é \U0001f41f'})"
    ended = subprocess.run(
        [sys.executable, "-c", f"from harness.core.standard_streams import Streams; Streams(); {line}"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert json.loads(ended.stdout.decode(encoding)) == {"name": "снег é \U0001f41f"}
