"""Source packages of Debian, unpacked by dpkg-source. apt fetches them, and proves each file by a signed index.

A package that was fetched once stays in the cache under its version. It is unpacked for every use, into a folder that
the caller provides, because builds write into it.
"""

from __future__ import annotations

import re
import shutil
from functools import cmp_to_key
from typing import TYPE_CHECKING

import msgspec

from harness.build.sources.debian_archive import Apt
from harness.core.errors import InfrastructureError, UsageError
from harness.core.model import Record
from harness.core.processes import process

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.cache import Cache
    from harness.core.progress import Progress

DEFAULT_SUITE = "bookworm"
FORM = "[SUITE/]PACKAGE[=VERSION], such as zlib or bookworm/zlib"
UNPACK_SECONDS = 600
TOOLS = {"apt-get": "apt", "dpkg-source": "dpkg-dev"}
"""Program -> the package that has it."""
_NAME = re.compile(
    r"(?:debian:)?(?:(?P<suite>[a-z][a-z0-9-]*)/)?(?P<name>[a-z0-9][a-z0-9.+-]+)(?:=(?P<version>[0-9][0-9A-Za-z.+~:-]*))?"
)
"""Names of suites, packages and versions: Debian Policy 5.6.7 and 5.6.12."""


class SourcePackage(Record, frozen=True):
    """A source package of a suite."""

    suite: str
    name: str
    version: str = ""
    """The version; empty for the suite's current one."""

    @property
    def title(self) -> str:
        """Its name as a user types it."""
        return f"{self.suite}/{self.name}" + (f"={self.version}" if self.version else "")

    @property
    def file_name(self) -> str:
        """The name and the version without its epoch, as a file's name."""
        version = re.sub(r"[^0-9A-Za-z.+~-]", "_", self.version.partition(":")[2] or self.version)
        return f"{self.name}-{version}"

    @property
    def tree_name(self) -> str:
        """The name and the authors' version, as dpkg-source names the tree. Some packages' tests read it."""
        return self.file_name.rpartition("-")[0] if "-" in self.version else self.file_name


def source_named(text: str) -> SourcePackage:
    """The source package that a word names. Raises UsageError if it names none."""
    if (found := _NAME.fullmatch(text)) is None:
        raise UsageError(f"'{text}' names no package", where="PACKAGE", remedy=FORM)
    return SourcePackage(suite=found["suite"] or DEFAULT_SUITE, name=found["name"], version=found["version"] or "")


def version_in(shown: str) -> str:
    """The version that a suite has now, as `apt-cache showsrc` shows its index; empty if it has none.

    That is the newest. A suite keeps older versions as long as an architecture has programs of them, or other packages
    were built from parts of them. apt shows the oldest first.
    """
    versions = re.findall(r"^Version: (\S+)$", shown, re.MULTILINE)
    return max(versions, key=cmp_to_key(_compared), default="")


def _compared(one: str, other: str) -> int:
    """1 if a version is newer than another, -1 if it is older, else 0, as dpkg orders them."""
    return _holds(one, "gt", other) - _holds(one, "lt", other)


def _holds(one: str, relation: str, other: str) -> bool:
    return process.run(["dpkg", "--compare-versions", one, relation, other], deadline_seconds=60).code == 0


class SourcePackages:
    """Source packages in the cache."""

    def __init__(self, cache: Cache, progress: Progress, *, offline: bool = False) -> None:
        self.cache = cache
        self.progress = progress
        self.offline = offline

    def resolve(self, package: SourcePackage) -> SourcePackage:
        """The package with the suite's current version. Raises UsageError if the suite lacks the package.

        Raises InfrastructureError without apt or dpkg-source, and if the suite's index cannot be read.
        """
        _check_tools()
        if package.version:
            return package
        shown = self._shown(package, "--only-source", offline_needs="a version")
        if not (version := version_in(shown)):
            raise UsageError(
                f"Debian {package.suite} has no source package {package.name}",
                where="PACKAGE",
                because=(shown.strip().splitlines() or ["its index does not list it"])[-1],
                remedy=f"{FORM}; `apt-cache showsrc BINARY` names the source of a binary package",
            )
        return msgspec.structs.replace(package, version=version)

    def building(self, package: SourcePackage) -> SourcePackage:
        """The package, or the source of the binary package of its name, in the same suite.

        A package with a version is a source. Raises InfrastructureError if the suite's index cannot be read.
        """
        _check_tools()
        if package.version:
            return package
        shown = self._shown(package, offline_needs="a source package and a version")
        sources = re.findall(r"^Package: (\S+)$", shown, re.MULTILINE)
        name = package.name if package.name in sources else next(iter(sources), package.name)
        return msgspec.structs.replace(package, name=name)

    def _shown(self, package: SourcePackage, *options: str, offline_needs: str) -> str:
        """What `apt-cache showsrc` says of a package's name in its suite. `offline_needs`: what a user has to name if
        the index cannot be read.
        """
        with self.cache.lock(f"apt-{package.suite}"):
            apt = self._apt(package)
            fetched = f"name {offline_needs} that was fetched before: {package.title}=VERSION"
            apt.ready_index(self.progress, offline=self.offline, remedy=fetched)
            return apt.cache("showsrc", *options, package.name).text

    def unpack(self, package: SourcePackage, into: Path) -> None:
        """Unpack a resolved package, Debian's patches applied, into a folder that does not exist yet.

        Raises InfrastructureError if the package cannot be fetched, or if dpkg-source refuses it.
        """
        _check_tools()
        fetched = self.cache.folder(
            "debian-sources", f"{package.suite}-{package.file_name}", lambda folder: self._fetch(package, folder)
        )
        (description,) = fetched.glob("*.dsc")
        process.run_successfully(
            ["dpkg-source", "--no-copy", "--extract", description, into],
            problem=f"dpkg-source does not unpack {package.title}",
            deadline_seconds=UNPACK_SECONDS,
        )

    def _fetch(self, package: SourcePackage, into: Path) -> None:
        if self.offline:
            raise InfrastructureError(
                f"the source of {package.title} is not in the cache",
                where=str(self.cache.root),
                because="--offline forbids downloads",
                remedy="run once without --offline",
            )
        words = ["source", "--download-only", "--only-source", f"{package.name}={package.version}"]
        with (
            self.progress.stage("fetch", f"fetching the source of {package.title}"),
            self.cache.lock(f"apt-{package.suite}"),
        ):
            apt = self._apt(package)
            if not apt.has_index:
                apt.update()
            if (result := apt.get(*words, folder=into)).code != 0:
                # The version in the index may have been superseded since it was read.
                apt.update()
                result = apt.get(*words, folder=into)
        if result.code != 0 or len(list(into.glob("*.dsc"))) != 1:
            raise InfrastructureError(
                f"the source of {package.title} cannot be fetched",
                because=result.text.strip(),
                remedy=f"name another suite, such as {_another(package)}; or try again later",
            )

    def _apt(self, package: SourcePackage) -> Apt:
        return Apt(self.cache.path("apt", package.suite), package.suite)


def _another(package: SourcePackage) -> str:
    """The package in another suite than the one that has just been tried."""
    suite = next(suite for suite in (DEFAULT_SUITE, "trixie") if suite != package.suite)
    return f"{suite}/{package.name}"


def _check_tools() -> None:
    lacking = [package for program, package in TOOLS.items() if shutil.which(program) is None]
    if lacking:
        raise InfrastructureError(
            f"source packages of Debian need {', '.join(lacking)}",
            because="apt-get fetches and verifies them, and dpkg-source unpacks them",
            remedy=f"apt-get install --yes --no-install-recommends {' '.join(lacking)}",
        )
