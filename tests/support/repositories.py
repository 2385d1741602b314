"""Repositories for tests, made without the user's configuration of git: its hooks may fail, and its signatures ask."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=unstable")
NO_CONFIGURATION = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def git(folder: Path, *words: str | Path) -> str:
    """Run git in a folder. Returns what it prints. Raises CalledProcessError."""
    return subprocess.run(
        ["git", "-C", folder, *IDENTITY, *words],
        check=True,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **NO_CONFIGURATION},
    ).stdout.strip()


def commit(folder: Path, message: str = "more") -> str:
    """Commit everything in a folder. Returns the commit."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)
    return git(folder, "rev-parse", "HEAD")
