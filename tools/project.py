"""The project's own command, as a person runs it, and the commit on which its answers depend."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from harness.core.processes import environment, process
from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from harness.core.processes.process import Result

WHAT_ANSWERS = ("harness", "suites", "targets", "toolchains", "ci/known.toml")
"""The files on which an answer depends."""
ABBREVIATED = 12
"""Digits of a commit in an answer."""


def plumb(
    *words: str | Path,
    deadline_seconds: float,
    log: Path | None = None,
    variables: Mapping[str, str] | None = None,
    usable: bool = False,
) -> Result:
    """Run `plumb` with these words, and with more variables of the environment. The caller judges its exit status.

    `deadline_seconds`, `usable`: as of `process.run`.

    Raises InfrastructureError if it cannot be started.
    """
    return process.run(
        [sys.executable, "-m", "harness.cli.console_script", *words],
        deadline_seconds=deadline_seconds,
        usable=usable,
        log=log,
        folder=ROOT,
        environment={**os.environ, **(variables or {})},
    )


def commit(root: Path = ROOT) -> str:
    """The last commit that changed what an answer depends on, with `+` behind it if the work tree differs from it.

    A commit of documents alone makes no answer older. Raises InfrastructureError if git fails.
    """

    def git(*words: str) -> str:
        return process.run_successfully(
            ["git", *words, "--", *WHAT_ANSWERS],
            folder=root,
            environment=environment.for_git(),
            deadline_seconds=60,
            problem="git does not tell the project's commit",
        ).text.strip()

    return git("log", "-1", f"--abbrev={ABBREVIATED}", "--format=%h") + ("+" if git("status", "--porcelain") else "")


def lost_commits(commits: Iterable[str], root: Path = ROOT) -> list[str]:
    """The commits, as `commit` returns them, that the history of HEAD does not contain.

    An answer that names such a commit cannot be traced to the sources that gave it. Every old commit seems lost in a
    shallow clone. Raises InfrastructureError if git does not list the history.
    """
    history = process.run_successfully(
        ["git", "rev-list", "HEAD"],
        folder=root,
        environment=environment.for_git(),
        deadline_seconds=60,
        problem="git does not list the project's history",
    ).text.split()
    there = {one[:ABBREVIATED] for one in history}
    return sorted({one for one in commits if one.removesuffix("+")[:ABBREVIATED] not in there})
