"""Caches in which makefiles can build. Those of servers, QEMU and Linux quote no path: some characters would split it,
or end it.

Plumbline's own folders may have any names. This module refuses a cache in which no build can succeed, so that the
failure is not the server's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.core.errors import InfrastructureError

if TYPE_CHECKING:
    from pathlib import Path

_UNQUOTED = re.compile(r"[^\w.,/@%+=~-]")
"""Linux' makefile and QEMU's configure script refuse spaces and colons (linux/Makefile, qemu/configure). The others
mean something to make or to a shell.
"""


def refuse_odd(folder: Path) -> None:
    """Raise InfrastructureError if makefiles cannot build in this folder of the cache."""
    if found := "".join(sorted(set(_UNQUOTED.findall(str(folder))))):
        raise InfrastructureError(
            "makefiles cannot build in this cache",
            where=str(folder),
            because=f"its path has characters that they do not quote: {found!r}",
            remedy="PLUMBLINE_CACHE=FOLDER, whose path has only letters, digits and . , _ - + = @ % ~",
        )
