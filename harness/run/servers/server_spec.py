"""What a guest runs: a build, and with which options and files it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.model import Build, Transport


class ServerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A server that can be started."""

    build: Build
    version: tuple[int, ...]
    options: Sequence[str] = ()
    """Added to its command line, as `--io-threads 2`; a configuration file may come first."""
    files: Mapping[str, bytes] = {}
    """Name -> content, of those in its working folder when it starts, as dump.rdb."""
    io: Transport = "unix"
    """By what clients, and the proxy, reach it. In a machine it is always TCP."""
    coverage: bool = False
    """Whether it records the edges of its code that it takes, where its emulator supports this."""
