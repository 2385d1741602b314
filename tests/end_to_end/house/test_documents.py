"""The tutorial and the how-to for bisecting, followed exactly."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from harness.build.sources.archives import Fetcher
from harness.build.sources.tree_files import copy_tree
from harness.core.cache import Cache
from harness.core.progress import Progress
from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog
from harness.workflows.mutation_testing import mutations
from tests.end_to_end.support.documents import first_absent, follow

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end


def test_a_line_that_is_missing_from_the_output_is_detected() -> None:
    output = "one  two\nthree 3 four\n"
    assert first_absent("one two\nthree … four\n", output) == ""
    assert first_absent("three … four\none two\n", output) == "one two"
    assert first_absent("five\n", output) == "five"


@pytest.mark.slow(
    instead=(
        "tests/house/test_documents.py; test_every_command_that_a_hint_names_exists_with_its_options_and_arguments"
    )
)
def test_the_tutorial(tmp_path: Path) -> None:
    """In a folder with Plumbline's commands and an empty runs/, like a fresh clone."""
    for name in ("ci", ".venv"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("requirements.txt", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    follow(ROOT / "docs" / "tutorial.md", tmp_path)


@pytest.mark.slow(instead="test_a_server_that_does_not_start_is_inconclusive_and_a_bisection_skips_it")
def test_bisecting_finds_the_commit_of_a_bug_and_skips_one_that_does_not_compile(tmp_path: Path) -> None:
    """Eight commits on a release; the bug comes with the sixth, and the one that git tries first does not compile."""
    # With the release's own name, the compiler's cache knows the files that have not changed.
    top = tmp_path / "redis-7.0.15"
    copy_tree(Fetcher(Cache.default(), Progress()).server(Catalog().servers["redis-7.0.15"]).path, top)
    source = top / "src" / "bitops.c"
    clean = source.read_text("utf-8")

    def git(*words: str) -> str:
        identity = ["-c", "user.name=A Tester", "-c", "user.email=tester@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(
            ["git", *identity, *words], cwd=top, check=True, capture_output=True, encoding="utf-8"
        ).stdout.strip()

    def commit(subject: str, text: str) -> None:
        source.write_text(text, "utf-8")
        (top / "NOTES").write_text(subject, "utf-8")
        git("add", "--force", ".")
        git("commit", "--quiet", "--message", subject)

    git("init", "--quiet")
    commit("the release", clean)
    git("tag", "good")
    commit("a note", clean)
    commit("a comment", f"{clean}/* A comment. */\n")
    commit("a function is begun", f"{clean}#error begun\n")
    commit("it is given up", clean)
    planted = mutations.mutations()["bitcount-alignment"]
    (edit,) = planted.edits
    broken = clean.replace(edit.anchor, edit.replacement)
    assert broken != clean
    commit("faster bit counting", broken)
    guilty = git("rev-parse", "HEAD")
    commit("another note", broken)
    follow(ROOT / "docs" / "howto" / "bisect.md", top)
    log = git("bisect", "log")
    assert f"# first bad commit: [{guilty}] faster bit counting" in log
    assert "# skip: " in log, "the commit that does not compile was not tried"
