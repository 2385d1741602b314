"""A shell with its tools and a server of ssh, for the root file system of an emulated machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.build import initramfs, toolchain
from harness.build.sources.debian_source import SourcePackage, SourcePackages
from harness.core.digests import key_of
from harness.core.processes import process
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from collections.abc import Mapping

SUITE = "bookworm"
PACKAGED = {"armv5": ("armel", "arm-linux-gnueabi")}
"""Targets of whose architecture Debian 12 has packages, and its names."""
PACKAGES = ["busybox-static", "dropbear-bin", "libcrypt1", "libgmp10", "libtomcrypt1", "libtommath1", "zlib1g"]
LIBRARIES = ("lib", "usr/lib")
SOURCES = ("busybox", "dropbear")
COMPILE_SECONDS = 1200
SCRIPT = """\
set -eu
cd "$1"
# Nobody logs in with a password, so that the server needs no library for one.
printf '#define DROPBEAR_SVR_PASSWORD_AUTH 0\\n' >dropbear/localoptions.h
(
    cd dropbear
    ./configure --host="$2" --disable-zlib --enable-bundled-libtom --enable-static --disable-pam --disable-lastlog \\
        --disable-utmp --disable-utmpx --disable-wtmp --disable-wtmpx
    make -j"$(nproc)" PROGRAMS='dropbear dropbearkey'
)
cp busybox/debian/config/pkg/static busybox/.config
yes '' 2>/dev/null | make -C busybox oldconfig
make -j"$(nproc)" -C busybox CROSS_COMPILE="$2-" busybox_unstripped
cp dropbear/dropbear dropbear/dropbearkey "$3"
cp busybox/busybox_unstripped "$3/busybox"
"""
"""Compiles both without shared libraries."""


def of(target: str) -> Mapping[str, Path]:
    """Place there -> file here."""
    return _packaged(target, *PACKAGED[target]) if target in PACKAGED else _compiled(target)


def _packaged(target: str, architecture: str, triple: str) -> Mapping[str, Path]:
    root = machines.quiet_workbench().fetcher.packages(SUITE, architecture, PACKAGES)
    tools = machines.toolchain_of(target)
    folders = {f"{place}/{triple}": str(root / place / triple) for place in LIBRARIES}
    mine = msgspec.structs.replace(tools, sysroot=tools.sysroot | folders)
    linked = {"/bin/dropbear": root / "usr/sbin/dropbear", "/bin/dropbearkey": root / "usr/bin/dropbearkey"}
    return {**initramfs.with_libraries(linked, mine), "/bin/busybox": root / "bin/busybox"}


def _compiled(target: str) -> Mapping[str, Path]:
    bench = machines.quiet_workbench()
    tools = machines.toolchain_of(target)
    sources = SourcePackages(bench.cache, bench.progress)
    packages = [sources.resolve(SourcePackage(suite=SUITE, name=name, version="")) for name in SOURCES]

    def compile_both(into: Path) -> None:
        with tempfile.TemporaryDirectory(dir=into) as folder:
            for package in packages:
                sources.unpack(package, Path(folder, package.name))
            process.run_successfully(
                ["sh", "-c", SCRIPT, "sh", folder, tools.triple, str(into)],
                problem="a shell and a server of ssh do not compile",
                deadline_seconds=COMPILE_SECONDS,
            )

    key = key_of([SCRIPT, toolchain.identity(tools), *(package.title for package in packages)])
    folder = bench.cache.folder("test-programs", f"ssh-{target}-{key}", compile_both)
    return {f"/bin/{name}": folder / name for name in ("busybox", "dropbear", "dropbearkey")}
