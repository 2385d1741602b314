"""Reads a server's source tree: family, version, digest (harness.build.sources.tree_files); takes a stable copy of it.

It never writes to the tree that it reads.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.build.sources.tree_features import abilities_of, age_of, is_development
from harness.build.sources.tree_files import copy_at_rest, digest_of, source_files
from harness.core.digests import key_of
from harness.core.errors import RefusedTreeError, UsageError
from harness.core.model import SourceTree

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_MACROS: tuple[tuple[str, Literal["redis", "valkey"]], ...] = (
    ("VALKEY_VERSION", "valkey"),
    ("REDIS_VERSION", "redis"),
)
"""Valkey comes first: its header also contains the Redis version that it is compatible with."""
_COMPILED = re.compile(r"\.[ch]$")
_MADE = re.compile(r"^src/(commands|fmtargs)\.[^/]*$")
"""Sources that a release contains, and rebuilds if the files from which they are generated are newer."""
_LATER_NS = 1000
"""Any file system distinguishes times that differ by this many nanoseconds."""
_VERSION = r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,4}"
OLDEST = (2, 8)
"""The oldest Redis that current compilers build with the recipe of harness.build.server_build."""


def open_tree(path: Path, *, name: str = "", digest: str = "") -> SourceTree:
    """Recognise a Redis or Valkey tree. A digest that is already known (a release's) is not computed again.

    Raises UsageError when the folder is not such a tree, and RefusedTreeError if another commit may be: this one is a
    release older than 2.8, or has no version or links out.
    """
    header = path / "src" / "version.h"
    if not path.is_dir() or not header.is_file():
        # In a checkout, another commit may have the file.
        kind = RefusedTreeError if (path / ".git").exists() else UsageError
        raise kind(
            "not a Redis or Valkey source tree",
            where=str(path),
            because="it has no src/version.h" if path.is_dir() else "there is no such folder",
            remedy="give --server the top folder of a source tree, or a name that this lists: plumb list servers",
        )
    text = header.read_text("utf-8", "replace")
    family: Literal["redis", "valkey"]
    for macro, family in _MACROS:
        match = re.search(rf'^#define\s+{macro}\s+"({_VERSION})["-]', text, re.MULTILINE)
        if match is None:
            continue
        abilities = abilities_of(path)
        version, by = tuple(int(part) for part in match[1].split(".")), ""
        if is_development(version):
            version, by = age_of(path, family, abilities)
            # Development trees have had such numbers since 2015, so a command that was not found is not too old a tree.
            version = max(version, OLDEST)
        elif family == "redis" and version < OLDEST:
            raise RefusedTreeError(f"{match[1]} is older than {_dotted(OLDEST)}", where=str(header))
        files = "" if digest else digest_of(path)
        return SourceTree(
            name=name or f"{path.resolve().name}",
            family=family,
            version=version,
            path=path.resolve(),
            digest=digest or files,
            files=files,
            abilities=abilities,
            development=f"a development tree ({match[1]}), treated as {_dotted(version)} because of {by}" if by else "",
        )
    because = "no REDIS_VERSION or VALKEY_VERSION with numbers"
    raise RefusedTreeError("the version cannot be read", where=str(header), because=because)


def with_newer(tree: SourceTree, files: Sequence[str]) -> SourceTree:
    """The tree with a copy in which the changed files are newer than all others and have the same time.

    Make compares times: it regenerates src/commands.c from a changed JSON file, unless src/commands.c has also changed.
    In a checkout, the times depend on git or an editor. If a change contains only sources that no makefile generates,
    the tree is returned as it is. The builds of such a tree have their own names.
    """
    if tree.copy is None or all(_COMPILED.search(name) and not _MADE.search(name) for name in files):
        return tree
    newest = max(path.lstat().st_mtime_ns for path in source_files(tree.copy))
    for path in (tree.copy / name for name in files):
        if path.is_file() and not path.is_symlink():
            os.utime(path, ns=(newest + _LATER_NS, newest + _LATER_NS))
    return msgspec.structs.replace(tree, digest=key_of([tree.digest, *sorted(files)]))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def take(path: Path, into: Path) -> SourceTree:
    """Open a tree that its user may keep editing: builds use the copy `into`, the tree's state at one moment.

    Raises UsageError as open_tree does, InfrastructureError for a tree that never stops changing.
    """
    opened = open_tree(path, digest="not needed yet")
    digest = copy_at_rest(opened.path, into)
    # The copy's own version counts: the header may have just been edited.
    copied = open_tree(into, name=opened.name, digest=digest)
    return msgspec.structs.replace(copied, path=opened.path, files=digest, copy=into)
