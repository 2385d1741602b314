"""Debian's archive by apt: the index of one suite, with private lists and cache, without touching /etc or dpkg's state.

The machine's own configuration names the archive's host and keys: no address is written here.
"""

from __future__ import annotations

import platform
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import InfrastructureError
from harness.core.processes import environment, process

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.progress import Progress

DOWNLOAD_SECONDS = 900
UNPACKER = "/usr/lib/apt/apt-helper"
"""apt's own reader of its compressed lists (apt-helper(1) is not on PATH)."""
RETRIES = 3
UNSIGNED = (
    "APT::Get::AllowUnauthenticated",
    "Acquire::AllowInsecureRepositories",
    "Acquire::AllowDowngradeToInsecureRepositories",
    "Acquire::AllowWeakRepositories",
)
"""apt's options that accept packages without a signature that proves them (apt.conf(5), apt-secure(8))."""
INDEX_SECONDS = 6 * 3600.0
"""The age beyond which an index is read again before a package without a version is looked up."""
DEBIAN_TEMPLATE = Path("/usr/share/python-apt/templates/Debian.info")
"""The Debian archive's description on other distributions (package python-apt-common)."""
DEBIAN_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""The keys that sign the Debian archive (package debian-archive-keyring)."""


class Apt:
    """apt for one suite of Debian, and one architecture; it sees no package as installed."""

    def __init__(self, root: Path, suite: str, architecture: str = "") -> None:
        """`root`: a folder for apt's data. Without an architecture it reads source packages."""
        self.root = root
        self.suite = suite
        self.architecture = architecture

    @property
    def has_index(self) -> bool:
        """Whether the suite's index was read before."""
        return any((self.root / "lists").glob("*_Packages*" if self.architecture else "*_Sources*"))

    @property
    def index_age_seconds(self) -> float:
        """The age of the suite's index in seconds; infinite if it was never read, or is from the future."""
        marker = self.root / "updated"
        age = time.time() - marker.stat().st_mtime if marker.exists() else -1.0
        return age if age >= 0 else float("inf")

    def ready_index(self, progress: Progress, *, offline: bool, remedy: str) -> None:
        """Read the suite's index, unless a recent one is stored; offline, any stored one is enough.

        Raises InfrastructureError if it cannot be read. `remedy`: the remedy if it may not be downloaded.
        """
        if not self.has_index and offline:
            raise InfrastructureError(
                f"the cache has no index of {self.suite}", because="--offline forbids downloads", remedy=remedy
            )
        if not offline and self.index_age_seconds > INDEX_SECONDS:
            reader = f" for {self.architecture}" if self.architecture else ""
            with progress.stage("fetch", f"reading the index of Debian {self.suite}{reader}"):
                self.update()

    def update(self) -> None:
        """Read the suite's index. Raises InfrastructureError."""
        updated = self.get("update")
        if updated.code != 0:
            raise InfrastructureError(f"the index of {self.suite} cannot be read", because=updated.text.strip())
        (self.root / "updated").touch()

    def get(self, *words: str, folder: Path | None = None) -> process.Result:
        """Run apt-get with these words, in a folder."""
        return self._run("apt-get", "-qq", *words, folder=folder)

    def fetch_with_dependencies(self, wanted: Sequence[str], downloads: Path) -> process.Result:
        """Download packages and all that they need into an empty folder. The result is apt's."""
        words = ["-o", f"Dir::Cache::archives={downloads}", "--yes", "--download-only", "install", *wanted]
        (downloads / "partial").mkdir()
        if not self.has_index:
            self.update()
        if (result := self.get(*words)).code != 0:
            # The index may have been superseded since it was read: two versions of a library would mix.
            for file in downloads.glob("*.deb"):
                file.unlink()
            self.update()
            result = self.get(*words)
        return result

    def index(self, into: Path) -> str:
        """The text of the suite's index, which has been read. `into`: a file for it.

        Raises InfrastructureError if apt does not unpack it.
        """
        files = sorted((self.root / "lists").glob("*_Packages*" if self.architecture else "*_Sources*"))
        process.run_successfully(
            # Its output is too long to be kept in memory together with that of the command.
            ["/bin/sh", "-c", 'exec "$@" >"$0"', into, UNPACKER, "cat-file", *files],
            problem=f"the index of {self.suite} cannot be unpacked",
            deadline_seconds=DOWNLOAD_SECONDS,
        )
        return into.read_text("utf-8")

    def cache(self, *words: str) -> process.Result:
        """Run apt-cache with these words."""
        return self._run("apt-cache", *words)

    def _run(self, program: str, *words: str, folder: Path | None = None) -> process.Result:
        return process.run(
            [program, *self._options(), *words],
            deadline_seconds=DOWNLOAD_SECONDS,
            folder=folder,
            environment=environment.for_registry(),
        )

    def _options(self) -> list[str]:
        root = self.root
        for folder in ("lists/partial", "cache/archives/partial"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        address, signed_by = _debian_archive()
        keyring = f" [signed-by={signed_by}]" if signed_by else ""
        kind = "deb" if self.architecture else "deb-src"
        (root / "sources.list").write_text(f"{kind}{keyring} {address} {self.suite} main\n", "utf-8")
        settings: dict[str, object] = {
            "Dir::Etc::sourcelist": root / "sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": root / "lists",
            "Dir::Cache": root / "cache",
            "Acquire::Languages": "none",
            "Acquire::Retries": RETRIES,
            # Otherwise an index that could not be refreshed counts as read.
            "APT::Update::Error-Mode": "any",
            # Without this option apt warns, as root, that user _apt cannot write here.
            "APT::Sandbox::User": "root",
        }
        if self.architecture:
            # Nothing else verifies a binary package. The machine's own configuration may allow unsigned indexes.
            settings |= dict.fromkeys(UNSIGNED, "false")
            status = root / "status"
            status.touch()
            settings |= {
                "Dir::State::status": status,
                "APT::Architecture": self.architecture,
                "APT::Architectures": self.architecture,
                "APT::Install-Recommends": "false",
            }
        return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]


def unpack_packages(files: Iterable[Path], into: Path) -> None:
    """Unpack packages beside each other, without running their scripts. Raises InfrastructureError."""
    for file in files:
        process.run_successfully(
            ["dpkg-deb", "--extract", file, into],
            problem=f"{file.name} cannot be unpacked",
            deadline_seconds=DOWNLOAD_SECONDS,
        )


def packages_for_sources() -> list[str]:
    """Additional packages with which a machine without Debian reads Debian's archive: its address and its keys."""
    return [] if _is_debian() else ["debian-archive-keyring", "python-apt-common"]


def _is_debian() -> bool:
    try:
        return platform.freedesktop_os_release().get("ID") == "debian"
    except OSError:
        return True


def _debian_archive() -> tuple[str, str]:
    """Address and keyring of the Debian archive: from the host's configuration, otherwise from python-apt's."""
    result = process.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)|$(CODENAME)|$(COMPONENT)|$(SIGNED_BY)"],
        deadline_seconds=60,
        environment=environment.for_registry(),
    )
    for line in result.text.splitlines():
        fields = line.split("|")
        if len(fields) == 4 and fields[2] == "main" and "-" not in fields[1] and "debian" in fields[0]:
            signed_by = fields[3] if "/" in fields[3] else ""
            return fields[0], signed_by
    # Without lists, as in a container whose image has none, apt lists what it would download for its sources.
    planned = process.run(
        ["apt-get", "update", "--print-uris"], deadline_seconds=60, environment=environment.for_registry()
    )
    if found := re.search(r"^'(\S*debian\S*)/dists/\w+/InRelease'", planned.text, re.MULTILINE):
        return found[1], str(DEBIAN_KEYRING) if DEBIAN_KEYRING.is_file() else ""
    template = DEBIAN_TEMPLATE.read_text("utf-8") if DEBIAN_TEMPLATE.is_file() else ""
    if found := re.search(r"^BaseURI: *(\S+)", template, re.MULTILINE):
        return found[1], str(DEBIAN_KEYRING)
    raise InfrastructureError(
        "apt on the host has no Debian archive",
        because=result.text.strip() or "neither apt-get indextargets nor apt-get update --print-uris names it",
        remedy="plumb doctor --install; for a server alone, --server PATH takes any source tree that you have",
    )
