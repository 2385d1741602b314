"""What the runs beside this one found: those in the same parent folder. Read-only, and forgiving of old ones."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import msgspec

from harness.core import json_codec

if TYPE_CHECKING:
    from pathlib import Path

MOST_RUNS = 20


class _Finding(msgspec.Struct):
    id: str
    known: str = ""


class _Judged(msgspec.Struct):
    """As much of a findings.json as is told of a run, of any version of it."""

    verdict: str
    server: str
    policy: str = ""
    optimisation: str = ""
    findings: list[_Finding] = msgspec.field(default_factory=list)
    cells: list[dict[str, Any]] = msgspec.field(default_factory=list)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run, in a line."""

    name: str
    when: str
    """Local time, `YYYY-MM-DD HH:MM`."""
    server: str
    policy: str
    optimisation: str
    verdict: str
    cells: int
    findings: int
    appeared: list[str] | None
    """Ids that the run before of the same server, policy and cells did not have; None where there is none."""
    gone: list[str] | None
    has_page: bool
    is_this: bool


def history(folder: Path) -> list[Run]:
    """The run and those in the same parent folder, newest first. A run that cannot be read is left out."""
    read = []
    for path in folder.resolve().parent.glob("*/findings.json"):
        record = path.with_name("run.json")
        try:
            read.append((_when(record), path.parent, json_codec.decode(path.read_bytes(), _Judged)))
        except (OSError, ValueError, msgspec.DecodeError):
            continue
    read.sort(key=lambda one: (one[0], one[1].name))
    found = []
    before: dict[tuple[object, ...], set[str]] = {}
    for seconds, place, judged in read:
        cells = sorted(f"{cell.get('target')}/{cell.get('suite')}" for cell in judged.cells)
        same = (judged.server, judged.policy, judged.optimisation, *cells)
        ids = {finding.id for finding in judged.findings}
        earlier = before.get(same)
        before[same] = ids
        found.append(
            Run(
                name=place.name,
                when=time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)),
                server=judged.server,
                policy=judged.policy,
                optimisation=judged.optimisation,
                verdict=judged.verdict,
                cells=len(cells),
                findings=len(ids),
                appeared=None if earlier is None else sorted(ids - earlier),
                gone=None if earlier is None else sorted(earlier - ids),
                has_page=(place / "report.html").is_file(),
                is_this=place == folder.resolve(),
            )
        )
    return _around(found[::-1])


def _when(record: Path) -> float:
    """When a run was made: its folder's name tells, for a copy has times of its own; else its record's time."""
    if stamp := re.match(r"\d{8}-\d{6}", record.parent.name):
        return time.mktime(time.strptime(stamp[0], "%Y%m%d-%H%M%S"))
    return record.stat().st_mtime


def _around(runs: list[Run]) -> list[Run]:
    """The newest runs, and this one among them whatever its age."""
    shown = runs[:MOST_RUNS]
    return shown if any(run.is_this for run in shown) else [*shown[:-1], *(run for run in runs if run.is_this)]
