"""Content addresses: the files below a folder, their digests, keys of cache entries, and the check that a key is still
valid.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def files_below(folder: Path, above: str = "") -> Iterator[tuple[str, Path, os.stat_result]]:
    """Files and links below a folder, in order: the path inside it, the path, and the file system's record of it.

    Yields nothing for a folder that does not exist, nor for a file that is removed meanwhile. Follows no link.
    """
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        name = above + entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from files_below(Path(entry.path), f"{name}/")
        elif entry.is_symlink() or entry.is_file():
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield name, Path(entry.path), status


def refuse_edited(now: str, key: str, where: str) -> None:
    """Raise InfrastructureError if the sources of an entry have a new key: the entry may be a mixture of both."""
    if now != key:
        raise InfrastructureError(
            "files were edited while they were in use",
            where=where,
            because="the result may be a mixture, and is not kept",
            remedy="run again",
        )


def key_of(parts: Iterable[str]) -> str:
    """A short content address of an ordered list of texts: 16 hexadecimal digits of a SHA-256."""
    digest = hashlib.sha256()
    for part in parts:
        # A file's name may contain any bytes.
        digest.update(f"{len(part)}:{part}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]
