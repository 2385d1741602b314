"""Which suites a change asks for: by the files that it touches, from what suites say that they cover. Pure.

What nobody covers, a header or a file that everything uses, asks for the whole quick tier: the safe default.
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from harness.load import ROOT, read_toml
from harness.model import Allocator, Noun, Suite

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

UNSEEN = ROOT / "harness" / "unseen.toml"


class Unseen(Noun, frozen=True):
    """Files that are no part of what is built and run here."""

    files: list[str]
    """Globs of paths in the server's tree; a star goes across folders."""
    why: str
    allocator: Allocator | None = None
    """Unless this gives the server its memory."""


class UnseenTable(Noun, frozen=True):
    """harness/unseen.toml."""

    unseen: list[Unseen]


class Change(Noun, frozen=True):
    """A changed file, and what it asks for."""

    file: str
    suites: list[str]
    why: str


class Choice(Noun, frozen=True):
    """What some changes ask for; nothing, if no suite is left."""

    changes: list[Change]
    suites: list[str]


def read_unseen() -> list[Unseen]:
    """The table. Raises UsageError when it is not valid."""
    return read_toml(UNSEEN, UnseenTable).unseen


def choose(
    files: Iterable[str], suites: Mapping[str, Suite], unseen: Sequence[Unseen], allocator: Allocator = "libc"
) -> Choice:
    """Suites of the quick tier for each file, and all of them together."""
    quick = [name for name, suite in suites.items() if suite.tier == "quick" and suite.needs_server]
    changes = [_change(file, suites, quick, unseen, allocator) for file in files]
    wanted = {name for change in changes for name in change.suites}
    return Choice(changes=changes, suites=[name for name in quick if name in wanted])


def _change(
    file: str, suites: Mapping[str, Suite], quick: list[str], unseen: Sequence[Unseen], allocator: Allocator
) -> Change:
    for entry in unseen:
        if _matches(file, entry.files) and (entry.allocator is None or entry.allocator != allocator):
            return Change(file=file, suites=[], why=entry.why)
    covering = [name for name, suite in suites.items() if _matches(file, suite.covers)]
    longer = " ".join(f"--suite {name}" for name in covering if name not in quick)
    chosen = [name for name in covering if name in quick]
    if chosen:
        why = "these suites say that they cover it"
    elif file.endswith(".h"):
        why = "a header may be part of any file: all of the quick tier"
    else:
        why = "no suite says that it covers all that depends on it: all of the quick tier"
    more = f"; longer ones do too: {longer}" if longer else ""
    return Change(file=file, suites=chosen or quick, why=why + more)


def _matches(file: str, globs: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(file, glob) for glob in globs)
