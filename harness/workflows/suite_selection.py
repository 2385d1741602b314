"""Selects suites for a change, by the files that it touches and the files that each suite declares to cover. Pure.

A file that no quick suite covers, such as a header, selects the whole quick tier as well, which is the safe default. A
file that no suite can check is reported as unchecked.
"""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.core.model import Allocator, Record, Suite
from harness.core.strict_toml import read_toml
from harness.judge.change.unchecked_changes import Change

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

IGNORED_PATHS = Path(__file__).with_name("ignored_paths.toml")


class IgnoredPath(Record, frozen=True):
    """Files that no suite checks."""

    files: list[str]
    """Globs of paths in the server's tree, where a star also matches slashes."""
    why: str
    allocators: list[Allocator] = msgspec.field(default_factory=list)
    """The allocators with which suites do check them."""


class IgnoredPathTable(Record, frozen=True):
    """harness/workflows/ignored_paths.toml."""

    ignored: list[IgnoredPath]
    """Files that are part of no program."""
    unchecked: list[IgnoredPath]
    """Files that are part of a program, or of the server in another configuration."""


class SuiteSelection(Record, frozen=True):
    """Changes and the suites that they select, possibly none."""

    changes: list[Change]
    suites: list[str]


def read_ignored_paths() -> IgnoredPathTable:
    """The table. Raises UsageError when it is not valid."""
    return read_toml(IGNORED_PATHS, IgnoredPathTable)


def choose(
    files: Iterable[str], suites: Mapping[str, Suite], table: IgnoredPathTable, allocator: Allocator = "libc"
) -> SuiteSelection:
    """Each file with its suites, and all these suites together, the quick ones first."""
    changes = [_change(file, suites, table, allocator) for file in files]
    wanted = {name for change in changes for name in change.suites}
    # Quick suites end first, so that their findings are known early.
    by_tier = sorted(suites, key=lambda name: suites[name].tier != "quick")
    return SuiteSelection(changes=changes, suites=[name for name in by_tier if name in wanted])


def sampled(changes: Iterable[Change]) -> set[str]:
    """The suites that run on a few targets: of each file that selects them they test a part, and the quick tier, which
    tests the rest, runs on all.
    """
    listed = list(changes)
    whole = {name for change in listed for name in change.suites if name not in change.partial}
    return {name for change in listed for name in change.partial} - whole


def _change(file: str, suites: Mapping[str, Suite], table: IgnoredPathTable, allocator: Allocator) -> Change:
    for entry in (*table.ignored, *table.unchecked):
        if _matches(file, entry.files) and allocator not in entry.allocators:
            return Change(file=file, suites=[], why=entry.why, unchecked=entry in table.unchecked)
    quick = [name for name, suite in suites.items() if suite.tier == "quick" and suite.needs_server]
    covering = [name for name, suite in suites.items() if _matches(file, suite.source_globs)]
    if set(covering) & set(quick):
        chosen, why = covering, "these suites cover it"
    elif covering:
        chosen = [*quick, *covering]
        why = f"{' and '.join(covering)} cover it, but other code may use it: the whole quick tier, too"
    elif file.endswith(".h"):
        chosen, why = quick, "any file may include a header: the whole quick tier"
    else:
        chosen, why = quick, "no suite covers everything that depends on it: the whole quick tier"
    partial = [name for name, suite in suites.items() if _matches(file, suite.partial_globs) and name not in chosen]
    if partial:
        why += f"; a part of it is tested only by {' and '.join(partial)}"
    return Change(file=file, suites=[*chosen, *partial], why=why, covering=covering, partial=partial)


def _matches(file: str, globs: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(file, glob) for glob in globs)
