"""The findings of neighbouring runs, in the same parent folder. Read-only, and tolerant of old formats."""

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
    """The keys of a findings.json, of any version, that the history shows."""

    verdict: str
    server: str
    policy: str = ""
    optimisation: str = ""
    findings: list[_Finding] = msgspec.field(default_factory=list)
    cells: list[dict[str, Any]] = msgspec.field(default_factory=list)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the history: a run."""

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
    """Ids that the previous run of the same server, policy and cells did not have; None without a previous run."""
    gone: list[str] | None
    has_page: bool
    is_this: bool


def history(folder: Path) -> list[Run]:
    """The run and its neighbours in the parent folder, newest first. Omits runs that cannot be read."""
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
    """The time of a run, from its folder's name, since copying changes file times; else the time of its record."""
    if stamp := re.match(r"\d{8}-\d{6}", record.parent.name):
        return time.mktime(time.strptime(stamp[0], "%Y%m%d-%H%M%S"))
    return record.stat().st_mtime


def _around(runs: list[Run]) -> list[Run]:
    """The newest runs, always including this one."""
    shown = runs[:MOST_RUNS]
    return shown if any(run.is_this for run in shown) else [*shown[:-1], *(run for run in runs if run.is_this)]
