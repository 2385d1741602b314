"""The cache: where everything that is expensive is kept, content-addressed, published whole or not at all.

A folder is filled under a temporary name and renamed into place under a lock, so that a killed run leaves nothing
half-made and two runs at a time do not corrupt each other.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
from filelock import FileLock

from harness.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class Store:
    """One cache folder; `Store.default()` is the user's (PLUMBLINE_CACHE, else the platform's cache folder)."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def default(cls) -> Store:
        """The user's cache."""
        return cls(Path(os.environ.get("PLUMBLINE_CACHE") or platformdirs.user_cache_dir("plumbline", appauthor=False)))

    def path(self, kind: str, key: str) -> Path:
        """Where an entry is, or would be."""
        return self.root / kind / key

    def folder(self, kind: str, key: str, fill: Callable[[Path], None]) -> Path:
        """The entry's folder, made by `fill` (given an empty folder) if it is not there yet.

        If `fill` raises, nothing is published. Raises InfrastructureError on a full or read-only disk.
        """
        final = self.path(kind, key)
        if final.is_dir():
            return final
        with self.lock(f"{kind}-{key}"):
            if final.is_dir():
                return final
            with disk_errors(final):
                final.parent.mkdir(parents=True, exist_ok=True)
                unfinished = Path(tempfile.mkdtemp(prefix=f".{key[:40]}-", dir=final.parent))
                try:
                    fill(unfinished)
                    unfinished.chmod(0o755)
                    unfinished.rename(final)
                finally:
                    shutil.rmtree(unfinished, ignore_errors=True)
        return final

    @contextlib.contextmanager
    def work(self, name: str) -> Iterator[Path]:
        """An empty folder to build in, gone afterwards. Its path depends on the name alone. Hold a lock around it."""
        folder = self.path("work", name)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            with disk_errors(folder):
                folder.mkdir(parents=True)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def log(self, name: str) -> Path:
        """A build's log, not there yet: it outlives the work folder."""
        path = self.root / "logs" / f"{name}.log"
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
        return path

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Exclude other threads and processes that take the same name."""
        locks = self.root / "locks"
        with disk_errors(locks):
            locks.mkdir(parents=True, exist_ok=True)
        with FileLock(locks / f"{name}.lock", thread_local=False):
            yield


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what a full or read-only disk raises into an error that says so."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOTDIR}:
            raise
        raise InfrastructureError(
            f"cannot write: {error.strerror}",
            where=str(error.filename or path),
            remedy="free some space (plumb clean shows what the cache holds), or name another cache folder: "
            "PLUMBLINE_CACHE=FOLDER",
        ) from error


def sha256_of(path: Path) -> str:
    """Hash of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def key_of(parts: Iterable[str]) -> str:
    """A short content address of an ordered list of texts: 16 hexadecimal digits of their SHA-256."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()[:16]
