"""A source tree is recognised, identified only by its sources, copied without build products, and never written to."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.build.sources.source_tree import open_tree, take, with_newer
from harness.build.sources.tree_files import copy_at_rest, copy_tree, digest_of
from harness.core.digests import key_of
from harness.core.errors import InfrastructureError, RefusedTreeError, UsageError
from harness.judge.conclusion import folder_in_repository
from tests.support import fakes

if TYPE_CHECKING:
    from collections.abc import Callable

ELF = b"\x7fELF\x01\x01\x01" + bytes(57)


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mtime_ns,
            path.lstat().st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize(
    ("macro", "text", "family", "version"),
    [
        ("REDIS_VERSION", "2.8.17", "redis", (2, 8, 17)),
        ("REDIS_VERSION", "7.0.15", "redis", (7, 0, 15)),
        ("VALKEY_VERSION", "8.1.1", "valkey", (8, 1, 1)),
        ("VALKEY_VERSION", "9.0.0-rc1", "valkey", (9, 0, 0)),
    ],
)
def test_family_and_version_are_read_from_the_header(
    tmp_path: Path, macro: str, text: str, family: str, version: tuple[int, ...]
) -> None:
    tree = open_tree(fakes.server_tree(tmp_path / "tree", macro=macro, version=text))
    assert (family, version, "tree") == (tree.family, tree.version, tree.name)


def test_valkey_is_recognised_although_it_also_declares_a_redis_version(tmp_path: Path) -> None:
    path = fakes.server_tree(tmp_path / "tree")
    fakes.write(path / "src" / "version.h", '#define REDIS_VERSION "7.2.4"\n#define VALKEY_VERSION "8.1.1"\n')
    assert (open_tree(path).family, open_tree(path).version) == ("valkey", (8, 1, 1))


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.server_tree(tmp_path / "tree")
    monkeypatch.chdir(tmp_path / "tree")
    tree = open_tree(Path())
    assert ("tree", tmp_path / "tree") == (tree.name, tree.path)


def test_a_folder_that_is_not_a_server_tree_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        open_tree(tmp_path)
    assert f"not a Redis or Valkey source tree ({tmp_path})" in str(caught.value)
    assert "it has no src/version.h" in str(caught.value)


def test_a_missing_path_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        open_tree(tmp_path / "absent")


def test_a_header_without_a_version_is_refused(tmp_path: Path) -> None:
    path = fakes.server_tree(tmp_path / "tree", macro="OTHER_VERSION")
    with pytest.raises(UsageError, match="no REDIS_VERSION or VALKEY_VERSION"):
        open_tree(path)


@pytest.mark.parametrize("version", ["7..0", ".", "7.", "1" * 5000, "7" + ".0" * 3000, ""])
def test_a_version_that_is_no_number_is_refused(tmp_path: Path, version: str) -> None:
    """Regression: a bug in Plumbline."""
    with pytest.raises(RefusedTreeError, match="the version cannot be read"):
        open_tree(fakes.server_tree(tmp_path / "tree", version=version))


@pytest.mark.parametrize("is_checkout", [True, False])
def test_only_a_checkout_may_have_a_server_in_another_commit(tmp_path: Path, is_checkout: bool) -> None:
    """A bisection skips such a commit, and stops where a folder was named by mistake."""
    fakes.write(tmp_path / (".git" if is_checkout else "src") / "HEAD", "")
    with pytest.raises(UsageError) as caught:
        open_tree(tmp_path)
    assert isinstance(caught.value, RefusedTreeError) is is_checkout


@pytest.mark.parametrize("version", ["2.6.17", "2.4.0", "1.2.6"])
def test_a_redis_older_than_2_8_is_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(UsageError, match=f"{version} is older than 2.8"):
        open_tree(fakes.server_tree(tmp_path / "tree", version=version))


def test_a_known_digest_is_not_computed_again(tmp_path: Path) -> None:
    assert open_tree(fakes.server_tree(tmp_path / "tree"), digest="known").digest == "known"


def test_the_digest_depends_on_the_content_and_not_on_the_place(tmp_path: Path) -> None:
    one, other = fakes.server_tree(tmp_path / "one"), fakes.server_tree(tmp_path / "other")
    assert digest_of(one) == digest_of(other)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a changed byte": lambda tree: (tree / "src" / "bitops.c").write_text("int bitopt;\n", "utf-8"),
    "a new file": lambda tree: (tree / "src" / "new.c").write_text("", "utf-8"),
    "a removed file": lambda tree: (tree / "src" / "bitops.c").unlink(),
    "a renamed file": lambda tree: (tree / "src" / "bitops.c").rename(tree / "src" / "bitop.c"),
    "a new link": lambda tree: (tree / "src" / "link.c").symlink_to("bitops.c"),
    "a new script": lambda tree: fakes.write(tree / "src" / "tool", "#!/bin/sh\n", mode=0o755),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_the_digest_changes_with(tmp_path: Path, change: str) -> None:
    tree = fakes.server_tree(tmp_path / "tree")
    before = digest_of(tree)
    CHANGES[change](tree)
    assert before != digest_of(tree)


def test_moving_bytes_from_one_file_to_the_next_changes_the_digest(tmp_path: Path) -> None:
    tree = fakes.server_tree(tmp_path / "tree")
    fakes.write(tree / "src" / "a.c", "ab")
    fakes.write(tree / "src" / "b.c", "c")
    before = digest_of(tree)
    fakes.write(tree / "src" / "a.c", "a")
    fakes.write(tree / "src" / "b.c", "bc")
    assert before != digest_of(tree)


PRODUCTS = [
    "src/bitops.o",
    "src/bitops.d",
    "src/.make-settings",
    "src/release.h",
    "deps/lua/src/liblua.a",
    "src/x.gcda",
    "dump.rdb",
    "appendonly.aof",
    ".git/HEAD",
    "deps/submodule/.git",
    "utils/__pycache__/x.pyc",
]


def add_products(tree: Path) -> None:
    for name in PRODUCTS:
        fakes.write(tree / name, "product")
    for name in ("redis-server", "redis-cli"):
        (tree / "src" / name).write_bytes(ELF)
        (tree / "src" / name).chmod(0o755)


def test_the_digest_does_not_depend_on_build_products(tmp_path: Path) -> None:
    tree = fakes.server_tree(tmp_path / "tree")
    before = digest_of(tree)
    add_products(tree)
    assert before == digest_of(tree)


def test_a_copy_has_the_sources_with_times_and_modes_and_no_products(tmp_path: Path) -> None:
    tree = fakes.server_tree(tmp_path / "tree")
    fakes.write(tree / "src" / "mkreleasehdr.sh", "#!/bin/sh\n", mode=0o755)
    (tree / "src" / "link.c").symlink_to("bitops.c")
    os.utime(tree / "src" / "bitops.c", (1_000_000_000, 1_000_000_000))
    before = {name: content for name, content in snapshot(tree).items() if not (tree / name).is_dir()}
    add_products(tree)
    copy_tree(tree, tmp_path / "copy")
    copied = snapshot(tmp_path / "copy")
    assert before == {name: content for name, content in copied.items() if not (tmp_path / "copy" / name).is_dir()}
    assert (tmp_path / "copy" / "src" / "link.c").is_symlink()
    assert digest_of(tree) == digest_of(tmp_path / "copy")


def test_changed_files_are_newer_than_all_others_and_equally_old(tmp_path: Path) -> None:
    """Make would keep a table that is newer than the changed file from which it is made."""
    path = fakes.server_tree(tmp_path / "tree")
    described = fakes.write(path / "src" / "commands" / "getbit.json", "{}")
    table = fakes.write(path / "src" / "commands.c", "/* made from commands */")
    os.utime(described, (0, 0))
    later = table.stat().st_mtime + 3600
    os.utime(table, (later, later))
    tree = take(path, tmp_path / "copy")

    def times(*changed: str) -> tuple[dict[str, int], str]:
        made = with_newer(tree, changed)
        return {name: (made.content / name).stat().st_mtime_ns for name in snapshot(path) if "." in name}, made.digest

    before, _ = times("src/bitops.c")
    assert before["src/commands.c"] > before["src/commands/getbit.json"], "nothing is made from bitops.c"
    alone, digest = times("src/commands/getbit.json")
    assert alone["src/commands/getbit.json"] > max(when for name, when in alone.items() if not name.endswith(".json"))
    assert digest != tree.digest
    # A user who changed both has made the table already.
    both, _ = times("src/commands/getbit.json", "src/commands.c")
    assert both["src/commands/getbit.json"] == both["src/commands.c"] == max(both.values())


def test_reading_and_copying_leave_the_tree_untouched(tmp_path: Path) -> None:
    tree = fakes.server_tree(tmp_path / "tree")
    add_products(tree)
    before = snapshot(tree)
    open_tree(tree)
    copy_tree(tree, tmp_path / "copy")
    assert before == snapshot(tree)


def test_a_linked_folder_is_copied_as_a_link_and_changes_the_digest(tmp_path: Path) -> None:
    tree = fakes.server_tree(tmp_path / "tree")
    before = digest_of(tree)
    (tree / "deps").symlink_to("src")
    copy_tree(tree, tmp_path / "copy")
    assert (tmp_path / "copy" / "deps").is_symlink()
    assert before != digest_of(tree)


def test_a_socket_or_pipe_left_by_a_test_run_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = fakes.server_tree(tmp_path / "tree")
    before = digest_of(tree)
    (tree / "tests" / "tmp").mkdir(parents=True)
    monkeypatch.chdir(tree / "tests" / "tmp")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        assert before == digest_of(tree)
        copy_tree(tree, tmp_path / "copy")


@pytest.mark.parametrize(
    ("repository", "tree", "here", "folder"),
    [
        ("", "", "", ""),
        ("", "deps/redis", "", "deps/redis"),
        # A checkout in a folder of the workspace: paths are relative to the repository's top folder.
        ("checkout", "checkout", "", ""),
        ("checkout", "checkout/deps/redis", "", "deps/redis"),
        (None, "deps/redis", "", "deps/redis"),
        (None, "", "", ""),
        (None, "redis", "elsewhere", ""),
    ],
)
def test_a_trees_folder_is_relative_to_the_top_of_its_repository(
    tmp_path: Path, repository: str | None, tree: str, here: str, folder: str
) -> None:
    for made in (repository or "", tree, here):
        (tmp_path / made).mkdir(parents=True, exist_ok=True)
    if repository is not None:
        (tmp_path / repository / ".git").mkdir()
    assert folder_in_repository(tmp_path / tree, tmp_path / here) == folder


def linked_tree(tmp_path: Path) -> Path:
    """A tree with links of every kind, and the targets of those that lead out of it, all in one repository."""
    (tmp_path / ".git").mkdir()
    tree = fakes.server_tree(tmp_path / "tree")
    outside = tmp_path / "outside"
    fakes.write(outside / "shared.h", "#define SHARED 1\n")
    fakes.write(outside / "lib" / "lib.c", "int lib;\n")
    fakes.write(outside / "lib" / "lib.o", "product")
    (outside / "lib" / "again.c").symlink_to("lib.c")
    (outside / "lib" / "loop").symlink_to("..")
    (outside / "lib" / "home.c").symlink_to(tree / "src" / "bitops.c")
    (tree / "src" / "shared.h").symlink_to(outside / "shared.h")
    (tree / "deps").mkdir()
    (tree / "deps" / "lib").symlink_to("../../outside/lib")
    (tree / "src" / "inside.c").symlink_to("bitops.c")
    (tree / "src" / "absolute.c").symlink_to(tree / "src" / "bitops.c")
    (tree / "src" / "dangling.c").symlink_to("nowhere.c")
    (tree / "src" / "itself").symlink_to("itself")
    (tree / "top").symlink_to(".")
    return tree


BEHIND: dict[str, Callable[[Path], object]] = {
    "a linked file": lambda outside: (outside / "shared.h").write_text("#define SHARED 2\n", "utf-8"),
    "a file in a linked folder": lambda outside: (outside / "lib" / "lib.c").write_text("int other;\n", "utf-8"),
    "a new file in a linked folder": lambda outside: (outside / "lib" / "new.c").write_text("", "utf-8"),
    "a file that a link in the linked folder leads to": lambda outside: (outside / "shared.h").write_text("", "utf-8"),
}


@pytest.mark.parametrize("change", list(BEHIND))
def test_the_target_of_a_link_out_of_the_tree_changes_the_digest(tmp_path: Path, change: str) -> None:
    tree = linked_tree(tmp_path)
    before = digest_of(tree)
    assert before == digest_of(tree)
    BEHIND[change](tmp_path / "outside")
    assert before != digest_of(tree)


def test_a_copy_has_what_was_digested_and_no_link_leads_out_of_it(tmp_path: Path) -> None:
    tree = linked_tree(tmp_path)
    before = digest_of(tree)
    copy = tmp_path / "elsewhere" / "copy"
    assert copy_tree(tree, copy) == before
    # The copy does not depend on later changes of the tree or of the targets of its links.
    for path in (tree, tmp_path / "outside"):
        path.rename(path.with_name(f"{path.name}-gone"))
    assert (copy / "src" / "shared.h").read_text("utf-8") == "#define SHARED 1\n"
    assert (copy / "deps" / "lib" / "lib.c").read_text("utf-8") == "int lib;\n"
    assert not (copy / "deps" / "lib" / "lib.o").exists()
    for name in ("src/absolute.c", "src/inside.c", "deps/lib/home.c", "deps/lib/loop/lib/home.c"):
        assert (copy / name).read_text("utf-8") == "int bitops;\n", name
    links = {str(path.relative_to(copy)): str(path.readlink()) for path in copy.rglob("*") if path.is_symlink()}
    assert {name: text for name, text in links.items() if name.startswith(("src", "top"))} == {
        "src/absolute.c": "bitops.c",
        "src/inside.c": "bitops.c",
        "src/dangling.c": "nowhere.c",
        "src/itself": "itself",
        "top": ".",
    }
    assert links["deps/lib/again.c"] == "lib.c"
    for name, text in links.items():
        assert os.path.normpath(copy / Path(name).parent / text).startswith(str(copy)), f"{name} leads out of the copy"


def test_links_to_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = linked_tree(tmp_path)
    monkeypatch.setattr("harness.build.sources.tree_files.MOST_BEHIND_LINKS", 2)
    with pytest.raises(UsageError, match="links out of the tree lead to more than 2 files"):
        digest_of(tree)


def test_folders_that_link_to_the_same_folders_again_and_again_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: only files counted, and 2^30 folders without one were walked for hours."""
    monkeypatch.setattr("harness.build.sources.tree_files.MOST_BEHIND_LINKS", 500)
    tree = fakes.server_tree(tmp_path / "whole" / "redis")
    fakes.write(tmp_path / "whole" / ".git" / "HEAD", "")
    before = fakes.write(tmp_path / "whole" / "0" / "file.h", "").parent
    for number in range(1, 30):
        folder = tmp_path / "whole" / str(number)
        folder.mkdir()
        (folder / "a").symlink_to(before)
        (folder / "b").symlink_to(before)
        before = folder
    (before.parent / "0" / "file.h").unlink()
    (tree / "src" / "link").symlink_to(before)
    with pytest.raises(UsageError, match="links out of the tree lead to more than 500 files and folders"):
        digest_of(tree)


@pytest.mark.parametrize(("name", "levels"), [("d", 201), ("d" * 250, 20)])
def test_folders_that_the_system_cannot_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, levels: int
) -> None:
    """Regression: the error was the operating system's, with a name of 4,000 characters, or a bug in Plumbline."""
    tree = fakes.server_tree(tmp_path / "redis")
    monkeypatch.chdir(tree)
    for _ in range(levels):
        Path(name).mkdir()
        os.chdir(name)
    with pytest.raises(UsageError, match="the tree has folders deeper than 200 levels or 2000 bytes") as refused:
        digest_of(tree)
    assert len(refused.value.where) <= 301


def test_a_file_larger_than_the_memory_is_refused_by_name(tmp_path: Path) -> None:
    """Regression: the error was a lack of memory, which named no file."""
    tree = fakes.server_tree(tmp_path / "redis")
    os.truncate(fakes.write(tree / "src" / "core.1234", ""), 1 << 42)
    with pytest.raises(UsageError, match="a file of the tree is larger than 1024 MB") as refused:
        digest_of(tree)
    assert refused.value.where == str(tree / "src" / "core.1234")


@pytest.mark.parametrize("to", ["/", ".."])
def test_a_link_to_what_contains_the_tree_is_refused(tmp_path: Path, to: str) -> None:
    """Regression: a link to / ended as a bug in Plumbline, when a file of /proc could not be read."""
    tree = fakes.server_tree(tmp_path / "redis")
    (tree / "src" / "link").symlink_to(tmp_path if to == ".." else to)
    with pytest.raises(UsageError, match="a link of the tree leads to a folder that contains the tree"):
        digest_of(tree)


@pytest.mark.parametrize("repository", ["none", "the tree", "around it"])
@pytest.mark.parametrize("to", ["/etc/passwd", "/proc/self", "/dev/null", "home/secret", "home", "whole/.git/config"])
def test_a_link_out_of_the_tree_and_its_repository_is_refused_by_name(tmp_path: Path, to: str, repository: str) -> None:
    """Regression: a stranger's tree took any file of the user's into builds and excerpts, without a word."""
    fakes.write(tmp_path / "home" / "secret", "secret\n")
    tree = fakes.server_tree(tmp_path / "whole" / "redis")
    if repository == "the tree":
        fakes.write(tree / ".git", "gitdir: ../.git/modules/redis\n")
    if repository == "around it" or ".git" in to:
        fakes.write(tmp_path / "whole" / ".git" / "config", "token\n")
    (tree / "src" / "link.h").symlink_to(tmp_path / to)
    with pytest.raises(UsageError, match="a link of the tree leads out of it and of its repository") as refused:
        digest_of(tree)
    assert refused.value.where == f"{tree / 'src' / 'link.h'} -> {(tmp_path / to).resolve()}"


def test_a_link_to_an_installed_package_is_copied_as_its_content(tmp_path: Path) -> None:
    """`autoreconf --install` makes such links."""
    tree = fakes.server_tree(tmp_path / "redis")
    (tree / "src" / "licence").symlink_to("/usr/share/common-licenses/BSD")
    copy_tree(tree, tmp_path / "copy")
    assert not (tmp_path / "copy" / "src" / "licence").is_symlink()
    assert (tmp_path / "copy" / "src" / "licence").read_bytes() == Path("/usr/share/common-licenses/BSD").read_bytes()


def test_a_name_that_is_not_text_is_copied_and_counts(tmp_path: Path) -> None:
    """Regression: it ended as a bug in Plumbline."""
    tree = fakes.server_tree(tmp_path / "redis")
    before = digest_of(tree)
    name = os.fsdecode(b"na\xffme.h")
    (tree / "src" / name).touch()
    assert copy_tree(tree, tmp_path / "copy") != before
    assert (tmp_path / "copy" / "src" / name).is_file()
    assert key_of([name]) != key_of([os.fsdecode(b"na\xfeme.h")])


@pytest.mark.parametrize("change", ["a link for the same text", "the right to be executed"])
def test_differences_that_a_build_would_see_change_the_digest(tmp_path: Path, change: str) -> None:
    tree = fakes.server_tree(tmp_path / "tree")
    script = fakes.write(tree / "src" / "tool.sh", "bitops.c")
    before = digest_of(tree)
    if change == "the right to be executed":
        script.chmod(0o755)
    else:
        script.unlink()
        script.symlink_to("bitops.c")
    assert before != digest_of(tree)


def test_a_copy_is_a_consistent_snapshot_of_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.build.sources import tree_files

    tree = fakes.server_tree(tmp_path / "tree")
    copies = 0

    def copy_while_it_is_edited(source: Path, into: Path) -> str:
        nonlocal copies
        copies += 1
        digest = copy_tree(source, into)
        if copies < 3:
            fakes.write(tree / "src" / "bitops.c", f"int edited{copies};\n")
        return digest

    monkeypatch.setattr(tree_files, "copy_tree", copy_while_it_is_edited)
    taken = take(tree, tmp_path / "copy")
    assert copies == 3
    assert (taken.path, taken.content, taken.name) == (tree, tmp_path / "copy", "tree")
    assert taken.digest == taken.files == digest_of(tmp_path / "copy") == digest_of(tree)


def test_a_tree_that_changes_constantly_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.build.sources import tree_files

    tree = fakes.server_tree(tmp_path / "tree")
    monkeypatch.setattr(tree_files, "digest_of", lambda _: "another every time")
    with pytest.raises(InfrastructureError, match="changed while it was copied"):
        copy_at_rest(tree, tmp_path / "copy")


def test_a_file_that_disappears_while_the_tree_is_read_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.build.sources import tree_files

    tree = fakes.server_tree(tmp_path / "tree")
    before = digest_of(tree)
    gone = fakes.write(tree / "src" / ".bitops.c.swp", "of an editor")
    listed = list(tree_files.entries_of(tree))
    gone.unlink()
    monkeypatch.setattr(tree_files, "entries_of", lambda _: iter(listed))
    assert copy_tree(tree, tmp_path / "copy") == digest_of(tree) == before
