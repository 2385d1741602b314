"""Tells the cells of a target at which commands servers of the others hung.

Each cell waits to the time limit before it knows that a command never returns. Of a build whose SETs hang, all cells
would wait so. What two other cells have seen, a cell believes.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.model import Record

if TYPE_CHECKING:
    from pathlib import Path

CELLS = 2
"""In how many other cells servers must have hung at a command. One may do what no other does, and on a busy machine one
may be bad luck."""


class _Hang(Record, frozen=True):
    """A line of the ledger: a server hung."""

    suite: str
    command: str
    test: str


class HangLedger:
    """A file to which the cells of one target add lines while they run."""

    def __init__(self, path: Path, suite: str) -> None:
        """`suite` is that of the cell that asks."""
        self._path = path
        self._suite = suite

    def add(self, command: str, test: str) -> None:
        """Record that a server hung at a command in a test of this cell. The ledger only saves time: a line that cannot
        be written is lost.
        """
        line = json_codec.encode(_Hang(suite=self._suite, command=command, test=test)) + b"\n"
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab", buffering=0) as stream:
                stream.write(line)

    def of_others(self) -> dict[str, tuple[str, ...]]:
        """The commands at which servers of enough other cells hung, with the first test of each of these cells."""
        first: dict[str, dict[str, str]] = {}
        for hang in self._hangs():
            if hang.suite != self._suite:
                first.setdefault(hang.command, {}).setdefault(hang.suite, hang.test)
        return {command: tuple(tests.values()) for command, tests in first.items() if len(tests) >= CELLS}

    def _hangs(self) -> list[_Hang]:
        try:
            lines = self._path.read_bytes().splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            # Another cell may be writing the last one.
            with contextlib.suppress(msgspec.DecodeError):
                found.append(json_codec.decode(line, _Hang))
        return found
