"""The records of runs about their cells, as the cache keeps them for later runs of changed trees."""

from __future__ import annotations

import gzip
from functools import cached_property, partial
from typing import TYPE_CHECKING

import msgspec

from harness.build import toolchain
from harness.build.sources import tree_files
from harness.core import json_codec
from harness.core.digests import key_of
from harness.core.strict_toml import OWN_FOLDERS
from harness.core.target_model import ORACLE
from harness.workflows.preparation.reach.reached_tests import KeptReach
from harness.workflows.target_setup import oracle_setup

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.core.model import Cell
    from harness.judge.conclusion import KnownLists
    from harness.judge.known.known_list import KnownFinding
    from harness.workflows.preparation.reach.changed_run import ChangedRun

KIND = "reach"
"""The kind of the cache's entries: one for each cell of a run in which all of its tests ran."""
NAME = "cell.json.gz"


class ReachStore:
    """The records that earlier runs kept of this run's cells, and those that this run keeps."""

    def __init__(self, run: ChangedRun, known: KnownLists, cells: Iterable[Cell]) -> None:
        """`cells`: those of which a record may be kept. The files on which their outcome depends are read now."""
        self._run = run
        self._known = known
        self._keys = {cell: f"{cell.target}-{cell.suite}-{key_of(self._identity(cell))}" for cell in cells}

    def newest(self, cell: Cell) -> KeptReach | None:
        """The record of the newest run with such a cell, of the same checkout if possible."""
        folder, key = self._run.bench.cache.path(KIND, ""), self._keys[cell]
        own = [path for path in folder.glob(f"{key}-{self._checkout}-*") if path.is_dir()]
        found = own or [path for path in folder.glob(f"{key}-*") if path.is_dir()]
        for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)[:1]:
            entry = self._run.bench.cache.entry(KIND, path.name)
            if entry is not None:
                return json_codec.decode(gzip.decompress((entry / NAME).read_bytes()), KeptReach)
        return None

    def keep(self, cell: Cell, kept: KeptReach) -> None:
        """Keep this run's record of a cell."""
        content = gzip.compress(json_codec.encode(kept), 6, mtime=0)
        key = f"{self._keys[cell]}-{self._checkout}-{self._run.prepared.tree.digest[:16]}"
        self._run.bench.cache.folder(KIND, key, partial(_write, content))

    def _identity(self, cell: Cell) -> list[str]:
        """Everything on which a test's outcome depends, apart from the server's code."""
        request, target, tree = self._run.request, self._run.prepared.built[cell.target], self._run.prepared.tree
        units = target.units.get("units") if self._run.suite(cell).program else None
        return [
            *self._own_code,
            tree.family,
            repr((tree.version, tree.abilities, tree.development)),
            # Emulator, policy, environment, and the target's data in the catalog.
            json_codec.encode(target.runner).decode(),
            target.runner.emulator_digest,
            *(toolchain.identity(tools) for tools in (target.setup.toolchain, oracle_setup(self._run.bench).toolchain)),
            *map(str, (request.optimisation, request.allocator, request.io, request.seed, request.tier)),
            *request.settings.words,
            # Only the execution of lines that differ from the base was recorded.
            self._run.base.content,
            # A failure that was known then must still be known.
            *(repr(_at(entry, cell.target)) for entry in self._known.in_force),
            *([repr((units.absent, units.broken))] if units is not None else []),
        ]

    @cached_property
    def _checkout(self) -> str:
        """The path of the tree, as a part of the names of kept cells."""
        return key_of([self._run.request.server])[:8]

    @cached_property
    def _own_code(self) -> list[str]:
        return [tree_files.digest_of(folder) for folder in OWN_FOLDERS]


def _at(entry: KnownFinding, target: str) -> KnownFinding:
    """The part of a known list's entry that concerns a target's cells, independently of the run's other targets."""
    return msgspec.structs.replace(entry, targets=[name for name in entry.targets if name in {target, ORACLE}])


def _write(content: bytes, into: Path) -> None:
    (into / NAME).write_bytes(content)
