"""CELL/reach.json: the functions of the server of which each test of a cell executed something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.model import Record

if TYPE_CHECKING:
    from pathlib import Path

NAME = "reach.json"


class CellReach(Record, frozen=True):
    """The functions that the tests of a cell executed."""

    every: list[str]
    """Functions that count for every test."""
    tests: dict[str, list[str]]
    """Test that passed -> the further functions of which it executed something."""
    failed: dict[str, list[str]]
    """Test that failed -> the same."""
    skipped: dict[str, list[str]]
    """Test that was skipped -> the same."""
    count: int
    """How many tests the cell has, those included that did not pass."""
    problem: str = ""
    """Why this may lack some; empty if nothing says so."""


def read(cell: Path) -> CellReach | None:
    """A cell's reach; None if it was not recorded, or is unreadable."""
    try:
        return json_codec.decode((cell / NAME).read_bytes(), CellReach)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def write(cell: Path, found: CellReach) -> None:
    """Write reach.json."""
    (cell / NAME).write_bytes(json_codec.encode(found))
