"""A checkout: what it is compared with, what changed since, and the tree of then. The repositories are real."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import UsageError
from harness.workflows.git_checkout import Checkout
from tests import fakes

if TYPE_CHECKING:
    from pathlib import Path


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=unstable"]
    return subprocess.run(
        ["git", "-C", folder, *identity, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(folder: Path, message: str = "more") -> str:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """A server's repository with one commit."""
    path = fakes.server_tree(tmp_path / "upstream" / "valkey")
    fakes.write(path / ".gitignore", "*.o\n")
    git(path, "init", "--quiet")
    commit(path, "first")
    return path


@pytest.fixture
def clone(upstream: Path, tmp_path: Path) -> Path:
    """A clone of it, on a branch with one commit more, while the upstream went on."""
    path = tmp_path / "valkey"
    git(tmp_path, "clone", "--quiet", str(upstream), str(path))
    git(path, "checkout", "--quiet", "-b", "mine")
    fakes.write(path / "src" / "bitops.c", "int mine;\n")
    commit(path, "mine")
    fakes.write(upstream / "src" / "theirs.c", "int theirs;\n")
    commit(upstream, "theirs")
    git(path, "fetch", "--quiet")
    return path


def test_the_base_is_where_the_branch_left_the_default_branch_of_origin(clone: Path, upstream: Path) -> None:
    base = Checkout(clone).base()
    assert base.commit == git(upstream, "rev-parse", "HEAD~1")
    assert (base.subject, base.why) == ("first", "where HEAD left origin/HEAD")
    assert Checkout(clone).changed(base) == ["src/bitops.c"], "what upstream did since is none of the branch's"


def test_without_a_remote_there_is_no_base_that_head_could_stand_for(upstream: Path) -> None:
    """Directly after a commit nothing differs from HEAD, and the commit would go unseen."""
    with pytest.raises(UsageError, match="no base to compare with") as caught:
        Checkout(upstream).base()
    assert "origin/HEAD" in caught.value.because
    assert "--since" in caught.value.remedy


def test_a_named_revision_is_taken_and_one_that_is_not_there_is_told(clone: Path) -> None:
    checkout = Checkout(clone)
    assert checkout.base("HEAD").commit == git(clone, "rev-parse", "HEAD")
    assert checkout.base("mine~1").subject == "first"
    for wrong in ("nonsense", "--all"):
        with pytest.raises(UsageError, match=f"no revision '{wrong}'") as caught:
            checkout.base(wrong)
        assert "git fetch" in caught.value.remedy


def test_histories_with_nothing_in_common_are_told(clone: Path) -> None:
    git(clone, "checkout", "--quiet", "--orphan", "alone")
    commit(clone, "alone")
    with pytest.raises(UsageError, match="no commit in common") as caught:
        Checkout(clone).base("mine")
    assert "--since" in caught.value.remedy


def test_a_repository_without_a_commit_has_no_base(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    with pytest.raises(UsageError, match="no commit to compare with"):
        Checkout(tmp_path).base()


def test_a_folder_that_is_no_checkout_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a git checkout") as caught:
        Checkout(tmp_path)
    assert "plumb check --server PATH" in caught.value.remedy


def test_committed_staged_untracked_and_removed_files_have_changed_and_ignored_ones_have_not(
    clone: Path,
) -> None:
    fakes.write(clone / "src" / "staged.c", "")
    git(clone, "add", "--all")
    fakes.write(clone / "src" / "new file é.c", "")
    fakes.write(clone / "src" / "bitops.o", "")
    git(clone, "mv", "src/version.h", "src/moved.h")
    checkout = Checkout(clone)
    assert checkout.changed(checkout.base()) == [
        "src/bitops.c",
        "src/moved.h",
        "src/new file é.c",
        "src/staged.c",
        "src/version.h",
    ]


def test_a_server_below_the_top_folder_counts_alone(tmp_path: Path) -> None:
    server = fakes.server_tree(tmp_path / "whole" / "vendor" / "redis")
    git(tmp_path / "whole", "init", "--quiet")
    commit(tmp_path / "whole")
    fakes.write(tmp_path / "whole" / "elsewhere.c", "")
    fakes.write(server / "src" / "bitops.c", "int changed;\n")
    checkout = Checkout(server)
    base = checkout.base("HEAD")
    assert checkout.changed(base) == ["src/bitops.c"]
    tree = checkout.write(base, tmp_path / "out")
    assert tree == tmp_path / "out" / "vendor" / "redis"
    assert (tree / "src" / "bitops.c").read_text("utf-8") == "int bitops;\n"


def test_the_bases_tree_is_as_it_was_and_the_checkout_is_not_touched(clone: Path, tmp_path: Path) -> None:
    fakes.write(clone / "src" / "staged.c", "")
    git(clone, "add", "--all")
    checkout = Checkout(clone)
    before = {path: path.stat().st_mtime_ns for path in clone.rglob("*")}
    tree = checkout.write(checkout.base(), tmp_path / "out" / "valkey")
    assert {path: path.stat().st_mtime_ns for path in clone.rglob("*")} == before
    assert sorted(path.name for path in (tree / "src").iterdir()) == ["bitops.c", "version.h"]
    assert (tree / "src" / "bitops.c").read_text("utf-8") == "int bitops;\n"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["valkey"]
    assert len({path.stat().st_mtime for path in tree.rglob("*")}) == 1, "make must see nothing older than its parts"


def test_a_file_of_the_base_is_read_as_it_was_below_the_servers_folder_too(tmp_path: Path) -> None:
    top = tmp_path / "top"
    listed = fakes.write(fakes.server_tree(top / "vendor" / "redis") / ".plumbline" / "known.toml", "a\n\nb")
    git(top, "init", "--quiet")
    commit(top)
    checkout = Checkout(top / "vendor" / "redis")
    base = checkout.base("HEAD")
    fakes.write(listed, "later")
    assert checkout.text(base, ".plumbline/known.toml") == "a\n\nb"
    assert checkout.text(base, "absent.toml") is None


def test_content_is_the_same_for_commits_of_the_same_tree(upstream: Path) -> None:
    before = Checkout(upstream).content(Checkout(upstream).base("HEAD"))
    git(upstream, "commit", "--quiet", "--allow-empty", "--message", "again")
    assert before == Checkout(upstream).content(Checkout(upstream).base("HEAD"))
    fakes.write(upstream / "src" / "bitops.c", "int other;\n")
    commit(upstream)
    assert before != Checkout(upstream).content(Checkout(upstream).base("HEAD"))


def test_in_a_hook_git_asks_about_the_named_checkout_and_not_about_the_hooks(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "no-index"))
    checkout = Checkout(clone)
    monkeypatch.undo()
    assert checkout.changed(checkout.base()) == ["src/bitops.c"]
