"""The sources of the pinned emulators (toolchains/qemu), and the identity that they determine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.digests import key_of, sha256_of
from harness.core.model import ArchivePlace, Record
from harness.core.strict_toml import ROOT, read_toml

if TYPE_CHECKING:
    from pathlib import Path

    from harness.build.sources.archives import Fetcher

QEMU_FOLDER = ROOT / "toolchains" / "qemu"


class Qemu(Record, frozen=True):
    """toolchains/qemu/qemu.toml."""

    version: str
    sha256: str
    python_packages: list[str]
    packages: list[str]
    libraries: list[str]
    """Packages of the libraries that the emulator is linked with, fetched to compile it for another kind of host."""
    configure: list[str]
    places: list[ArchivePlace]
    left_out: list[str]
    """Globs of folders that no emulator here is compiled from: only the files of a build system are unpacked there."""

    @property
    def archive(self) -> str:
        """The name of its source archive in the cache."""
        return f"qemu-{self.version}"


def pinned_qemu() -> Qemu:
    """The release that toolchains/qemu names."""
    return read_toml(QEMU_FOLDER / "qemu.toml", Qemu)


def unpacked_source(fetcher: Fetcher, qemu: Qemu) -> Path:
    """The release's source as it was published, without Plumbline's changes. Raises as `Fetcher.tree` does."""
    return fetcher.tree(qemu.archive, qemu.sha256, qemu.places, left_out=qemu.left_out)


def qemu_key(qemu: Qemu) -> str:
    """Content address of the emulators: source, Plumbline's changes, options."""
    return key_of([qemu.sha256, *qemu.configure, *qemu.python_packages, *qemu_changes().values()])


def qemu_changes() -> dict[str, str]:
    """Plumbline's changes: file below toolchains/qemu -> its SHA-256."""
    paths = [path for path in sorted(QEMU_FOLDER.rglob("*")) if path.suffix in {".c", ".h", ".inc", ".patch"}]
    return {path.relative_to(QEMU_FOLDER).as_posix(): sha256_of(path) for path in paths}
