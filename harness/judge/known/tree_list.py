"""The known list that a tree brings, `.plumbline/known.toml`. A run records a copy of it, and judging reads that copy.

When a change of the tree is checked, the run also records the list of the base revision: then only entries that both
have count, because a change must not excuse what it breaks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.model import Record
from harness.core.strict_toml import read_text
from harness.judge.known.known_list import EMPTY, KnownFinding, Settings, concerns, entries_of, release_name, resolved
from harness.judge.known.matching import NO_SOURCES, fits_any
from harness.record import run_folder

if TYPE_CHECKING:
    import datetime
    from collections.abc import Sequence

    from harness.analysis.source_excerpt import Sources
    from harness.core.finding import Finding
    from harness.record.run_record import RunRecord

IN_TREE = Path(".plumbline") / "known.toml"
"""A tree's own list, below its top folder."""
OF_TREE = "tree-known.toml"
"""RUN/tree-known.toml: the tree's own list, as it was when the run began."""
OF_BASE = "base-known.toml"
"""RUN/base-known.toml: the base revision's list, if a change was checked."""


def text_in(tree: Path) -> str:
    """The text of a tree's own list; empty if it has none. Raises UsageError, with file and line, if it is damaged."""
    path = tree / IN_TREE
    if not path.is_file():
        return ""
    text = read_text(path)
    entries_of(text, path)
    return text


def record(folder: Path, of_tree: str, of_base: str | None) -> None:
    """Write the tree's list into a run folder and, if a change is checked, the base revision's (else None).

    An empty text stands for no list. Judging uses the files if run.json has their digests.
    """
    if of_tree or of_base:
        (folder / OF_TREE).write_text(of_tree or EMPTY, "utf-8")
    if (of_tree or of_base) and of_base is not None:
        (folder / OF_BASE).write_text(of_base or EMPTY, "utf-8")


class OwnList(Record, frozen=True):
    """The part of a tree's own list that counts in a run."""

    entries: list[KnownFinding]
    """The entries for the run's server."""
    remarks: list[str]
    """Sentences on the entries that the checked change adds to the list or removes from it."""


def own_list(folder: Path, run: RunRecord) -> OwnList:
    """The entries of the tree's own list that a run recorded.

    If it also recorded the base's list, only entries that are in both. A file that differs from its record is ignored.
    Raises UsageError for an invalid list.
    """
    of_tree = _recorded(folder, OF_TREE, run)
    entries, remarks = entries_of(of_tree, folder / OF_TREE), []
    if OF_BASE in run.beside:
        of_base = _recorded(folder, OF_BASE, run)
        in_base = entries_of(of_base, folder / OF_BASE)
        remarks = changes(of_tree, of_base)
        entries = [entry for entry in entries if entry in in_base]
    concerned = [entry for entry in entries if concerns(entry, run.server, release_name(run))]
    own = resolved(concerned, run.machines, Settings.of(run))
    return OwnList(entries=own, remarks=remarks)


def _recorded(folder: Path, name: str, run: RunRecord) -> str:
    return (folder / name).read_text("utf-8") if run_folder.is_recorded(folder, run, name) else EMPTY


def changes(of_tree: str, of_base: str) -> list[str]:
    """Sentences on a change of a tree's own list: what it adds, and what it removes. An empty text is no list."""
    if of_tree == of_base:
        return []
    here, there = entries_of(of_tree or EMPTY, IN_TREE), entries_of(of_base or EMPTY, IN_TREE)
    added = [entry for entry in here if entry not in there]
    removed = [entry for entry in there if entry not in here]
    return [
        f"the change edits {IN_TREE}" + ("" if added or removed else "; no entry changes"),
        *(f"it adds {_in_words(entry)}; entries that a change adds excuse none of its findings" for entry in added),
        *(f"it removes {_in_words(entry)}" for entry in removed),
    ]


def _in_words(entry: KnownFinding) -> str:
    return f"{entry.id} ({entry.reason}; until {entry.expires})"


def excused_by_own(
    own: OwnList, found: Sequence[Finding], today: datetime.date, sources: Sources = NO_SOURCES
) -> list[str]:
    """A sentence with the findings that the tree's own list excuses; empty if there are none. `sources`: as in
    `match`.
    """
    excused = [
        finding.id
        for finding in found
        if finding.known and any(entry.expires >= today and fits_any(entry, finding, sources) for entry in own.entries)
    ]
    return [f"{IN_TREE} of the tree excuses {', '.join(excused)}"] if excused else []
