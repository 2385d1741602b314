"""A tree is recognised, told apart by its sources alone, copied without products, and never written to."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from harness.errors import UsageError
from harness.source import copy_tree, digest_of, folder_in_repository, open_tree
from tests import fakes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


def test_valkey_is_valkey_although_it_also_tells_the_redis_version_it_speaks(tmp_path: Path) -> None:
    path = fakes.server_tree(tmp_path / "tree")
    fakes.write(path / "src" / "version.h", '#define REDIS_VERSION "7.2.4"\n#define VALKEY_VERSION "8.1.1"\n')
    assert (open_tree(path).family, open_tree(path).version) == ("valkey", (8, 1, 1))


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.server_tree(tmp_path / "tree")
    monkeypatch.chdir(tmp_path / "tree")
    from pathlib import Path as ThePath

    tree = open_tree(ThePath())
    assert ("tree", tmp_path / "tree") == (tree.name, tree.path)


def test_a_folder_that_is_no_server_tree_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        open_tree(tmp_path)
    assert f"not a Redis or Valkey source tree ({tmp_path})" in str(caught.value)
    assert "it has no src/version.h" in str(caught.value)


def test_a_path_that_is_not_there_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        open_tree(tmp_path / "absent")


def test_a_header_without_a_version_is_refused(tmp_path: Path) -> None:
    path = fakes.server_tree(tmp_path / "tree", macro="OTHER_VERSION")
    with pytest.raises(UsageError, match="no REDIS_VERSION or VALKEY_VERSION"):
        open_tree(path)


@pytest.mark.parametrize("version", ["2.6.17", "2.4.0", "1.2.6"])
def test_a_redis_older_than_2_8_is_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(UsageError, match=f"{version} is older than 2.8"):
        open_tree(fakes.server_tree(tmp_path / "tree", version=version))


def test_a_digest_that_is_known_is_not_computed_again(tmp_path: Path) -> None:
    assert open_tree(fakes.server_tree(tmp_path / "tree"), digest="known").digest == "known"


def test_the_digest_is_of_the_content_not_of_the_place(tmp_path: Path) -> None:
    one, other = fakes.server_tree(tmp_path / "one"), fakes.server_tree(tmp_path / "other")
    assert digest_of(one) == digest_of(other)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a changed byte": lambda tree: (tree / "src" / "bitops.c").write_text("int bitopt;\n"),
    "a new file": lambda tree: (tree / "src" / "new.c").write_text(""),
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


def test_the_digest_does_not_change_with_what_a_build_leaves(tmp_path: Path) -> None:
    tree = fakes.server_tree(tmp_path / "tree")
    before = digest_of(tree)
    add_products(tree)
    assert before == digest_of(tree)


def test_a_copy_has_the_sources_with_times_and_modes_and_no_products(tmp_path: Path) -> None:
    tree = fakes.server_tree(tmp_path / "tree")
    fakes.write(tree / "src" / "mkreleasehdr.sh", "#!/bin/sh\n", mode=0o755)
    (tree / "src" / "link.c").symlink_to("bitops.c")
    os.utime(tree / "src" / "bitops.c", (1_000_000_000, 1_000_000_000))
    before = {name: seen for name, seen in snapshot(tree).items() if not (tree / name).is_dir()}
    add_products(tree)
    copy_tree(tree, tmp_path / "copy")
    copied = snapshot(tmp_path / "copy")
    assert before == {name: seen for name, seen in copied.items() if not (tmp_path / "copy" / name).is_dir()}
    assert (tmp_path / "copy" / "src" / "link.c").is_symlink()
    assert digest_of(tree) == digest_of(tmp_path / "copy")


def test_reading_and_copying_leave_the_tree_untouched(tmp_path: Path) -> None:
    tree = fakes.server_tree(tmp_path / "tree")
    add_products(tree)
    before = snapshot(tree)
    open_tree(tree)
    copy_tree(tree, tmp_path / "copy")
    assert before == snapshot(tree)


def test_a_linked_folder_is_copied_as_a_link_and_counts(tmp_path: Path) -> None:
    tree = fakes.server_tree(tmp_path / "tree")
    before = digest_of(tree)
    (tree / "deps").symlink_to("src")
    copy_tree(tree, tmp_path / "copy")
    assert (tmp_path / "copy" / "deps").is_symlink()
    assert before != digest_of(tree)


def test_a_socket_or_pipe_that_a_test_run_left_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        # A checkout in a folder of the workspace: the repository's top counts, wherever the command runs.
        ("checkout", "checkout", "", ""),
        ("checkout", "checkout/deps/redis", "", "deps/redis"),
        (None, "deps/redis", "", "deps/redis"),
        (None, "", "", ""),
        (None, "redis", "elsewhere", ""),
    ],
)
def test_a_trees_folder_is_told_from_the_top_of_its_repository(
    tmp_path: Path, repository: str | None, tree: str, here: str, folder: str
) -> None:
    for made in (repository or "", tree, here):
        (tmp_path / made).mkdir(parents=True, exist_ok=True)
    if repository is not None:
        (tmp_path / repository / ".git").mkdir()
    assert folder_in_repository(tmp_path / tree, tmp_path / here) == folder
