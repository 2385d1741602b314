"""What judged runs found, one after the other: a run and its neighbours, or any runs. Tolerant of old formats."""

from __future__ import annotations

import contextlib
import errno
import re
import time
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it decodes
from typing import TYPE_CHECKING, Annotated

import msgspec

from harness.core import json_codec
from harness.core.finding import Verdict
from harness.core.target_model import DEFAULT_FAMILY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

MOST_RUNS = 20


Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
"""A duration that a chart can show, even if a stranger wrote the file."""


class SeenBy(msgspec.Struct, frozen=True):
    """The cell of a witness."""

    target: str = ""
    suite: str = ""


class JudgedFinding(msgspec.Struct, frozen=True):
    """A finding, as far as histories show it."""

    id: str
    kind: str = ""
    title: str = ""
    known: str = ""
    targets: list[str] = msgspec.field(default_factory=list)
    witnesses: list[SeenBy] = msgspec.field(default_factory=list)


class JudgedCell(msgspec.Struct, frozen=True):
    """A cell, as far as histories show it."""

    target: str = ""
    suite: str = ""
    verdict: Verdict = Verdict.UNKNOWN
    seconds: Seconds = 0.0


class Judged(msgspec.Struct, frozen=True):
    """The keys of a findings.json, of any version, that histories show."""

    verdict: Verdict
    server: str
    policy: str = ""
    optimisation: str = ""
    allocator: str = ""
    toolchain: str = ""
    environment: str = ""
    io: str = ""
    tier: str = ""
    tests: list[str] = msgspec.field(default_factory=list)
    settings: list[str] = msgspec.field(default_factory=list)
    revision: str = ""
    record: str = ""
    findings: list[JudgedFinding] = msgspec.field(default_factory=list)
    cells: list[JudgedCell] = msgspec.field(default_factory=list)
    left_out: int = 0

    def has_looked(self, cells: Collection[tuple[str, str]]) -> bool:
        """Whether the run would have shown a finding of these cells, each a target and a suite: one of them has a
        verdict, and no test was left out. A test that shows a known finding may be left out.
        """
        return not self.left_out and any(
            (one.target, one.suite) in cells and one.verdict in _LOOKED for one in self.cells
        )


_LOOKED = frozenset({Verdict.PASS, Verdict.FAIL, Verdict.XFAIL})
"""Verdicts of cells that would have shown a finding."""


class JudgedRun(msgspec.Struct, frozen=True):
    """A judged run in its folder."""

    folder: Path
    seconds: float
    """When it began, as time.time() counts."""
    judged: Judged

    @property
    def when(self) -> str:
        """Local time, `YYYY-MM-DD HH:MM`."""
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(self.seconds))


_USUAL = {
    "policy": "signal",
    "allocator": "libc",
    "toolchain": DEFAULT_FAMILY,
    "environment": "usual",
    "io": "unix",
    "tier": "quick",
}
"""The defaults, which a configuration does not mention."""


def configuration_of(judged: Judged) -> str:
    """How the run differs from a plain one in its build, in its machine and in the tests that it ran."""
    given = {name: str(getattr(judged, name)) for name in _USUAL}
    words = [f"{name} {value}" for name, value in given.items() if value not in {"", _USUAL[name]}]
    level = [f"-{judged.optimisation}"] if judged.optimisation not in {"", "O2"} else []
    return ", ".join([*level, *words, *judged.settings, *(f"test {pattern}" for pattern in sorted(judged.tests))])


def read_judged(folder: Path) -> JudgedRun:
    """A judged run. Raises OSError or msgspec.DecodeError for a folder whose findings.json cannot be read."""
    path = folder / "findings.json"
    if path.exists() and not path.is_file():
        # To read a pipe would take forever.
        raise OSError(errno.EINVAL, "not a file", str(path))
    judged = json_codec.decode(path.read_bytes(), Judged)
    return JudgedRun(folder=folder, seconds=_when(folder), judged=judged)


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
    """Ids that it had and this one does not, although this one looked for them; None without a previous run."""
    has_page: bool
    is_this: bool


def history(folder: Path) -> list[Run]:
    """The run and its neighbours in the parent folder, newest first. Omits runs that cannot be read."""
    read = []
    for path in folder.resolve().parent.glob("*/findings.json"):
        try:
            read.append(read_judged(path.parent))
        except (OSError, ValueError, msgspec.DecodeError):
            continue
    return _around(compared(read, this=folder.resolve()))


def compared(read: Iterable[JudgedRun], *, this: Path | None = None) -> list[Run]:
    """The runs, newest first, each compared with the latest earlier one with the same server, policy and cells."""
    found = []
    before: dict[tuple[object, ...], dict[str, JudgedFinding]] = {}
    for one in sorted(read, key=lambda one: (one.seconds, one.folder.name)):
        judged = one.judged
        cells = sorted(f"{cell.target}/{cell.suite}" for cell in judged.cells)
        same = (judged.server, configuration_of(judged), *cells)
        here = {finding.id: finding for finding in judged.findings}
        earlier = before.get(same)
        # A finding that a run did not look for may still exist.
        missed = {
            identity: finding
            for identity, finding in (earlier or {}).items()
            if identity not in here and not judged.has_looked({(one.target, one.suite) for one in finding.witnesses})
        }
        before[same] = here | missed
        ids = {*here, *missed}
        found.append(
            Run(
                name=one.folder.name,
                when=one.when,
                server=judged.server,
                policy=judged.policy,
                optimisation=judged.optimisation,
                verdict=judged.verdict,
                cells=len(cells),
                findings=len(here),
                appeared=None if earlier is None else sorted(ids - earlier.keys()),
                gone=None if earlier is None else sorted(earlier.keys() - ids),
                has_page=(one.folder / "report.html").is_file(),
                is_this=one.folder == this,
            )
        )
    return found[::-1]


def _when(folder: Path) -> float:
    """The time of a run, from its folder's name, since copying changes file times; else the time of its record.

    A joined run has no record, but its judgement.
    """
    if stamp := re.match(r"\d{8}-\d{6}", folder.name):
        # Digits need not be a time.
        with contextlib.suppress(ValueError, OverflowError):
            return time.mktime(time.strptime(stamp[0], "%Y%m%d-%H%M%S"))
    record = folder / "run.json"
    return (record if record.is_file() else folder / "findings.json").stat().st_mtime


def _around(runs: list[Run]) -> list[Run]:
    """The newest runs, always including this one."""
    shown = runs[:MOST_RUNS]
    return shown if any(run.is_this for run in shown) else [*shown[:-1], *(run for run in runs if run.is_this)]
