"""A store that all machines of a campaign reach: a folder, S3, or whatever else fsspec opens.

Entries are named by hash. An entry that is not what its name says is not used. Writing an entry twice is harmless, so
no lock is needed.
"""

from __future__ import annotations

import os
import secrets
import threading
from typing import Any

from harness.core.errors import InconclusiveError, InfrastructureError
from harness.workflows.campaign.archive import digest_of_archive


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
        """Store an entry unless it is there. Raises InfrastructureError if the store cannot be written."""
        path = self._path(kind, digest)
        try:
            if self._size(path) == len(content):
                return
            self._files.makedirs(self._path(kind, ""), exist_ok=True)
            # Readers see an entry whole: on a file system it is renamed into place, and object stores write whole.
            unfinished = f"{path}.{os.getpid()}-{threading.get_ident()}-{secrets.token_hex(4)}"
            self._files.pipe_file(unfinished, content)
            self._files.mv(unfinished, path)
        except OSError as error:
            raise _unusable(self.url, error) from error

    def get(self, kind: str, digest: str) -> bytes:
        """The content of an entry.

        Raises InfrastructureError if it is missing, InconclusiveError if it is not what its name says.
        """
        path = self._path(kind, digest)
        try:
            content: bytes = self._files.cat_file(path)
        except OSError as error:
            raise _unusable(self.url, error) from error
        if digest_of_archive(content) != digest:
            raise InconclusiveError("an entry of the shared store is damaged", where=path, remedy="remove it")
        return content

    def has(self, kind: str, digest: str) -> bool:
        """Whether an entry is there, whatever it holds."""
        return bool(self._files.exists(self._path(kind, digest)))

    def remove(self, kind: str, digest: str) -> None:
        """Remove an entry, if it is there."""
        if self.has(kind, digest):
            self._files.rm_file(self._path(kind, digest))

    def _size(self, path: str) -> int | None:
        try:
            details: dict[str, Any] = self._files.info(path)
        except FileNotFoundError:
            return None
        return details.get("size")

    def _path(self, kind: str, digest: str) -> str:
        return f"{self._root.rstrip('/')}/{kind}/{digest}".rstrip("/")


def _unusable(url: str, error: Exception) -> InfrastructureError:
    return InfrastructureError(
        "the shared store cannot be used",
        where=url,
        because=f"{type(error).__name__}: {error}",
        remedy="name a folder or a URL that every machine of the campaign may write: `store` in the cluster's file",
    )
