"""The blocks that one process executes, by its phase: start, service, end."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from harness.record.executed_blocks.block_map import MAIN, BlockMap

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.executed_blocks.block_map import Block, ProgramCode


class Executed(NamedTuple):
    """Blocks of a program."""

    serving: set[Block]
    """Code that its first thread executed while it served."""
    beside: set[Block]
    """Meanwhile, by its other threads and its children."""
    apart: set[Block]
    """Code that its first thread executed while it started or ended."""
    beside_apart: set[Block]
    """Meanwhile, by its other threads and its children."""


class ProcessBlocks:
    """One process under the plugin, with its threads and children."""

    def __init__(self, plugin: Path, program: Path, path: Path, code: ProgramCode, *, counts_start: bool) -> None:
        """`plugin`: the plugin for the emulator to load. `path`: the map's file while the process runs. `counts_start`:
        its start is a part of its service, as when it reads the files that a test gave it.
        """
        self.code = code
        self._map = BlockMap(path, code)
        self.plugin = f"{plugin},map={path},of={program}"
        """The plugin that the emulator loads for the process."""
        self._serves = counts_start
        self._noted = Executed(set(), set(), set(), set())
        self._began = self._closed = False

    def ready(self) -> None:
        """It has started, and serves from now on."""
        self._note()
        self._serves = True

    def stopping(self) -> None:
        """It is about to be stopped, or has ended."""
        self._note()
        self._serves = False

    def take(self) -> Executed:
        """The blocks that were executed since the last call."""
        self._note()
        taken, self._noted = self._noted, Executed(set(), set(), set(), set())
        return taken

    def served_addresses(self) -> frozenset[int]:
        """The addresses of its program that it executed while it served, since the last call."""
        taken = self.take()
        return self.code.addresses(chain(taken.serving, taken.beside))

    @property
    def problem(self) -> str:
        """Why blocks may be missing so far; empty if there is no sign of it."""
        if not self._began:
            return "a program executed nothing"
        return f"a program has more than {self.code.places} blocks" if self._map.is_full else ""

    def close(self) -> None:
        """Release the memory. The process may still run, but is no longer recorded."""
        self._map.close()
        self._closed = True

    def _note(self) -> None:
        if self._closed:
            return
        noted, taken = self._noted, self._map.take("first")
        (noted.serving if self._serves else noted.apart).update(taken)
        (noted.beside if self._serves else noted.beside_apart).update(self._map.take("others"))
        self._began = self._began or MAIN in self.code.names_in(taken)
