"""A run folder belongs to one command alone."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import UsageError
from harness.workflows.run_folders import empty_run_folder

if TYPE_CHECKING:
    from pathlib import Path

TAKING = """
import sys
from pathlib import Path
from harness.workflows.run_folders import empty_run_folder
empty_run_folder(Path(sys.argv[1]))
print("taken", flush=True)
sys.stdin.read()
"""


def test_a_folder_that_another_command_has_just_taken_is_refused_while_that_runs(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TAKING, tmp_path / "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"taken\n"
        with pytest.raises(UsageError, match="another run uses this folder"):
            empty_run_folder(tmp_path / "run")
        assert other.stdin is not None
        other.stdin.close()
    assert list((tmp_path / "run").iterdir()) == []
    assert empty_run_folder(tmp_path / "run") == tmp_path / "run"


def test_a_folder_with_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="the run folder is not empty"):
        empty_run_folder(tmp_path)
