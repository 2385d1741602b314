"""What a cell's test process is told: everything it needs, in one file, so that a cell can be run again by hand."""

from __future__ import annotations

import fnmatch
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it decodes
from typing import TYPE_CHECKING

import msgspec

from harness.build.qemu_user import Runner  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.build.unit_drivers import Units  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.core import json_codec
from harness.core.model import Abilities, Build, Record, Tier
from harness.run.vm.guest import VmImage  # noqa: TC001 - msgspec reads the annotations when it decodes

if TYPE_CHECKING:
    from collections.abc import Sequence

LARGEST_SEED = 2**32 - 1
"""A seed is a number from 0 to this: what every generator of ours takes, Tcl's included."""


class PeerServer(Record, frozen=True):
    """Another target of the same run: what a cell needs to start its server too."""

    runner: Runner
    build: Build
    module: Path | None = None
    """The module of ours, where the suite's servers load it; None also where the server is too old."""
    selftests: Units | None = None
    """The server's own, there; None where no suite of the run has them."""


class CellSpec(Record, frozen=True):
    """One cell, prepared: builds made, emulator there."""

    suite: str
    folder: Path
    shared: Path
    """A folder that all cells of the run have in common: what one wrote, others read."""
    sockets: Path
    """A folder with a short name: a Unix socket's path has at most 107 bytes (unix(7)), and run folders can be deep."""
    runner: Runner
    version: tuple[int, ...]
    build: Build | None
    canary: Path | None
    seed: int
    tier: Tier
    detector_canary: Path | None = None
    """None where the target has no detector."""
    peers: dict[str, PeerServer] = msgspec.field(default_factory=dict)
    """Target -> the same server there: the run's targets, and `native`, which is the oracle."""
    units: Units | None = None
    """None where the suite has none."""
    module: Path | None = None
    """As of a peer, for its own target."""
    machine: VmImage | None = None
    """Of the kernel tier: the emulated computer."""
    coverage: bool = False
    """Whether the guest tells which edges of its code it takes, where its emulator can."""
    tests: list[str] = msgspec.field(default_factory=list)
    """Parts of names, or globs: only the tests that one of them fits are run; none: all."""
    limit_seconds: float | None = None
    """How long a suite that can go on for ever should; None: as long as its tier says."""
    limit_count: int | None = None
    """How many examples such a suite should try; None: as many as its tier says."""
    corpus: Path | None = None
    """Where such a suite keeps what it learns, and finds it again; None: nowhere."""

    development: bool = False
    """Whether its server's tree lies between two releases: `version` is the one that it is taken for."""

    @property
    def abilities(self) -> Abilities:
        """What the source says that the server can do; nothing where the suite runs none."""
        return self.build.abilities if self.build is not None else Abilities()


def fits(test: str, wanted: Sequence[str]) -> bool:
    """Whether a test is wanted: one of the words stands in its name, or fits it as a glob. No words want all."""
    return not wanted or any(word in test or fnmatch.fnmatchcase(test, word) for word in wanted)


def write_cell(path: Path, cell: CellSpec) -> None:
    """Write it as JSON."""
    path.write_bytes(json_codec.pretty(cell))


def read_cell(path: Path) -> CellSpec:
    """Read what `write_cell` wrote."""
    return json_codec.decode(path.read_bytes(), CellSpec)
