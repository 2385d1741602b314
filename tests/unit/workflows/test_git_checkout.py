"""A checkout: its base, the changes since, and the tree of the base. The repositories are real."""

from __future__ import annotations

import os
import shlex
import shutil
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build.sources.tree_files import digest_of
from harness.core.errors import UsageError
from harness.workflows.git.checkout import Checkout, enclosing_server, revision_of
from harness.workflows.preparation.reach.edited_lines import edited_lines
from tests.support import fakes
from tests.support.repositories import commit, git

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.costly


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
    """A clone of it, on a branch with one additional commit. Upstream has also continued."""
    path = tmp_path / "valkey"
    git(tmp_path, "clone", "--quiet", str(upstream), str(path))
    git(path, "checkout", "--quiet", "-b", "mine")
    fakes.write(path / "src" / "bitops.c", "int mine;\n")
    commit(path, "mine")
    fakes.write(upstream / "src" / "theirs.c", "int theirs;\n")
    commit(upstream, "theirs")
    git(path, "fetch", "--quiet")
    return path


def advance(folder: Path, name: str, *, commits: int = 1) -> str:
    """Commit new files. Returns the last commit."""
    for number in range(commits):
        fakes.write(folder / "src" / f"{name}{number}.c", f"int {name}{number};\n")
        commit(folder, f"{name} {number}")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def release(upstream: Path, clone: Path) -> str:
    """The newest commit of upstream's branch 7.0, which left the default branch long ago. HEAD is based on it."""
    git(upstream, "checkout", "--quiet", "-b", "7.0", "HEAD~1")
    newest = advance(upstream, "backport", commits=5)
    git(upstream, "checkout", "--quiet", "unstable")
    git(clone, "fetch", "--quiet")
    git(clone, "checkout", "--quiet", "--detach", "origin/7.0")
    return newest


def test_the_base_is_where_the_branch_left_the_nearest_branch_of_a_remote(clone: Path, upstream: Path) -> None:
    base = Checkout(clone).base()
    assert base.commit == git(upstream, "rev-parse", "HEAD~1")
    assert (base.subject, base.why) == ("first", "where HEAD branched off origin/unstable")
    assert Checkout(clone).changed(base) == ["src/bitops.c"], "later changes of upstream do not belong to the branch"


def test_a_backport_is_compared_with_its_release_and_not_with_the_default_branch(clone: Path, release: str) -> None:
    """Regression: it was compared with the default branch, which gave 162 files of 1,018 commits instead of one."""
    git(clone, "checkout", "--quiet", "-b", "my-backport", "--no-track")
    advance(clone, "mine")
    base = Checkout(clone).base()
    assert (base.commit, base.why) == (release, "where HEAD branched off origin/7.0, the nearest of 2 remote branches")
    assert Checkout(clone).changed(base) == ["src/mine0.c"]


def test_a_fork_that_is_behind_does_not_count_where_another_remote_is_nearer(
    clone: Path, upstream: Path, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(clone), str(tmp_path / "fork.git"))
    git(tmp_path / "fork.git", "branch", "--force", "unstable", "mine~1")
    advance(upstream, "theirs", commits=3)
    git(clone, "remote", "rename", "origin", "fresh")
    git(clone, "remote", "add", "origin", str(tmp_path / "fork.git"))
    git(clone, "fetch", "--quiet", "--all")
    git(clone, "remote", "set-head", "origin", "unstable")
    git(clone, "checkout", "--quiet", "-b", "topic", "--no-track", "fresh/unstable")
    advance(clone, "mine")
    base = Checkout(clone).base()
    assert base.commit == git(upstream, "rev-parse", "HEAD")
    assert "where HEAD branched off fresh/unstable, the nearest of " in base.why


def test_the_upstream_comes_before_a_branch_that_is_nearer(clone: Path, release: str) -> None:
    """Otherwise somebody else's branch with a part of the change would hide that part."""
    git(clone, "checkout", "--quiet", "-b", "topic", "origin/7.0")
    advance(clone, "first")
    git(clone, "push", "--quiet", "origin", "HEAD:colleague")
    advance(clone, "second")
    base = Checkout(clone).base()
    assert (base.commit, base.why) == (release, "where HEAD branched off its upstream origin/7.0")
    git(clone, "branch", "--quiet", "--unset-upstream")
    assert "origin/colleague, the nearest of" in Checkout(clone).base().why


def test_an_upstream_in_the_same_repository_is_one(clone: Path) -> None:
    git(clone, "checkout", "--quiet", "-b", "topic", "--track", "mine")
    advance(clone, "second")
    assert Checkout(clone).base().why == "where HEAD branched off its upstream mine"


def test_a_pushed_copy_of_the_branch_does_not_make_the_change_empty(clone: Path, upstream: Path) -> None:
    git(clone, "push", "--quiet", "--set-upstream", "origin", "mine")
    base = Checkout(clone).base()
    assert base.commit == git(upstream, "rev-parse", "unstable~1")
    assert base.why == (
        "where HEAD branched off origin/unstable; its upstream origin/mine is a pushed copy of this branch"
    )
    git(clone, "push", "--quiet", "origin", "HEAD:another-name")
    git(clone, "branch", "--quiet", "--unset-upstream")
    assert Checkout(clone).base() == msgspec.structs.replace(base, why="where HEAD branched off origin/unstable")


def test_a_rebased_branch_is_not_compared_with_its_pushed_version(clone: Path, upstream: Path) -> None:
    """Otherwise all commits that the rebase added would count as the change."""
    git(clone, "push", "--quiet", "--set-upstream", "origin", "mine")
    newest = advance(upstream, "theirs", commits=3)
    git(clone, "fetch", "--quiet")
    git(clone, "rebase", "--quiet", "origin/unstable")
    base = Checkout(clone).base()
    assert base.commit == newest
    assert Checkout(clone).changed(base) == ["src/bitops.c"]


@pytest.mark.parametrize("branch", ["unstable", "7.0"])
def test_on_a_target_branch_only_uncommitted_changes_count(clone: Path, release: str, branch: str) -> None:
    git(clone, "checkout", "--quiet", "-B", branch, f"origin/{branch}")
    fakes.write(clone / "src" / "edited.c", "")
    base = Checkout(clone).base()
    assert Checkout(clone).changed(base) == ["src/edited.c"]
    contains = f"origin/{branch} contains HEAD, so only uncommitted changes count"
    assert base.why == f"its upstream {contains}"
    git(clone, "checkout", "--quiet", "--detach")
    assert Checkout(clone).base() == msgspec.structs.replace(base, why=contains)


def test_of_equally_near_branches_the_default_one_is_used_then_the_first_by_name(clone: Path, upstream: Path) -> None:
    left = git(upstream, "rev-parse", "HEAD~1")
    for name in ("a-topic", "b-topic"):
        git(upstream, "branch", name, left)
    git(clone, "fetch", "--quiet")
    assert Checkout(clone).base().why == "where HEAD branched off origin/unstable, the nearest of 3 remote branches"
    git(clone, "remote", "set-head", "origin", "--delete")
    assert Checkout(clone).base().why == "where HEAD branched off origin/a-topic, the nearest of 3 remote branches"


def test_a_broken_default_branch_of_a_remote_does_no_harm(clone: Path) -> None:
    git(clone, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/gone")
    assert Checkout(clone).base().why == "where HEAD branched off origin/unstable"


def test_without_a_remote_there_is_no_base(upstream: Path) -> None:
    """Directly after a commit nothing differs from HEAD, so the commit would not be checked."""
    with pytest.raises(UsageError, match="no base to compare with") as caught:
        Checkout(upstream).base()
    assert caught.value.because == "this clone has no remote branch"
    assert caught.value.remedy == "--base REVISION; --base HEAD checks only uncommitted changes"


def test_if_every_remote_branch_contains_head_there_is_no_base(clone: Path) -> None:
    git(clone, "push", "--quiet", "--set-upstream", "origin", "mine")
    git(clone, "update-ref", "--no-deref", "-d", "refs/remotes/origin/HEAD")
    git(clone, "update-ref", "-d", "refs/remotes/origin/unstable")
    with pytest.raises(UsageError, match="no base to compare with") as caught:
        Checkout(clone).base()
    assert caught.value.because == "every remote branch contains HEAD, as after a push: origin/mine"


def test_a_shallow_clone_without_the_common_commit_is_an_error_with_advice(upstream: Path, tmp_path: Path) -> None:
    git(upstream, "checkout", "--quiet", "-b", "mine")
    advance(upstream, "mine", commits=2)
    path = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth", "1", "--no-single-branch", f"file://{upstream}", str(path))
    git(path, "remote", "set-head", "origin", "unstable")
    git(path, "update-ref", "-d", "refs/remotes/origin/mine")
    git(path, "branch", "--quiet", "--unset-upstream")
    git(path, "checkout", "--quiet", "mine")
    with pytest.raises(UsageError, match="no base to compare with") as caught:
        Checkout(path).base()
    assert caught.value.because == (
        "no remote branch has a commit in common with HEAD: origin/unstable; the clone is shallow and lacks old commits"
    )
    assert caught.value.remedy.startswith("git fetch --unshallow, or --base REVISION")


def test_any_folder_of_the_server_identifies_it_but_none_outside_its_work_tree(clone: Path) -> None:
    (clone / "deps" / "lua").mkdir(parents=True)
    for folder in (clone, clone / "src", clone / "deps" / "lua"):
        assert enclosing_server(folder) == clone
    other = clone / "deps" / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    assert enclosing_server(other) == other
    assert enclosing_server(clone.parent) == clone.parent


def test_a_named_revision_is_used_and_an_unknown_one_is_reported(clone: Path) -> None:
    checkout = Checkout(clone)
    assert checkout.base("HEAD").commit == git(clone, "rev-parse", "HEAD")
    assert checkout.base("mine~1").subject == "first"
    for wrong in ("nonsense", "--all"):
        with pytest.raises(UsageError, match=f"no revision '{wrong}'") as caught:
            checkout.base(wrong)
        assert "git fetch" in caught.value.remedy


def test_histories_without_a_common_commit_are_reported(clone: Path) -> None:
    git(clone, "checkout", "--quiet", "--orphan", "alone")
    commit(clone, "alone")
    with pytest.raises(UsageError, match="no commit in common") as caught:
        Checkout(clone).base("mine")
    assert "--base" in caught.value.remedy


def test_a_repository_without_a_commit_has_no_base(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    with pytest.raises(UsageError, match="no commit to compare with"):
        Checkout(tmp_path).base()


def test_a_folder_that_is_not_a_checkout_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a git checkout") as caught:
        Checkout(tmp_path)
    assert caught.value.remedy == f"plumb check --server {shlex.quote(str(tmp_path))}, which needs no base"


def test_the_changed_lines_of_a_file_are_reported_piece_by_piece(clone: Path) -> None:
    source = fakes.write(clone / "src" / "lines.c", "".join(f"int a{number};\n" for number in range(9)))
    commit(clone)
    text = source.read_text("utf-8")
    source.write_text(text.replace("a1;", "b;\nint c;").replace("int a5;\n", "").replace("a8", "d"), "utf-8")
    fakes.write(clone / "src" / "new.c", "int e;\nint f;\n")
    checkout = Checkout(clone)
    base = checkout.base("HEAD")
    assert checkout.changed_lines(base, "src/lines.c") == [range(2, 4), range(6, 6), range(9, 10)]
    assert checkout.changed_lines(base, "src/new.c") == [range(1, 3)]
    assert checkout.changed_lines(base, "src/bitops.c") == []
    assert edited_lines(checkout, base, ["src/new.c"]).names["src/new.c", 2] == "src/new.c: int f;"
    whole = {
        files: edited_lines(checkout, base, files.split()).whole
        for files in ("src/new.c", "src/lines.c src/new.c", "src/new.c src/version.h", "src/new.c src/bitops.c")
    }
    assert [files for files, all_of_it in whole.items() if all_of_it] == ["src/new.c"]


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


def test_the_changed_target_of_a_link_also_counts_under_the_links_name(clone: Path) -> None:
    """A compiler reads the target of a link. Regression: a target in a folder that no build reads belonged to no
    program.
    """
    fakes.write(clone / "utils" / "real.c", "int real;\n")
    fakes.write(clone / "utils" / "part" / "more.c", "int more;\n")
    (clone / "src" / "linked.c").symlink_to("../utils/real.c")
    (clone / "src" / "again.c").symlink_to("linked.c")
    (clone / "deps").mkdir()
    (clone / "deps" / "part").symlink_to("../utils/part")
    commit(clone)
    checkout = Checkout(clone)
    base = checkout.base("HEAD")
    assert checkout.changed(base) == []
    fakes.write(clone / "utils" / "real.c", "int other;\n")
    assert checkout.changed(base) == ["src/again.c", "src/linked.c", "utils/real.c"]
    git(clone, "checkout", "--quiet", ".")
    fakes.write(clone / "utils" / "part" / "more.c", "int other;\n")
    assert checkout.changed(base) == ["deps/part/more.c", "utils/part/more.c"]


def test_link_targets_outside_the_server_count_if_they_differ_from_the_base(tmp_path: Path) -> None:
    server = fakes.server_tree(tmp_path / "whole" / "vendor" / "redis")
    shared = fakes.write(tmp_path / "whole" / "common" / "shared.c", "int shared;\n")
    (server / "src" / "linked.c").symlink_to("../../../common/shared.c")
    (server / "deps").mkdir()
    (server / "deps" / "common").symlink_to("../../../common")
    git(tmp_path / "whole", "init", "--quiet")
    # Else the user's own configuration may convert line ends when git writes a file, which no one has checked out here.
    git(tmp_path / "whole", "config", "core.autocrlf", "false")
    commit(tmp_path / "whole")
    checkout = Checkout(server)
    base = checkout.base("HEAD")
    assert (checkout.changed(base), checkout.unseen()) == ([], [])
    written = checkout.write(base, tmp_path / "base")
    assert digest_of(written) == digest_of(server)
    fakes.write(shared, "int other;\n")
    assert checkout.changed(base) == ["deps/common/shared.c", "src/linked.c"]
    commit(tmp_path / "whole")
    assert checkout.changed(base) == ["deps/common/shared.c", "src/linked.c"]
    assert checkout.changed(checkout.base("HEAD")) == []


def test_sources_that_git_ignores_are_reported_as_unseen(clone: Path) -> None:
    fakes.write(clone / ".gitignore", "*.o\nmine*\n")
    commit(clone)
    for name in ("src/mine.h", "src/part/mine.c", "deps/lua/mine.mk", "src/mine.txt", "build/mine.c", "src/a.o"):
        fakes.write(clone / name, "int mine;\n")
    (clone / "src" / "away.h").symlink_to("/usr/include/stdio.h")
    git(clone, "add", "src/away.h")
    commit(clone)
    checkout = Checkout(clone)
    assert checkout.changed(checkout.base("HEAD")) == []
    assert checkout.unseen() == ["deps/lua/mine.mk", "src/away.h", "src/mine.h", "src/part/mine.c"]


def test_files_whose_names_are_not_utf8_count_and_their_names_are_text(tmp_path: Path) -> None:
    """Regression: a change that git was told to ignore did not count, and a name behind a link was no text."""
    bad, top = os.fsdecode(b"odd\xe9"), tmp_path / "whole"
    server = fakes.server_tree(top / "redis")
    fakes.write(server / ".gitignore", "ignored*\n")
    for name in ("plain.c", "hidden.c", f"{bad} plain.c", f"{bad} hidden.c"):
        fakes.write(server / "src" / name, "int here;\n")
    fakes.write(top / "common" / f"{bad} shared.c", "int here;\n")
    (server / "src" / f"{bad} inner.c").symlink_to(f"{bad} plain.c")
    (server / "src" / f"{bad} outer.c").symlink_to(f"../../common/{bad} shared.c")
    (server / "src" / f"{bad} away.h").symlink_to("/usr/include/stdio.h")
    git(top, "init", "--quiet")
    git(top, "config", "core.autocrlf", "false")
    commit(top)
    git(server, "update-index", "--assume-unchanged", f"src/{bad} hidden.c")
    fakes.write(server / "src" / f"ignored {bad}.c", "int here;\n")
    checkout = Checkout(server)
    base = checkout.base("HEAD")
    assert checkout.changed(base) == []
    assert checkout.unseen() == [r"src/ignored odd\xe9.c", r"src/odd\xe9 away.h"]
    for path in (server / "src" / f"{bad} plain.c", server / "src" / f"{bad} hidden.c"):
        fakes.write(path, "int other;\n")
    fakes.write(top / "common" / f"{bad} shared.c", "int other;\n")
    changed = [rf"src/odd\xe9 {name}.c" for name in ("hidden", "inner", "outer", "plain")]
    assert checkout.changed(base) == changed
    edited = edited_lines(checkout, base, changed)
    assert (edited.pieces, edited.whole) == ({}, False), "nothing may count as the whole change"


@pytest.mark.parametrize("how", ["--assume-unchanged", "--skip-worktree"])
def test_changes_that_git_must_ignore_still_count(clone: Path, how: str) -> None:
    git(clone, "update-index", how, "src/bitops.c", "src/version.h")
    head = git(clone, "rev-parse", "HEAD")
    checkout = Checkout(clone)
    assert checkout.changed(checkout.base("HEAD")) == []
    assert revision_of(clone) == head
    fakes.write(clone / "src" / "bitops.c", "int hidden;\n")
    # A sparse checkout marks missing files in this way.
    (clone / "src" / "version.h").unlink()
    assert checkout.changed(checkout.base("HEAD")) == ["src/bitops.c"]
    assert Checkout(clone / "src").changed(checkout.base("HEAD")) == ["bitops.c"]
    assert revision_of(clone) == f"{head}+changes"


def test_the_users_configuration_of_git_hides_no_change(clone: Path, upstream: Path) -> None:
    git(clone, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(upstream), "deps/part")
    head = commit(clone)
    git(clone, "config", "diff.ignoreSubmodules", "all")
    git(clone, "config", "status.showUntrackedFiles", "no")
    checkout = Checkout(clone)
    assert (checkout.changed(checkout.base("HEAD")), revision_of(clone)) == ([], head)
    edited = fakes.write(clone / "deps" / "part" / "src" / "bitops.c", "int changed;\n")
    assert checkout.changed(checkout.base("HEAD")) == ["deps/part/src/bitops.c"]
    assert revision_of(clone) == f"{head}+changes"
    git(edited.parent, "checkout", "--quiet", "bitops.c")
    assert revision_of(clone) == head
    fakes.write(clone / "src" / "new.c", "int new;\n")
    assert revision_of(clone) == f"{head}+changes"


def test_a_submodules_files_and_lines_count_and_the_bases_tree_has_their_old_content(
    clone: Path, upstream: Path, tmp_path: Path
) -> None:
    """Regression: the base had an empty folder there, and could not be compiled. No suite covers a submodule by its own
    name.
    """
    git(clone, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(upstream), "deps/part")
    commit(clone)
    checkout, part = Checkout(clone), clone / "deps" / "part"
    base = checkout.base("HEAD")
    fakes.write(part / "src" / "bitops.c", "int bitops;\nint committed;\n")
    commit(part)
    fakes.write(part / "src" / "new.c", "int new;\n")
    assert checkout.changed(base) == ["deps/part/src/bitops.c", "deps/part/src/new.c"]
    assert checkout.changed_lines(base, "deps/part/src/bitops.c") == [range(2, 3)]
    commit(clone)
    assert checkout.changed(base) == ["deps/part/src/bitops.c", "deps/part/src/new.c"]
    tree = checkout.write(base, tmp_path / "out")
    assert sorted(path.name for path in (tree / "deps" / "part" / "src").iterdir()) == [
        "bitops.c",
        "theirs.c",
        "version.h",
    ]
    assert (tree / "deps" / "part" / "src" / "bitops.c").read_text("utf-8") == "int bitops;\n"
    # A submodule that the base lacks is entirely new.
    assert "deps/part/src/version.h" in checkout.changed(checkout.base("HEAD~2"))
    shutil.rmtree(part)
    assert checkout.changed(base) == ["deps/part"]


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


def test_the_bases_tree_has_its_old_content_and_the_checkout_is_not_changed(clone: Path, tmp_path: Path) -> None:
    fakes.write(clone / "src" / "staged.c", "")
    git(clone, "add", "--all")
    checkout = Checkout(clone)
    before = {path: path.stat().st_mtime_ns for path in clone.rglob("*")}
    tree = checkout.write(checkout.base(), tmp_path / "out" / "valkey")
    assert {path: path.stat().st_mtime_ns for path in clone.rglob("*")} == before
    assert sorted(path.name for path in (tree / "src").iterdir()) == ["bitops.c", "version.h"]
    assert (tree / "src" / "bitops.c").read_text("utf-8") == "int bitops;\n"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["valkey"]
    assert len({path.stat().st_mtime for path in tree.rglob("*")}) == 1, (
        "make must not see files that are older than their sources"
    )


def test_a_file_of_the_base_is_read_with_its_old_content_also_below_the_servers_folder(tmp_path: Path) -> None:
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


def test_in_a_hook_git_reads_the_named_checkout_and_not_the_hooks(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "no-index"))
    checkout = Checkout(clone)
    monkeypatch.undo()
    assert checkout.changed(checkout.base()) == ["src/bitops.c"]


def test_a_tree_has_the_revision_of_its_commit_and_reports_uncommitted_changes(clone: Path, tmp_path: Path) -> None:
    head = git(clone, "rev-parse", "HEAD")
    assert revision_of(clone) == head
    fakes.write(clone / "src" / "a.o", "ignored")
    assert revision_of(clone) == head
    fakes.write(clone / "src" / "new.c", "int new;\n")
    assert revision_of(clone) == f"{head}+changes"
    assert revision_of(clone / "src") == f"{head}+changes"
    (clone / "below").mkdir()
    assert revision_of(clone / "below") == head, "changes outside a folder do not count for it"
    bare = fakes.server_tree(tmp_path / "bare")
    assert revision_of(bare) == ""
    git(bare, "init", "--quiet")
    assert revision_of(bare) == "", "no commit yet"


def test_without_git_a_tree_has_no_revision(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert revision_of(clone) == ""


def test_a_repository_inside_a_commit_is_not_taken_for_the_checkout(clone: Path) -> None:
    """Regression: a pull request that brought one chose its own base, and programs that its configuration names ran."""
    inner = fakes.server_tree(clone / "vendor" / "redis")
    git(clone, "init", "--quiet", "--bare", str(inner))
    git(inner, "config", "core.bare", "false")
    git(inner, "config", "core.worktree", ".")
    commit(inner, "what the author calls the base")
    for folder in (inner, inner / "src"):
        with pytest.raises(UsageError, match="not a git checkout") as refused:
            Checkout(folder)
        assert refused.value.because == f"{inner} holds the files of a repository among others, and not in .git"
        assert revision_of(folder) == ""


def test_no_program_of_a_strangers_repository_runs(clone: Path, tmp_path: Path) -> None:
    """Regression: `plumb premerge --explain` ran the file system monitor that .git/config named."""
    ran = tmp_path / "ran"
    program = fakes.write(clone / "hooks" / "post-index-change", f"#!/bin/sh\ntouch {shlex.quote(str(ran))}\n")
    program.chmod(0o755)
    git(clone, "config", "core.fsmonitor", str(program))
    git(clone, "config", "core.hooksPath", str(program.parent))
    git(clone, "config", "diff.external", str(program))
    checkout = Checkout(clone)
    base = checkout.base()
    assert "src/bitops.c" in checkout.changed(base)
    assert checkout.changed_lines(base, "src/bitops.c")
    assert checkout.revision()
    assert not ran.exists()
