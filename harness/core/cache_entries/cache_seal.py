"""Seals: the content of a cache entry, file by file, recorded when the entry is made and compared when it is used.

A seal reveals damage: a file that is truncated, empty, missing, added, or has one flipped bit. It is not a signature,
because any program that may write to the cache may also write seals.
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
"""More files than this are flushed by one sync(2): 40,000 single calls for a source tree would take minutes."""

State: TypeAlias = "dict[str, tuple[int, ...]]"
"""File → inode, mode, size, times of change in nanoseconds. Only the kernel sets the last one (inode(7), ctime), so an
equal state means that no program has written to the file."""


class SealedPart(Record, frozen=True):
    """A file or a link of an entry."""

    size: int
    """In bytes; for a link, the size of its text."""
    executable: bool
    link: bool
    sha256: str


class Seal(Record, frozen=True):
    """The content of an entry, without empty folders, sockets and pipes."""

    digest: str
    """SHA-256 of `parts` as JSON, because the seal itself may be damaged."""
    parts: dict[str, SealedPart]
    """Path in the entry → part."""


def seal_of(folder: Path) -> Seal:
    """Read a folder and make its seal."""
    parts = {name: _part(path, status) for name, path, status in files_below(folder)}
    return Seal(digest=_digest(parts), parts=parts)


def write(seal: Seal, path: Path) -> None:
    """Write a seal to a file, and flush the file to the disk."""
    with path.open("wb") as stream:
        stream.write(json_codec.encode(seal) + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def read(path: Path) -> Seal | None:
    """The seal in a file; None if there is none or it is damaged."""
    try:
        seal = json_codec.decode(path.read_bytes(), Seal)
    except (OSError, msgspec.DecodeError):
        return None
    return seal if seal.digest == _digest(seal.parts) else None


def difference(folder: Path, seal: Seal) -> str:
    """How a folder differs from its seal; empty if it is intact. Sizes are compared first because they cost nothing."""
    found = {name: (path, status) for name, path, status in files_below(folder)}
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
    """A cheap state of a folder, which changes if anything in it is written to; empty if there is no folder."""
    return {
        name: (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        for name, _, status in files_below(folder)
    }


def put_on_disk(folder: Path) -> None:
    """Flush a folder with its content to the disk, so that they survive a power failure."""
    paths = [path for _, path, status in files_below(folder) if stat.S_ISREG(status.st_mode)]
    if len(paths) > MANY_FILES:
        os.sync()
        return
    for path in [*paths, *(Path(inside) for inside, _, _ in os.walk(folder))]:
        sync(path)


def sync(path: Path | str) -> None:
    """Flush a file, or a folder itself, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _part(path: Path, status: os.stat_result) -> SealedPart:
    if stat.S_ISLNK(status.st_mode):
        text = os.readlink(path)  # noqa: PTH115 - Path.readlink drops a trailing slash
        return SealedPart(size=status.st_size, executable=False, link=True, sha256=_sha256(os.fsencode(text)))
    return SealedPart(size=status.st_size, executable=bool(status.st_mode & 0o111), link=False, sha256=sha256_of(path))


def _sha256(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _digest(parts: dict[str, SealedPart]) -> str:
    return _sha256(json_codec.encode(parts))
