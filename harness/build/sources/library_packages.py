"""Libraries of a target as Debian ships them: packages and everything that they need, unpacked into a root folder.

Programs are compiled with the cross compiler and run with that root, so its C library must be of the suite that the
compiler is of. apt proves each file by the suite's signed index.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from harness.build.sources.closed_root import close_root
from harness.build.sources.debian_archive import Apt, unpack_packages
from harness.build.sources.server_package import debian_architecture
from harness.core.digests import key_of
from harness.core.errors import InfrastructureError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.cache import Cache
    from harness.core.progress import Progress
    from harness.core.target_model import Target, Toolchain

SUITE = "bookworm"
RUNTIME = ("libatomic1", "libc6", "libgcc-s1", "libstdc++6")
"""The libraries that a compiler links programs with unasked: the root folder replaces the compiler's."""
_NAME = re.compile(r"[a-z0-9][a-z0-9.+-]+")
"""Debian Policy 5.6.7."""


def library_root(
    cache: Cache, progress: Progress, toolchain: Toolchain, target: Target, names: Sequence[str], *, offline: bool
) -> Path:
    """The root folder with packages of a target's architecture, from the cache or from Debian's archive.

    Raises UsageError for a target that Debian has no packages for, and for a package that the suite lacks;
    InfrastructureError without apt or the network.
    """
    wanted = sorted({*names})
    if odd := next((name for name in wanted if not _NAME.fullmatch(name)), ""):
        raise UsageError(f"'{odd}' names no package", where="--with", remedy="name one of Debian, such as zlib1g-dev")
    architecture = debian_architecture(toolchain, target)

    def unpack(into: Path) -> None:
        what = f"{' and '.join(wanted)} of {SUITE} for {architecture}"
        if offline:
            raise InfrastructureError(
                f"the cache does not contain {what}",
                where=str(cache.root),
                because="--offline forbids downloads",
                remedy="run once without --offline",
            )
        downloads = into / "downloads"
        downloads.mkdir()
        with progress.stage("fetch", f"fetching {what}, with what they need"):
            with cache.lock(f"apt-{SUITE}-{architecture}"):
                apt = Apt(cache.path("apt", f"{SUITE}-{architecture}"), SUITE, architecture)
                result = apt.fetch_with_dependencies([*wanted, *RUNTIME], downloads)
            files = sorted(downloads.glob("*.deb"))
            if result.code != 0 or not files:
                raise UsageError(
                    f"Debian {SUITE} cannot give {' and '.join(wanted)} for {architecture}",
                    where="--with",
                    because=(result.text.strip().splitlines() or ["apt-get names no file"])[-1],
                    remedy="apt-cache search --names-only '^lib.*-dev$' lists the names of libraries",
                )
            root = into / ROOT_FOLDER
            root.mkdir()
            unpack_packages(files, root)
        shutil.rmtree(downloads)
        close_root(root)

    return cache.folder("packages", f"{SUITE}-{architecture}-with-{key_of([*wanted, *RUNTIME])}", unpack) / ROOT_FOLDER


ROOT_FOLDER = "root"
"""In the packages' folder of the cache: their content."""
