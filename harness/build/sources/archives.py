"""Gets source archives from package registries by package name, checks them by hash, and unpacks them into the cache.

A file whose SHA-256 is not the pinned one is refused and never kept. Another version is never taken silently. The
machine's own configuration names the registries' hosts: no address is written here.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import sys
import tarfile
import tempfile
import zipfile
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.build.sources import source_tree
from harness.build.sources.debian_archive import Apt, unpack_packages
from harness.build.sources.tree_files import digest_of
from harness.core.cache import Cache, disk_errors
from harness.core.digests import key_of, sha256_of
from harness.core.errors import InfrastructureError, PlumblineError
from harness.core.processes import environment, process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.model import ArchivePlace, Server, SourceTree
    from harness.core.progress import Progress


def archive_name(name: str, sha256: str) -> str:
    """The name of an archive's folder in the cache, and of its tree's."""
    return f"{name}-{sha256[:12]}"


def tree_name(name: str, sha256: str, left_out: Sequence[str] = ()) -> str:
    """The name of the folder of an archive's tree in the cache. `left_out`: see `Fetcher.tree`."""
    return archive_name(name, sha256) + (f"-{key_of(sorted(left_out))}" if left_out else "")


class Fetcher:
    """Archives and trees, from the cache or, unless offline, from their registries."""

    def __init__(self, cache: Cache, progress: Progress, *, offline: bool = False) -> None:
        self.cache = cache
        self.progress = progress
        self.offline = offline

    def server(self, server: Server) -> SourceTree:
        """The unpacked tree of a pinned release."""
        tree = self.tree(server.name, server.sha256, server.places, server.folder)
        opened = source_tree.open_tree(tree, name=server.name, digest=server.sha256)
        return msgspec.structs.replace(opened, files=digest_of(tree))

    def tree(
        self,
        name: str,
        sha256: str,
        places: Sequence[ArchivePlace],
        folder: str = "",
        *,
        left_out: Sequence[str] = (),
    ) -> Path:
        """An archive's tree, unpacked once. Of the folders in `left_out` only the build system's files are unpacked.

        Raises InfrastructureError when no registry has the pinned file.
        """

        def unpack(into: Path) -> None:
            archive = self.archive(name, sha256, places)
            with self.progress.stage("fetch", f"unpacking {name}"):
                extract(archive, into, folder, left_out=left_out)

        return self.cache.folder("sources", tree_name(name, sha256, left_out), unpack)

    def archive(self, name: str, sha256: str, places: Sequence[ArchivePlace]) -> Path:
        """The verified archive file."""

        def download(into: Path) -> None:
            if self.offline:
                raise InfrastructureError(
                    f"the source of {name} is not in the cache",
                    where=str(self.cache.root),
                    because="--offline forbids downloads",
                    remedy=f"plumb fetch --server {name}",
                )
            self._download(name, sha256, places, into)

        key = archive_name(name, sha256)
        old, seal = self.cache.paths("archives", key)
        # Its own hash proves it, regardless of who put it there.
        if not seal.exists() and [sha256_of(file) for file in old.glob("*")] == [sha256]:
            self.cache.seal_folder("archives", key)
        folder = self.cache.folder("archives", key, download)
        return next(folder.iterdir())

    def packages(self, suite: str, architecture: str, names: Sequence[str]) -> Path:
        """The content of Debian packages of any architecture, unpacked beside each other and not installed.

        The archive has one version of each, whose signature apt verifies. Raises InfrastructureError.
        """

        def unpack(into: Path) -> None:
            what = f"{' and '.join(names)} of {suite} for {architecture}"
            if self.offline:
                raise InfrastructureError(
                    f"the cache does not contain {what}",
                    where=str(self.cache.root),
                    because="--offline forbids downloads",
                    remedy="run once without --offline",
                )
            with self.progress.stage("fetch", f"fetching {what}"), tempfile.TemporaryDirectory(dir=into) as folder:
                unpack_packages(self._debian_packages(suite, architecture, names, Path(folder)), into)

        return self.cache.folder("packages", f"{suite}-{architecture}-{key_of(names)}", unpack)

    def _debian_packages(self, suite: str, architecture: str, names: Sequence[str], into: Path) -> list[Path]:
        root_name = f"{suite}-{architecture}"
        with self.cache.lock(f"apt-{root_name}"):
            apt = Apt(self.cache.path("apt", root_name), suite, architecture)
            apt.update()
            result = apt.get("download", *names, folder=into)
        if result.code != 0:
            raise InfrastructureError(
                f"{' and '.join(names)} of {suite} for {architecture} cannot be fetched", because=result.text.strip()
            )
        return sorted(into.glob("*.deb"))

    def _download(self, name: str, sha256: str, places: Sequence[ArchivePlace], into: Path) -> None:
        failures: list[str] = []
        for place in places:
            with self.progress.stage(
                "fetch", f"fetching {name} ({place.registry} {place.package} {place.suite}{place.version})"
            ):
                try:
                    file = self._from_debian(place, into) if place.registry == "debian" else _from_pypi(place, into)
                except PlumblineError as error:
                    failures.append(f"{place.registry} {place.package}: {error.what}: {error.because}")
                    continue
            found = sha256_of(file)
            if found == sha256:
                for other in into.iterdir():
                    if other != file:
                        other.unlink()
                return
            file.unlink()
            failures.append(f"{place.registry} {place.package}: SHA-256 is {found}, pinned is {sha256}; refused")
        raise InfrastructureError(
            f"no registry has the pinned source of {name}",
            because="\n".join(failures),
            remedy="--server PATH takes any source tree that you have",
        )

    def _from_debian(self, place: ArchivePlace, into: Path) -> Path:
        with self.cache.lock(f"apt-{place.suite}"):
            apt = Apt(self.cache.path("apt", place.suite), place.suite)
            for attempt in ("listed", "updated"):
                if attempt == "updated" or not apt.has_index:
                    apt.update()
                result = apt.get("source", "--download-only", "--tar-only", place.package, folder=into)
                if (into / place.file).is_file():
                    return into / place.file
                others = sorted(file.name for file in into.iterdir())
                for other in others:
                    (into / other).unlink()
        superseded = f"{place.suite} has {', '.join(others)} now" if others else result.text.strip()
        raise InfrastructureError(f"{place.file} is gone", because=superseded)


def _pypi_index() -> str:
    """The package index that pip uses on the host: the configured one, or pip's default."""
    if address := os.environ.get("PIP_INDEX_URL"):
        return address
    configured = process.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        deadline_seconds=60,
        environment=environment.for_registry(),
    )
    if configured.code == 0:
        return configured.text.strip()
    from pip._internal.models.index import PyPI  # noqa: PLC0415 - the one place where pip tells its default

    return str(PyPI.simple_url)


def _from_pypi(place: ArchivePlace, into: Path) -> Path:
    """Download a release's source distribution or wheel without running any of its code (pip would run its build).

    A wheel may be for another architecture: the file name selects it.
    """
    from unearth import PackageFinder  # noqa: PLC0415 - with its HTTP client a fifth of every command's start

    finder = PackageFinder(index_urls=[_pypi_index()], ignore_compatibility=True)
    try:
        found = list(finder.find_matches(f"{place.package}=={place.version}"))
        links = [one.link for one in found if one.link.filename == place.file]
        responses = [finder.session.get(link.normalized) for link in links]
        for response in responses:
            response.raise_for_status()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise InfrastructureError(f"{place.file} cannot be fetched", because=why) from error
    if not responses:
        raise InfrastructureError(
            f"{place.file} is gone", because=f"the index has {[one.link.filename for one in found]}"
        )
    file = into / place.file
    with disk_errors(file):
        file.write_bytes(responses[0].content)
    return file


_OF_NAMES = {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.EINVAL}


def is_archives_fault(error: Exception) -> bool:
    """Whether an exception from unpacking says that the archive is damaged or hostile: not that the disk is full."""
    if isinstance(error, OSError) and not isinstance(error, tarfile.TarError):
        # An error that no system call reports is of the compressed stream.
        return error.errno in {None, *_OF_NAMES}
    return isinstance(error, tarfile.TarError | EOFError | KeyError | RecursionError | ValueError | zlib.error)


def extract(archive: Path, into: Path, folder: str, *, left_out: Sequence[str] = ()) -> None:
    """Unpack the contents of the archive's single top folder (or `folder` in it). No file can be written outside of
    `into`.

    Of the folders in `left_out`, which are globs, only the build system's files are unpacked: it reads those anyway. A
    wheel has no top folder, and is unpacked whole.
    """
    if archive.suffix == ".whl":
        _extract_wheel(archive, into)
        return
    globs = tuple(left_out)
    strip = 1 + len([part for part in folder.split("/") if part])
    prefix = re.compile(rf"[^/]+/{re.escape(folder)}/" if folder else r"[^/]+/")
    try:
        found = False
        with disk_errors(into), tarfile.open(archive) as tar:
            # Debian 12's Python (3.11.2) has no filters; where filters exist, the strict one applies too.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            for member in tar:
                name = member.name.removeprefix("./")
                if not prefix.match(name):
                    continue
                member.name = "/".join(name.split("/")[strip:])
                if member.islnk():
                    member.linkname = "/".join(member.linkname.removeprefix("./").split("/")[strip:])
                if member.name and not (_is_left_out(member.name, globs) and not member.isdir()):
                    found = True
                    _confine(member, into)
                    tar.extract(member, into)
    except Exception as error:
        if not is_archives_fault(error):
            raise
        raise InfrastructureError("the archive cannot be unpacked", where=str(archive), because=str(error)) from error
    if not found:
        raise InfrastructureError(f"the archive has no folder '{folder or '*'}'", where=str(archive))


def _extract_wheel(archive: Path, into: Path) -> None:
    try:
        # No member leaves the folder: ZipFile removes `..` and a leading slash.
        with disk_errors(into), zipfile.ZipFile(archive) as wheel:
            for member in wheel.infolist():
                path = Path(wheel.extract(member, into))
                # ZipFile ignores executable bits; the upper half of the attributes is the mode.
                path.chmod(path.stat().st_mode | (member.external_attr >> 16 & 0o111))
    except zipfile.BadZipFile as error:
        raise InfrastructureError("the archive cannot be unpacked", where=str(archive), because=str(error)) from error


def _is_left_out(name: str, left_out: tuple[str, ...]) -> bool:
    """Whether a file is in a folder that is left out, and is not the build system's."""
    folder, _, file = name.rpartition("/")
    return not file.startswith(("Kconfig", "Makefile", "Kbuild")) and _is_folder_left_out(folder, left_out)


@cache
def _is_folder_left_out(folder: str, left_out: tuple[str, ...]) -> bool:
    """Whether a folder, or one above it, is left out. Linux has 80,000 files in 5,000 folders."""
    parts = folder.split("/")
    folders = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    return any(fnmatch.fnmatchcase(each, glob) for each in folders for glob in left_out)


def _confine(member: tarfile.TarInfo, into: Path) -> None:
    """Raise TarError for a member that would land or point outside the folder, or is not a file, folder or link."""
    root = into.resolve()
    place = into / member.name
    ends = [place.parent.resolve() / place.name]
    if member.issym():
        ends.append((place.parent / member.linkname).resolve())
    elif member.islnk():
        ends.append((into / member.linkname).resolve())
    elif not (member.isfile() or member.isdir()):
        raise tarfile.TarError(f"{member.name} is a device or a pipe")
    for end in ends:
        if ".." in end.parts or not end.is_relative_to(root):
            raise tarfile.TarError(f"{member.name} leads outside the archive")
    member.mode |= 0o700 if member.isdir() else 0o600
