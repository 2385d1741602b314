"""Content addresses: digests of files, keys of cache entries, and the check that a key still holds."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from harness.core.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def sha256_of(path: Path) -> str:
    """Hash of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def refuse_edited(now: str, key: str, where: str) -> None:
    """Raise InfrastructureError where what an entry was made of has another key by now: it may be of a mixture."""
    if now != key:
        raise InfrastructureError(
            "files were edited while something was made of them",
            where=where,
            because="what was made may be of a mixture, and is not kept",
            remedy="run again",
        )


def key_of(parts: Iterable[str]) -> str:
    """A short content address of an ordered list of texts: 16 hexadecimal digits of their SHA-256."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()[:16]
