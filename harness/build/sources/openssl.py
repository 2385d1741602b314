"""OpenSSL for servers with TLS: the library that Debian compiled for the target's architecture.

Debian's packages of another architecture cannot be installed beside the host's without changing its
configuration, so they are unpacked into the cache. Debian replaces them as bugs are fixed. Therefore no hash is pinned:
apt verifies their signatures, and their content is part of the identity of every server that is linked with them.
"""

from __future__ import annotations

import shutil
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING

from harness.core.cache import disk_errors
from harness.core.digests import key_of, sha256_of
from harness.core.errors import InfrastructureError, UsageError
from harness.core.model import Record

if TYPE_CHECKING:
    from harness.build.sources.archives import Fetcher
    from harness.core.target_model import Toolchain

SUITE = "bookworm"
"""The oldest Debian release with a compiler that Plumbline supports: its libraries run with every later C library. From
trixie on, 32-bit ARM has another ABI, whose time_t is 64 bits wide (the wiki's ReleaseGoals/64bit-time)."""
PACKAGES = ("libssl-dev", "libssl3")
SHARED = ("libssl.so.3", "libcrypto.so.3")
"""The libraries that a server with TLS loads."""
BESIDE_THE_SERVER = "$ORIGIN"
"""The search path of the dynamic linker for them (ld.so(8)): the server's own folder, which contains copies."""


class OpenSsl(Record, frozen=True):
    """The headers and libraries of an architecture."""

    headers: tuple[Path, ...]
    libraries: Path
    identity: str
    """Its part of a server's identity."""

    @property
    def compiler_flags(self) -> list[str]:
        """The flags that make the compiler find these headers before those installed on the host."""
        return [word for folder in self.headers for word in ("-isystem", str(folder))]

    @property
    def linker_flags(self) -> list[str]:
        """The flags that find the libraries when the server is linked, and when it runs."""
        return [f"-L{self.libraries}", f"-Wl,-rpath,{BESIDE_THE_SERVER}"]

    def put_beside(self, server: Path) -> None:
        """Copy the libraries into the folder of a server."""
        with disk_errors(server):
            for name in SHARED:
                shutil.copy2(self.libraries / name, server)


def why_none(tools: Toolchain) -> str:
    """Why there is no OpenSSL for a toolchain; empty if there is."""
    if tools.debian_architecture and tools.debian_since == SUITE:
        return ""
    if tools.is_static:
        return f"{tools.name} links its programs with another C library than Debian's OpenSSL needs"
    return f"{SUITE} has no OpenSSL for the architecture of {tools.name}"


def provide_openssl(fetcher: Fetcher, tools: Toolchain) -> OpenSsl:
    """The OpenSSL for a toolchain's programs. Raises UsageError if Debian has none, and InfrastructureError if it
    cannot be fetched.
    """
    if why := why_none(tools):
        raise UsageError(
            f"TLS is not available with {tools.name}", because=why, remedy="leave out the target or the suite"
        )
    root = fetcher.packages(SUITE, tools.debian_architecture, PACKAGES)
    found = sorted(root.glob(f"usr/lib/*/{SHARED[0]}"))
    if len(found) != 1:
        raise InfrastructureError(f"{' and '.join(PACKAGES)} of {SUITE} have no {SHARED[0]}", where=str(root))
    libraries = found[0].parent
    include = root / "usr" / "include"
    return OpenSsl(
        headers=(include, include / libraries.name),
        libraries=libraries,
        identity=key_of(sha256_of(libraries / name) for name in SHARED),
    )
