"""What a run cost the host beyond its cells, RUN/cost.json, and a cell's profile, RUN/TARGET/SUITE/profile.json.

They do not affect any verdict. They are written when the run has been judged and reported, and a run that was killed
has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from harness.core import json_codec
from harness.core.cache import write_whole
from harness.core.errors import UsageError
from harness.core.model import Record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME = "cost.json"
PROFILE = "profile.json"
Content = TypeVar("Content")


class PeakMemory(Record, frozen=True):
    """The largest sample of the memory of all processes (harness.core.processes.memory_watch)."""

    pss_bytes: int
    """The sum of their proportional set sizes: what several share counts once."""
    processes: int
    by_program: dict[str, int]


class RunCost(Record, frozen=True):
    """RUN/cost.json."""

    clock_seconds: float
    """Elapsed time in seconds, from the request to the report."""
    processors: int
    stages: dict[str, float]
    """Stage -> processor seconds of the command's own process meanwhile."""
    own_seconds: float
    """Processor seconds of the command's own process, of every stage and of none."""
    programs: dict[str, float]
    """Processor seconds of the processes that it started, by program. The cells' are among them, as Python."""
    peak: PeakMemory
    cache_growth_bytes: int | None = None
    """By how much the cache grew; None if not requested, because measuring it takes a second or more."""
    stacks: dict[str, float] = msgspec.field(default_factory=dict)
    """Processor seconds of the main thread by stack (harness.core.processes.profiler); empty without a profile."""


def write(folder: Path, cost: RunCost) -> None:
    """Write RUN/cost.json."""
    write_whole(folder / NAME, json_codec.pretty(cost))


def read(folder: Path) -> RunCost | None:
    """RUN/cost.json; None if there is none, as in an earlier release's run. Raises UsageError for a damaged one."""
    return _read(folder / NAME, RunCost)


def write_profile(folder: Path, stacks: Mapping[str, float]) -> None:
    """Write a cell's profile: seconds by stack."""
    write_whole(folder / PROFILE, json_codec.pretty({stack: round(used, 4) for stack, used in stacks.items()}))


def read_profile(folder: Path) -> dict[str, float]:
    """A cell's profile; empty if it has none. Raises UsageError for a damaged one."""
    return _read(folder / PROFILE, dict[str, float]) or {}


def _read(path: Path, kind: type[Content]) -> Content | None:
    try:
        return json_codec.decode(path.read_bytes(), kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise UsageError(
            "the file is damaged, so it proves nothing",
            where=str(path),
            because=str(error),
            remedy="run again; the verdict does not depend on it",
        ) from error
