"""Builds the kernel tier's root file system, an archive of exactly the files that a run needs, and the guest's init.

The archive has the kernel's `newc` format (Linux Documentation/driver-api/early-userspace/buffer-format.rst). It
contains no times, owners or inode numbers of the host, so equal contents give identical archives.
"""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from harness.build import toolchain
from harness.build.dynamic_links import links_of
from harness.build.helper_program import compiled
from harness.core.digests import key_of, refuse_edited, sha256_of
from harness.core.errors import InfrastructureError
from harness.core.model import Record
from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.core.cache import Cache
    from harness.core.target_model import Toolchain

INIT_FOLDER = ROOT / "toolchains" / "kernels" / "init"
INIT_FLAGS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-D_FILE_OFFSET_BITS=64", "-static"]
CONSOLE_DEVICE = (5, 1)
"""Major and minor number of /dev/console, which the kernel opens for init before anything is mounted."""
SHARE = 0.6
"""The largest share of a machine's memory that the archive may take: while it is unpacked, it is in memory twice."""


class Initramfs(Record, frozen=True):
    """An archive in the cache."""

    key: str
    archive: Path
    places: dict[str, Path]
    """Path in the guest -> the host file that was copied there."""


def compile_init(cache: Cache, tools: Toolchain) -> Path:
    """Compile the guest's process 1 for a toolchain's machines. Raises InfrastructureError when it does not compile."""
    return compiled(
        cache,
        tools,
        title=f"the guest's init for {tools.name}",
        kind="inits",
        owner=tools.name,
        file="init",
        flags=INIT_FLAGS,
        sources=sorted(INIT_FOLDER.glob("*.c")),
        headers=sorted(INIT_FOLDER.glob("*.h")),
    )


def with_libraries(programs: Mapping[str, Path], tools: Toolchain) -> dict[str, Path]:
    """Guest path -> host file for programs and the libraries in their dynamic sections, from the toolchain's sysroot.

    Raises InfrastructureError for a library that the sysroot lacks, and for two files at one place.
    """
    places: dict[str, Path] = {}
    waiting = [(inside, path.resolve()) for inside, path in programs.items()]
    for path in programs.values():
        links = links_of(path)
        if links.libraries:
            # No section names it: libc loads it on demand when a thread is cancelled, as a crash handler does.
            with contextlib.suppress(InfrastructureError):
                waiting.append(_library("libgcc_s.so.1", links.width_bits, tools, path))
    while waiting:
        inside, path = waiting.pop()
        if inside in places:
            if places[inside] != path:
                raise InfrastructureError(
                    f"two files for one place in the guest: {inside}", because=f"{places[inside]} and {path}"
                )
            continue
        places[inside] = path
        links = links_of(path)
        if links.interpreter:
            waiting.append((links.interpreter, _in_sysroot(PurePosixPath(links.interpreter), tools, path)))
        waiting += [_library(name, links.width_bits, tools, path) for name in links.libraries]
    return places


def _in_sysroot(inside: PurePosixPath, tools: Toolchain, wanted_by: Path) -> Path:
    outside = tools.sysroot.get(str(inside.parent).lstrip("/"))
    if outside is None or not (Path(outside) / inside.name).exists():
        raise InfrastructureError(
            f"the toolchain {tools.name} has no {inside}",
            because=f"{wanted_by.name} needs it",
            remedy=toolchain.install_command(tools.packages),
        )
    return (Path(outside) / inside.name).resolve()


def _library(name: str, bits: int, tools: Toolchain, wanted_by: Path) -> tuple[str, Path]:
    for inside, outside in tools.sysroot.items():
        path = Path(outside) / name
        if path.exists() and links_of(path).width_bits == bits:
            return f"/{inside}/{name}", path.resolve()
    raise InfrastructureError(
        f"the toolchain {tools.name} has no {name}",
        because=f"{wanted_by.name} needs it",
        remedy=toolchain.install_command(tools.packages),
    )


def assemble(cache: Cache, init: Path, places: Mapping[str, Path], *, memory_bytes: int) -> Initramfs:
    """The archive of init and the files at their places.

    Raises InfrastructureError when it is too large for the machine's memory.
    """
    everything = {"/init": init, **places}
    size = sum(path.stat().st_size for path in everything.values())
    if size > memory_bytes * SHARE:
        largest = max(everything.values(), key=lambda path: path.stat().st_size)
        raise InfrastructureError(
            f"the root file system is too large for the machine: {size >> 20} MiB of {memory_bytes >> 20}",
            because=f"the largest file is {largest} of {largest.stat().st_size >> 20} MiB",
            remedy="raise memory_mib in toolchains/kernels/MACHINE.toml, or reduce the debug information",
        )
    key = key_of(_identity(everything))
    folder = cache.folder("initramfs", key, lambda into: _write(into / "initramfs.cpio", everything, key))
    return Initramfs(key=key, archive=folder / "initramfs.cpio", places=dict(places))


def _identity(everything: Mapping[str, Path]) -> list[str]:
    return [f"{inside}={sha256_of(path)}" for inside, path in sorted(everything.items())]


def _write(archive: Path, everything: Mapping[str, Path], key: str) -> None:
    archive.write_bytes(cpio({inside: path.read_bytes() for inside, path in everything.items()}))
    refuse_edited(key_of(_identity(everything)), key, str(archive))


def cpio(files: Mapping[str, bytes]) -> bytes:
    """A newc archive of files by absolute path, all executable, with their folders and /dev/console."""
    paths = [PurePosixPath(inside.lstrip("/")) for inside in files]
    folders = sorted({"dev", *(str(parent) for path in paths for parent in path.parents)} - {"."})
    entries: dict[str, tuple[int, tuple[int, int], bytes]] = dict.fromkeys(folders, (stat.S_IFDIR | 0o755, (0, 0), b""))
    entries["dev/console"] = (stat.S_IFCHR | 0o600, CONSOLE_DEVICE, b"")
    entries.update({inside.lstrip("/"): (stat.S_IFREG | 0o755, (0, 0), data) for inside, data in files.items()})
    # Sorting puts a folder before its contents.
    records = [_record(number, name, *entries[name]) for number, name in enumerate(sorted(entries), start=1)]
    return b"".join([*records, _record(0, "TRAILER!!!", 0, (0, 0), b"")])


def _record(number: int, name: str, mode: int, device: tuple[int, int], data: bytes) -> bytes:
    encoded = name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    # Inode, mode, owner, group, links, time, size, device of the file system, device, name's length, check sum.
    fields = (number, mode, 0, 0, links, 0, len(data), 0, 0, *device, len(encoded), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    """Pad to a multiple of four bytes, as the format requires for names and contents."""
    return data + bytes(-len(data) % 4)
