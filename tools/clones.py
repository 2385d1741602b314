"""Public histories of the server families: which clone has a commit, and checkouts. Nothing is written to a clone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.errors import UsageError
from harness.core.processes import environment, process

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

GIT_SECONDS = 300.0


def found_in(clones: Sequence[Path], commits: Iterable[str]) -> dict[str, Path]:
    """Commit, of 40 digits -> the first clone that contains it. Raises UsageError if a folder is no repository."""
    wanted = list(commits)
    places: dict[str, Path] = {}
    for clone in clones:
        # What a shallow or older clone lacks is left out without an error.
        result = process.run(
            ["git", "-C", clone, "rev-list", "--no-walk", "--ignore-missing", *wanted],
            deadline_seconds=GIT_SECONDS,
            environment=environment.for_git(),
        )
        if result.code:
            raise UsageError(
                "not a git repository",
                where=f"--git {clone}",
                because=result.text.strip(),
                remedy="git clone the public history of redis or valkey, and name that folder",
            )
        for commit in set(result.text.split()).intersection(wanted):
            places.setdefault(commit, clone)
    return places


def check_out(commit: str, clone: Path, folder: Path) -> Path:
    """A checkout of a commit in a new folder, which shares the clone's objects. Raises InfrastructureError."""
    git(clone, "clone", "--quiet", "--shared", "--no-checkout", ".", folder)
    git(folder, "checkout", "--quiet", "--detach", commit)
    return folder


def git(folder: Path, *words: str | Path) -> None:
    """Run git in a folder, without the user's configuration, which might convert files. Raises InfrastructureError."""
    process.run_successfully(
        ["git", "-C", folder, *words],
        deadline_seconds=GIT_SECONDS,
        problem=f"git {' '.join(map(str, words))} failed",
        where=str(folder),
    )
