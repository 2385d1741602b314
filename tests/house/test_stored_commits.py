"""measurements/found.json and measurements/matrix.json name only commits that readers have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.core.processes import environment, process
from harness.core.strict_toml import ROOT
from tests.support.repositories import git
from tools import bugs, project
from tools.matrix import document

if TYPE_CHECKING:
    from pathlib import Path


def lacks_history() -> bool:
    """Whether the checkout is not a clone, or is a shallow one."""
    words = ["git", "rev-parse", "--is-shallow-repository"]
    ended = process.run(words, deadline_seconds=60, folder=ROOT, environment=environment.for_git())
    return ended.text.strip() != "false"


@pytest.mark.skipif(lacks_history(), reason="the checkout does not contain the project's history")
def test_stored_answers_name_only_commits_of_the_history() -> None:
    named = [
        *(one.commit for one in bugs.read_answers().answers if one.commit),
        *(cell.commit for cell in document.read().cells if cell.commit),
    ]
    assert named
    assert project.lost_commits(named) == [], "name the rewritten commit, or remove the commit from these answers"


def test_a_rewritten_commit_is_lost(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    for folder in project.WHAT_ANSWERS:
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "harness" / "a.py").write_text("1", "utf-8")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    first = project.commit(tmp_path)
    assert project.lost_commits([first, f"{first}+"], tmp_path) == []
    git(tmp_path, "commit", "--quiet", "--amend", "--message", "second")
    assert project.lost_commits([first, project.commit(tmp_path), f"{first}+"], tmp_path) == [first, f"{first}+"]
