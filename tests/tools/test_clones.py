"""Commits in clones of public histories, and checkouts of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.core.errors import UsageError
from tests.support.repositories import commit, git
from tools import clones

if TYPE_CHECKING:
    from pathlib import Path

ABSENT = "0123456789" * 4


def test_a_commit_is_found_in_the_clone_that_contains_it_and_checked_out(tmp_path: Path) -> None:
    history = tmp_path / "history"
    history.mkdir()
    git(history, "init", "--quiet")
    (history / "file").write_text("content", "utf-8")
    made = commit(history)
    assert clones.found_in([history], [ABSENT, made]) == {made: history}
    assert (clones.check_out(made, history, tmp_path / "checkout") / "file").read_text("utf-8") == "content"
    assert git(history, "status", "--porcelain") == ""


def test_a_folder_that_is_no_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a git repository"):
        clones.found_in([tmp_path], [ABSENT])
