"""What an entry of the cache holds, file by file: written beside it when it is made, compared when it is used.

A seal tells damage: a file cut short, emptied, gone, added, or with one bit flipped. It is no signature: whoever may
write to the cache may seal what they like.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import TypeAlias

import msgspec

from harness.core import json_codec
from harness.core.digests import files_below, sha256_of
from harness.core.model import Record

MANY_FILES = 200
"""Above it everything is put on the disk at once: a source's 40,000 files one by one would take minutes."""

State: TypeAlias = "dict[str, tuple[int, ...]]"
"""File → inode, mode, size, times of change in nanoseconds. The kernel sets the last of them, and nobody sets it back
(inode(7), ctime): as long as a state is the same, nobody has written to the file."""


class SealedPart(Record, frozen=True):
    """A file, or a link, of an entry."""

    size: int
    """In bytes; of a link, of its text."""
    executable: bool
    link: bool
    sha256: str


class Seal(Record, frozen=True):
    """All that an entry holds. Folders without a file do not count, nor do sockets and pipes."""

    digest: str
    """SHA-256 of `parts` as JSON: the seal itself may be damaged."""
    parts: dict[str, SealedPart]
    """By their paths in the entry."""


def seal_of(folder: Path) -> Seal:
    """Read everything in a folder."""
    parts = {name: _part(path, seen) for name, path, seen in files_below(folder)}
    return Seal(digest=_digest(parts), parts=parts)


def write(seal: Seal, path: Path) -> None:
    """Put a seal into a file, and the file onto the disk."""
    with path.open("wb") as stream:
        stream.write(json_codec.encode(seal) + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def read(path: Path) -> Seal | None:
    """The seal in a file; None where there is none, or one that is damaged."""
    try:
        seal = json_codec.decode(path.read_bytes(), Seal)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return seal if seal.digest == _digest(seal.parts) else None


def difference(folder: Path, seal: Seal) -> str:
    """Why a folder is not what its seal says; empty where it is whole. Sizes come first, for they cost nothing."""
    found = {name: (path, seen) for name, path, seen in files_below(folder)}
    for name, part in seal.parts.items():
        if name not in found:
            return f"{name} is missing"
        size = found[name][1].st_size
        if size != part.size:
            return f"{name} has {size} bytes instead of {part.size}"
    if added := sorted(found.keys() - seal.parts.keys()):
        return f"{added[0]} has been added"
    return next((f"{name} has changed" for name, part in seal.parts.items() if _part(*found[name]) != part), "")


def state_of(folder: Path) -> State:
    """What tells cheaply that nobody has written to a folder since; empty where there is none."""
    return {
        name: (seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
        for name, _, seen in files_below(folder)
    }


def put_on_disk(folder: Path) -> None:
    """Return when a folder and all in it would survive a power cut."""
    paths = [path for _, path, seen in files_below(folder) if stat.S_ISREG(seen.st_mode)]
    if len(paths) > MANY_FILES:
        os.sync()
        return
    for path in [*paths, *(Path(inside) for inside, _, _ in os.walk(folder))]:
        sync(path)


def sync(path: Path | str) -> None:
    """Return when a file or a folder itself is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _part(path: Path, status: os.stat_result) -> SealedPart:
    if stat.S_ISLNK(status.st_mode):
        text = os.readlink(path)  # noqa: PTH115 - a Path's own drops a slash at its end
        return SealedPart(size=status.st_size, executable=False, link=True, sha256=_sha256(os.fsencode(text)))
    return SealedPart(size=status.st_size, executable=bool(status.st_mode & 0o111), link=False, sha256=sha256_of(path))


def _sha256(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _digest(parts: dict[str, SealedPart]) -> str:
    return _sha256(json_codec.encode(parts))
