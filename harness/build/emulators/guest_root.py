"""The folder in which an emulated program finds its dynamic loader and its libraries instead of in `/`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.digests import key_of

if TYPE_CHECKING:
    from harness.core.cache import Cache
    from harness.core.target_model import Toolchain

LIBRARIES = "lib"
"""The folder of the guest's root in which Debian's dynamic loaders look for a folder named by the triple."""


def guest_root(cache: Cache, toolchain: Toolchain) -> Path:
    """A folder of links to the cross libraries, at the paths where the guest looks for them.

    Debian's dynamic loaders look in /lib/TRIPLE before /lib, and the emulator takes files that the root lacks from the
    host. If the host has libraries of the target installed, a program could load its loader from the root and its C
    library from the host. The two differ in private structures: a forked child never left fork().
    """
    libraries = {inside: Path(outside) for inside, outside in sorted(toolchain.sysroot.items())}
    names = {inside: _names_in(outside) for inside, outside in libraries.items()}

    def link(into: Path) -> None:
        for inside, outside in libraries.items():
            (into / inside).mkdir()
            for name in names[inside]:
                (into / inside / name).symlink_to(outside / name)
        if LIBRARIES in libraries:
            (into / LIBRARIES / toolchain.triple).symlink_to(libraries[LIBRARIES])

    # A package that is installed later adds names.
    parts = [word for inside, outside in libraries.items() for word in (f"{inside}={outside}", *names[inside])]
    return cache.folder("guest-roots", f"{toolchain.name}-{key_of([toolchain.triple, *parts])}", link)


def _names_in(folder: Path) -> list[str]:
    """The names in a folder; none if it does not exist, as without the toolchain's packages."""
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
