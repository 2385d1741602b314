"""Reads a server's source tree: family, version, digest; and copies it without what an earlier build left in it.

It never writes to the tree it reads.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from typing import TYPE_CHECKING, Literal

from harness.abilities import abilities_of, age_of, is_development
from harness.errors import UsageError
from harness.model import SourceTree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MACROS: tuple[tuple[str, Literal["redis", "valkey"]], ...] = (
    ("VALKEY_VERSION", "valkey"),
    ("REDIS_VERSION", "redis"),
)
"""Valkey's header tells the Redis that it is compatible with as well."""
OLDEST = (2, 8)
"""The oldest Redis that builds with a current compiler by the recipe of harness.build."""

_PRODUCTS = re.compile(r"\.(o|a|d|so|dylib|gcda|gcno|gcov|rdb|aof|log|pyc|xo)$|^\.make-|^(release\.h|core|\.git)$")
_FOLDERS = {".git", ".github", "__pycache__", "autom4te.cache"}


def open_tree(path: Path, *, name: str = "", digest: str = "") -> SourceTree:
    """Recognise a Redis or Valkey tree. A digest that is already known (a release's) is not computed again.

    Raises UsageError when the folder is not such a tree, or older than 2.8.
    """
    header = path / "src" / "version.h"
    if not path.is_dir() or not header.is_file():
        raise UsageError(
            "not a Redis or Valkey source tree",
            where=str(path),
            because="it has no src/version.h" if path.is_dir() else "there is no such folder",
            remedy="name the top folder of a checkout, or a server of: plumb list servers",
        )
    text = header.read_text("utf-8", "replace")
    family: Literal["redis", "valkey"]
    for macro, family in _MACROS:
        match = re.search(rf'^#define\s+{macro}\s+"([0-9.]+)', text, re.MULTILINE)
        if match is None:
            continue
        abilities = abilities_of(path)
        version, by = tuple(int(part) for part in match[1].split(".")), ""
        if is_development(version):
            version, by = age_of(path, family, abilities)
        if family == "redis" and version < OLDEST:
            raise UsageError(f"{match[1]} is older than {_dotted(OLDEST)}", where=str(header), because=by)
        return SourceTree(
            name=name or f"{path.resolve().name}",
            family=family,
            version=version,
            path=path.resolve(),
            digest=digest or digest_of(path),
            abilities=abilities,
            development=f"a development tree ({match[1]}), taken for {_dotted(version)} by {by}" if by else "",
        )
    raise UsageError("the version cannot be read", where=str(header), because="no REDIS_VERSION or VALKEY_VERSION")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def folder_in_repository(tree: Path, here: Path) -> str:
    """A tree's folder below the top of the repository that has it, with forward slashes; empty where it is the top.

    Without a .git above the tree (an archive, GitHub's own checkout without git), `here` counts as the top if the tree
    is in it.
    """
    above = [tree, *tree.parents]
    top = next((folder for folder in above if (folder / ".git").exists()), here if here in above else tree)
    folder = tree.relative_to(top).as_posix()
    return "" if folder == "." else folder


def source_files(path: Path) -> Iterator[Path]:
    """Files of the tree that are source, in a fixed order; an earlier build's products are passed over."""
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(set(folders) - _FOLDERS)
        here = path / os.path.relpath(folder, path)
        links = [name for name in folders if (here / name).is_symlink()]
        for file in sorted([*files, *links]):
            full = here / file
            readable = full.is_symlink() or full.is_file()  # no socket or pipe that a test run left
            if readable and not _PRODUCTS.search(file) and not _is_program(full):
                yield full


def _is_program(path: Path) -> bool:
    if path.is_symlink() or not os.access(path, os.X_OK):
        return False
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def digest_of(path: Path) -> str:
    """SHA-256 over the names and contents of the tree's source files: uncommitted changes count."""
    digest = hashlib.sha256()
    for file in source_files(path):
        content = str(file.readlink()).encode() if file.is_symlink() else file.read_bytes()
        digest.update(f"{file.relative_to(path)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def copy_tree(path: Path, destination: Path) -> None:
    """Copy the source files, times and modes kept, so that make sees what the user sees."""
    for file in source_files(path):
        copy = destination / file.relative_to(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy, follow_symlinks=False)
