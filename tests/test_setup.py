"""ci/setup, with programs in place of Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_an_activated_environment_is_not_made_by_its_own_python(tmp_path: Path) -> None:
    """Its lock is stale, so it is removed first; its Python went with it."""
    (tmp_path / "ci").mkdir()
    shutil.copy(ROOT / "ci" / "setup", tmp_path / "ci")
    for name in ("requirements.txt", "pyproject.toml"):
        (tmp_path / name).touch()
    inside, outside = tmp_path / ".venv" / "bin", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        python = folder / "python3"
        python.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/{folder.name}.asked\n', "utf-8")
        python.chmod(0o755)
    subprocess.run(
        ["bash", "-c", ". ci/setup"],
        cwd=tmp_path,
        env={"PATH": f"{inside}:{outside}:{os.environ['PATH']}"},
        capture_output=True,
        check=False,
    )
    assert not (tmp_path / "bin.asked").exists()
    assert "-m venv" in (tmp_path / "outside.asked").read_text("utf-8")
