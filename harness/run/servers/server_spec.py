"""What a guest runs: a build, and with which options and files it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

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
    """How clients and the proxy reach it. In a machine, it is always TCP."""
    coverage: bool = False
    """Whether it records the edges of its code that it takes, where its emulator supports this."""
    tests_memory: bool = True
    """Whether it does everything that its release does when it crashes, even if that takes most of its lifetime."""
    patience_seconds: float | None = None
    """As in CellSpec."""
    fatal_faults: Path | None = None
    """The file in which servers record the misaligned accesses of which they died, after their own report. A server
    that makes such an access again dies without a report.
    """
