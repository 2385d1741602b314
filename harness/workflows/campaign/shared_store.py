"""A store that all machines of a campaign can access: a folder, S3, or anything else that fsspec opens.

Results and sources are named by hash. Parts of workers' caches, such as emulators and builds, are named by what they
were made from, and begin with their hash. Content that does not match its hash is not used. Writing the same content
twice is harmless, so no lock is needed here; the caches have their own.
"""

from __future__ import annotations

import os
import secrets
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from harness.core.errors import InconclusiveError, InfrastructureError
from harness.workflows.campaign import archive
from harness.workflows.ci_cache import host_release

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.core.cache import Cache

_DIGEST_BYTES = 64


class SharedStore:
    """A store at a folder's path or an fsspec URL such as `s3://bucket/plumbline`."""

    def __init__(self, url: str) -> None:
        import fsspec  # noqa: PLC0415 - only campaigns with a store need it

        self.url = url
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError, OSError) as error:
            raise _unusable(url, error) from error

    def put(self, kind: str, digest: str, content: bytes) -> None:
        """Store an entry unless the store has it. Raises InfrastructureError if the store cannot be written."""
        if self._size(self._path(kind, digest)) != len(content):
            self._write(kind, digest, content)

    def _write(self, kind: str, name: str, content: bytes) -> None:
        path = self._path(kind, name)
        try:
            self._files.makedirs(self._path(kind, ""), exist_ok=True)
            # Readers see an entry whole: on a file system it is renamed into place, and object stores write whole.
            unfinished = f"{path}.{os.getpid()}-{threading.get_ident()}-{secrets.token_hex(4)}"
            self._files.pipe_file(unfinished, content)
            self._files.mv(unfinished, path)
        except OSError as error:
            raise _unusable(self.url, error) from error

    def _read(self, kind: str, name: str) -> bytes:
        try:
            content: bytes = self._files.cat_file(self._path(kind, name))
        except OSError as error:
            raise _unusable(self.url, error) from error
        return content

    def get(self, kind: str, digest: str) -> bytes:
        """The content of an entry.

        Raises InfrastructureError if it is missing, InconclusiveError if it is not what its name says.
        """
        content = self._read(kind, digest)
        if archive.digest_of_archive(content) != digest:
            where = self._path(kind, digest)
            raise InconclusiveError("an entry of the shared store is damaged", where=where, remedy="remove it")
        return content

    def share(self, cache: Cache, parts: Iterable[tuple[str, str]]) -> None:
        """Store those parts of a cache, named by kind and key, that the cache has and the store lacks."""
        for kind, key in parts:
            name = f"{host_release()}-{kind}-{key}"
            if not self.has("parts", name) and (folder := cache.entry(kind, key)) is not None:
                content = archive.pack(folder)
                self._write("parts", name, archive.digest_of_archive(content).encode() + content)

    def take(self, cache: Cache, parts: Iterable[tuple[str, str]]) -> None:
        """Put those parts into a cache that it lacks and the store has. A damaged one is removed from the store."""
        for kind, key in parts:
            name = f"{host_release()}-{kind}-{key}"
            if cache.entry(kind, key) is not None or not self.has("parts", name):
                continue
            content = self._read("parts", name)
            digest, packed = content[:_DIGEST_BYTES].decode("ascii", "replace"), content[_DIGEST_BYTES:]
            try:
                cache.folder(kind, key, partial(archive.unpack, packed, digest))
            except InconclusiveError:
                self.remove("parts", name)

    def has(self, kind: str, digest: str) -> bool:
        """Whether an entry exists, with any content."""
        return bool(self._files.exists(self._path(kind, digest)))

    def remove(self, kind: str, digest: str) -> None:
        """Remove an entry, if the store has it."""
        if self.has(kind, digest):
            self._files.rm_file(self._path(kind, digest))

    def _size(self, path: str) -> int | None:
        try:
            details: dict[str, Any] = self._files.info(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self.url, error) from error
        return details.get("size")

    def _path(self, kind: str, digest: str) -> str:
        return f"{self._root.rstrip('/')}/{kind}/{digest}".rstrip("/")


def _unusable(url: str, error: Exception) -> InfrastructureError:
    return InfrastructureError(
        "the shared store cannot be used",
        where=url,
        because=f"{type(error).__name__}: {error}",
        remedy="name a folder or a URL that every machine of the campaign can write to: `store` in the cluster's file",
    )
