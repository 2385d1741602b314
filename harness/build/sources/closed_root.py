"""Makes a root folder of unpacked packages, in which the guest finds all its files and none of the host's.

An emulator takes files that the root lacks from the host, and so does a dynamic loader that runs natively. The server
would then run with libraries that its users do not have.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from harness.build.dynamic_links import links_of
from harness.core.errors import InfrastructureError

if TYPE_CHECKING:
    from harness.core.target_model import Target

MERGED = ("bin", "lib", "lib64", "sbin")
"""The folders that are links into /usr on a merged system (Debian from bookworm on, package usrmerge)."""
LOADER_CACHE = Path("etc") / "ld.so.cache"
"""The dynamic loader's list of libraries (ld.so(8)). If it is empty, the loader searches the folders."""


def close_root(root: Path) -> None:
    """Make unpacked packages their own root folder, with a merged /usr and with no link that leads out of it.

    Packages may have libraries below /lib and /usr/lib. The loader looks in /lib first, where the host may have
    other versions of the libraries below /usr/lib.
    """
    for name in MERGED:
        _merge(root, name)
    close_links(root, root)
    empty_loader_cache(root)


def close_links(root: Path, below: Path) -> None:
    """Make links below a folder of a root folder lead to what they mean in that root."""
    for folder, folders, files in os.walk(below):
        for name in (*folders, *files):
            path = Path(folder) / name
            if path.is_symlink() and (to := path.readlink()).is_absolute():
                path.unlink()
                path.symlink_to(os.path.relpath(root / to.relative_to("/"), path.parent))


def empty_loader_cache(root: Path) -> None:
    """Keep the dynamic loader from the host's list of libraries."""
    (root / LOADER_CACHE).parent.mkdir(exist_ok=True)
    (root / LOADER_CACHE).write_bytes(b"")


def _merge(root: Path, name: str) -> None:
    """Move the content of a top folder below /usr, and put a link in its place."""
    own, merged = root / name, root / "usr" / name
    if own.is_dir() and not own.is_symlink():
        for folder, folders, files in os.walk(own):
            into = merged / Path(folder).relative_to(own)
            into.mkdir(parents=True, exist_ok=True)
            linked = [one for one in folders if (Path(folder) / one).is_symlink()]
            for file in (*files, *linked):
                (Path(folder) / file).rename(into / file)
        for folder, _, _ in os.walk(own, topdown=False):
            Path(folder).rmdir()
    if merged.is_dir() and not own.exists():
        own.symlink_to(f"usr/{name}")


def refuse_incomplete(root: Path, program: Path, target: Target) -> None:
    """Raise InfrastructureError for a program that is not of a target, or that needs a file which the root lacks."""
    kept = root.resolve()
    folders = [*sorted((root / "usr" / "lib").glob("*-linux-gnu*")), root / "usr" / "lib"]
    waiting, seen = [program], {program.name}
    while waiting:
        file = waiting.pop()
        links = links_of(file)
        if (links.width_bits, links.endianness) != (target.width_bits, target.endianness):
            raise InfrastructureError(
                f"not a program of {target.name}",
                where=str(file),
                because=f"it has {links.width_bits} bits and is {links.endianness}-endian",
            )
        wanted = {name: [folder / name for folder in folders] for name in links.libraries}
        if links.interpreter:
            wanted[links.interpreter] = [root / PurePosixPath(links.interpreter).relative_to("/")]
        for name, places in wanted.items():
            found = [place for place in places if place.is_file() and place.resolve().is_relative_to(kept)]
            if not found:
                raise InfrastructureError(
                    f"the packages do not contain {name}",
                    where=str(root),
                    because=f"{file.name} needs it, and would use the host's",
                )
            if name not in seen:
                seen.add(name)
                waiting.append(found[0])
