"""Servers as a distribution ships them: the package and the libraries that it needs, unpacked into a root folder.

apt proves each file by the hash in the suite's signed index. A package that was unpacked once stays in the cache under
its version, so that a later check or a replay has the same server, even if the archive has changed.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import msgspec

from harness.build.sources.closed_root import close_root, refuse_incomplete
from harness.build.sources.debian_archive import Apt, unpack_packages
from harness.core import json_codec
from harness.core.cache import disk_errors
from harness.core.digests import sha256_of
from harness.core.errors import InfrastructureError, UsageError
from harness.core.model import DISTRIBUTION, Build, ServerPackage

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.cache import Cache
    from harness.core.model import Allocator, SourceTree
    from harness.core.progress import Progress
    from harness.core.target_model import Target, Toolchain

FORM = "debian:SUITE/PACKAGE, such as debian:bookworm/redis-server"
CONTENTS = "packages.json"
"""In an unpacked package's folder: file -> SHA-256 of every package that was unpacked."""
UNPACKED_FOLDER = "root"
"""In an unpacked package's folder: the files of all packages, until their folder has its final name."""
ROOT_FOLDER = "root-{}"
"""Its final name, with the beginning of the digest of CONTENTS. The archive's libraries change while the server's
version does not: a run that is judged later must not take their names from others."""
DEBUG_PACKAGES = ("libc6-dbg",)
"""Packages of debug information in a suite's own archive. Those of servers and of most libraries (-dbgsym) are in
another, debian-debug."""
_NAME = re.compile(r"debian:(?P<suite>[a-z][a-z0-9-]*)/(?P<name>[a-z][a-z0-9.+-]*)(?:=(?P<version>[0-9A-Za-z.+~:-]+))?")
_UPSTREAM = re.compile(r"(?:\d+:)?([0-9.]+)")
"""Of a version `EPOCH:UPSTREAM-REVISION` (deb-version(7))."""
_JEMALLOC = re.compile(rb"jemalloc-[0-9]+\.[0-9.]+\0")


def package_named(text: str) -> ServerPackage | None:
    """The package that a server's name denotes; None if the name is not a package's. Raises UsageError for a malformed
    one.
    """
    if not text.startswith(DISTRIBUTION):
        return None
    if (found := _NAME.fullmatch(text)) is None:
        raise UsageError(f"'{text}' names no package", where="--server", remedy=FORM)
    return ServerPackage(suite=found["suite"], name=found["name"], version=found["version"] or "")


def allocator_of(server: Path) -> Allocator:
    """The allocator of a package's server, by the name that it contains for its version and INFO (ZMALLOC_LIB in
    src/zmalloc.h), whether it is linked to the distribution's jemalloc or contains its own.
    """
    return "jemalloc" if _JEMALLOC.search(server.read_bytes()) else "libc"


def upstream_version(package: ServerPackage) -> str:
    """The release that a package was built from."""
    found = _UPSTREAM.match(package.version)
    return found[1].rstrip(".") if found else package.version


def packages_of(build: Build) -> dict[str, str]:
    """File -> SHA-256 of every package that a build's root folder was unpacked from; empty for a compiled server."""
    if build.root is None:
        return {}
    return json_codec.decode((build.folder / CONTENTS).read_bytes(), dict[str, str])


class PackageUnavailableError(InfrastructureError):
    """apt cannot fetch a package for an architecture, though the suite's index may name it."""


class ServerPackages:
    """Packages of servers, in the cache."""

    def __init__(self, cache: Cache, progress: Progress, *, offline: bool = False) -> None:
        self.cache = cache
        self.progress = progress
        self.offline = offline

    def resolve(self, package: ServerPackage, architecture: str) -> ServerPackage:
        """The package with the suite's current version. Raises UsageError if the suite lacks it.

        Raises InfrastructureError if the suite's index cannot be read.
        """
        if package.version:
            return package
        with self.cache.lock(f"apt-{package.suite}-{architecture}"):
            apt = self._apt(package, architecture)
            fetched = f"--server {package.title}=VERSION of a package that was fetched before"
            apt.ready_index(self.progress, offline=self.offline, remedy=fetched)
            shown = apt.cache("show", "--no-all-versions", package.name).text
        if (found := re.search(r"^Version: (\S+)$", shown, re.MULTILINE)) is None:
            raise UsageError(
                f"Debian {package.suite} has no package {package.name} for {architecture}",
                where="--server",
                because=shown.strip().splitlines()[-1] if shown.strip() else "its index does not list it",
                remedy=FORM,
            )
        return msgspec.structs.replace(package, version=found[1])

    def build(self, tree: SourceTree, toolchain: Toolchain, target: Target) -> Build:
        """The package's server for a target.

        Raises UsageError for a target that Debian has no packages for, and for a package without a server;
        PackageUnavailableError if the archive lacks that target's; and InfrastructureError without the network, and for
        packages that would run with libraries of the host.
        """
        package = tree.package
        assert package is not None
        folder = self._unpacked(package, debian_architecture(toolchain, target))
        (root,) = folder.glob(ROOT_FOLDER.format("*"))
        server = root / "usr" / "bin" / f"{tree.family}-server"
        if not server.is_file():
            raise UsageError(
                f"{package.title} contains no server",
                where="--server",
                because=f"it and the packages that it needs have no {server.relative_to(root)}",
                remedy=f"--server debian:{package.suite}/{server.name}",
            )
        refuse_incomplete(root, server, target)
        return Build(
            key=folder.name,
            target=target.name,
            server=tree.name,
            optimisation="",
            folder=folder,
            server_binary=server,
            command_line=["apt-get", "install", f"{package.name}={package.version}"],
            allocator=allocator_of(server),
            abilities=tree.abilities,
            root=root,
        )

    def _unpacked(self, package: ServerPackage, architecture: str) -> Path:
        def unpack(into: Path) -> None:
            if (older := self.cache.entry("packages", f"{name}-debug")) is not None:
                _close_again(older, into)
                return
            if self.offline:
                raise InfrastructureError(
                    f"{package.title} for {architecture} is not in the cache",
                    where=str(self.cache.root),
                    because="--offline forbids downloads",
                    remedy=f"plumb check --server {package.title}, without --offline",
                )
            with self.progress.stage("fetch", f"fetching {package.title} for {architecture}, with its libraries"):
                self._fetch(package, architecture, into)

        version = re.sub(r"[^0-9A-Za-z.+~-]", "_", package.version)
        name = f"{package.suite}-{package.name}-{version}-{architecture}"
        try:
            return self.cache.folder("packages", f"{name}-root", unpack)
        except InfrastructureError:
            # An older Plumbline fetched no debug packages. The server is the same, even if the archive has changed.
            if (older := self.cache.entry("packages", name)) is None:
                raise
            oldest = older
            return self.cache.folder("packages", f"{name}-root-old", lambda into: _close_again(oldest, into))

    def _fetch(self, package: ServerPackage, architecture: str, into: Path) -> None:
        downloads = into / "downloads"
        downloads.mkdir()
        with self.cache.lock(f"apt-{package.suite}-{architecture}"):
            apt = self._apt(package, architecture)
            wanted = f"{package.name}={package.version}"
            result = apt.fetch_with_dependencies([wanted, *DEBUG_PACKAGES], downloads)
        files = sorted(downloads.glob("*.deb"))
        if result.code != 0 or not files:
            raise PackageUnavailableError(
                f"{package.title} cannot be fetched for {architecture}",
                because=result.text.strip(),
                remedy=f"--server debian:{package.suite}/{package.name}, for the suite's current version",
            )
        root = into / UNPACKED_FOLDER
        root.mkdir()
        unpack_packages(files, root)
        with disk_errors(into):
            (into / CONTENTS).write_bytes(json_codec.pretty({file.name: sha256_of(file) for file in files}))
            for file in files:
                file.unlink()
            (downloads / "partial").rmdir()
        _close(into)

    def _apt(self, package: ServerPackage, architecture: str) -> Apt:
        return Apt(self.cache.path("apt", f"{package.suite}-{architecture}"), package.suite, architecture)


def debian_architecture(toolchain: Toolchain, target: Target) -> str:
    """Debian's name of the packages that run on a target. Raises UsageError if there are none."""
    if not toolchain.debian_architecture:
        raise UsageError(
            f"Debian has no packages that run on {target.name}",
            where="--target",
            remedy="docs/howto/packages.md lists the targets that have some",
        )
    return toolchain.debian_architecture


def _close_again(older: Path, into: Path) -> None:
    """Copy packages that were unpacked when a root folder was not yet closed, and close its root."""
    with disk_errors(into):
        shutil.copytree(older, into, symlinks=True, dirs_exist_ok=True)
    _close(into)


def _close(folder: Path) -> None:
    """Close the root folder in an unpacked package's folder, and give it its final name."""
    root = folder / UNPACKED_FOLDER
    close_root(root)
    root.rename(folder / ROOT_FOLDER.format(sha256_of(folder / CONTENTS)[:12]))
