"""Which of a checkout's changes nothing looked at: RUN/changes.json, beside the evidence, and the cells' verdicts.

A change that no suite looked at is no PASS, whatever the suites say that looked at something else.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.digests import sha256_of
from harness.core.errors import UsageError
from harness.core.finding import Verdict
from harness.core.model import Record
from harness.record import compiler_warnings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.judge.verdict import CellVerdict

NAME = "changes.json"


class Change(Record, frozen=True):
    """A changed file, and what it asks for."""

    file: str
    suites: list[str]
    why: str
    covering: list[str] = msgspec.field(default_factory=list)
    """Those of them that say that they cover it, one of which must run; of what none covers, all of them must."""
    unchecked: bool = False
    """Whether it matters, and no suite looks at it."""


@contextlib.contextmanager
def noted(folder: Path, changes: Sequence[Change]) -> Iterator[None]:
    """Put what a run is made for into its folder, before the run; and take it away where nothing came of it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    path.write_bytes(json_codec.pretty(list(changes)))
    try:
        yield
    finally:
        if [path] == list(folder.iterdir()):
            path.unlink()


def read(folder: Path) -> list[Change]:
    """What a run was made for; nothing for one that no change asked for. Raises UsageError for what is damaged."""
    path = folder / NAME
    try:
        return json_codec.decode(path.read_bytes(), list[Change])
    except FileNotFoundError:
        return []
    except msgspec.DecodeError as error:
        raise UsageError("what the run was made for is damaged", where=str(path), because=str(error)) from error


def digests(folder: Path) -> dict[str, str]:
    """File of a run that is evidence and of no cell -> its SHA-256: what the run was made for, what compilers said."""
    files = [folder / NAME, *sorted((folder / compiler_warnings.FOLDER).glob("*.json"))]
    return {path.relative_to(folder).as_posix(): sha256_of(path) for path in files if path.is_file()}


def broken(folder: Path, recorded: Mapping[str, str]) -> list[str]:
    """A sentence for each of them that is not what was recorded: nothing can be said of what it told."""
    here = digests(folder)
    return [
        f"NOT CHECKED: what {name} told, for it is {'not what was recorded' if name in here else 'gone'}"
        for name, digest in recorded.items()
        if here.get(name) != digest
    ]


def foreseen(changes: Sequence[Change], suites: Sequence[str]) -> list[str]:
    """A sentence for each change that nothing will look at, if these suites run: why not."""
    return _told(changes, dict.fromkeys(suites, ""))


def remarks(changes: Sequence[Change], cells: Sequence[CellVerdict]) -> list[str]:
    """A sentence for each change that nothing looked at: why not."""
    skipped: dict[str, str] = {}
    for cell in cells:
        # One target that ran it is enough.
        if cell.verdict != Verdict.SKIP or skipped.get(cell.suite) == "":
            skipped[cell.suite] = ""
        else:
            skipped.setdefault(cell.suite, cell.reason or "skipped")
    return _told(changes, skipped)


def _told(changes: Sequence[Change], skipped: Mapping[str, str]) -> list[str]:
    return [f"NOT CHECKED: {change.file} {why}" for change in changes if (why := _why_not(change, skipped))]


def _why_not(change: Change, skipped: Mapping[str, str]) -> str:
    """Why nothing looked at a change; empty where something did. `skipped`: suite -> why no target ran it, or empty."""
    if change.unchecked:
        return f"is looked at by no suite: {change.why}"
    if change.covering:
        if any(skipped.get(name) == "" for name in change.covering):
            return ""
        reasons = dict.fromkeys(skipped[name] for name in change.covering if name in skipped)
        names = " and ".join(f"`{name}`" for name in change.covering)
        return f"is covered by {names} alone: {'; '.join(reasons) or 'not run'}"
    # What a release lacks is nobody's choice; but if every suite was skipped, nothing was seen at all.
    left = [name for name in change.suites if name not in skipped]
    if not left and change.suites and all(skipped[name] for name in change.suites):
        left = change.suites
    return f"asks for the whole quick tier: {', '.join(left)} did not run" if left else ""
