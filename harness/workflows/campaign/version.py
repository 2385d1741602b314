"""Which Plumbline this is: machines may share a campaign only if all files that can change a result are the same."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
from pathlib import Path

from harness.core.digests import files_below, sha256_of
from harness.core.strict_toml import OWN_FOLDERS, PACKAGE, PACKED

_RESOURCE = "cell-"


def harness_version() -> str:
    """The release and a digest of its files, as they are now: `0.1.0+1f2e3d4c5b6a7980`.

    A wheel has that of the checkout from which it was built.
    """
    files = []
    for folder in OWN_FOLDERS:
        for name, path, status in files_below(folder):
            # Interpreters write these.
            written = "__pycache__" in name
            # A wheel's suites, targets and toolchains, which have their own folders.
            packed = folder == PACKAGE and path.is_relative_to(PACKED)
            if not written and not packed and path.is_file():
                whole = f"{folder.name}/{name}"
                files.append((whole, str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return _version_of(tuple(files))


@functools.lru_cache(maxsize=4)
def _version_of(files: tuple[tuple[str, str, int, int, int], ...]) -> str:
    """A worker calls this before every job, and reads the files again only after a change."""
    digest = hashlib.sha256()
    for name, path, *_ in files:
        digest.update(os.fsencode(name) + b"\0" + sha256_of(Path(path)).encode() + b"\0")
    return f"{importlib.metadata.version('plumbline')}+{digest.hexdigest()[:16]}"


def resource_of(version: str) -> str:
    """The resource that a worker offers once for each cell that it can run. A job requests one of its own version.

    The version is in the name, so the engine never gives a job to a worker of another version.
    """
    return f"{_RESOURCE}{version}"


def versions_in(resources: dict[str, float]) -> dict[str, int]:
    """Version → number of cells that a worker offers. A worker other than Plumbline's offers none."""
    return {
        name.removeprefix(_RESOURCE): int(number) for name, number in resources.items() if name.startswith(_RESOURCE)
    }
