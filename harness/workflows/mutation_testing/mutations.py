"""Mutations: known bugs as edits to a release's source, and the findings that each must produce.

The module reads the data and edits a copy of a tree. It never writes to the original, and builds and runs nothing.
"""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from harness.build.sources.tree_files import copy_tree
from harness.core.errors import UsageError
from harness.core.model import Allocator, MemoryOrder, Record, Tier
from harness.core.strict_toml import read_toml

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.finding import Finding

Fault = Literal["alignment", "byte-order", "width", "signedness", "bounds", "order"]
FOLDER = Path(__file__).with_name("bugs")
BUILD = "build"
"""The kind of the finding that a server does not compile."""


class Edit(Record, frozen=True):
    """One replacement in one file."""

    file: str
    """Path in the tree."""
    anchor: str
    """The text that is replaced, no longer than necessary to identify it."""
    replacement: str
    after: str = ""
    """A unique text after which the first anchor counts; empty if the anchor itself is unique in the file."""


class Expected(Record, frozen=True):
    """A finding that must occur on each of these targets, in at least one of these suites."""

    targets: list[str]
    suites: list[str]
    finding: str
    """A glob of identities (Finding.id)."""
    function: str = ""
    """The function that the finding must name; empty for a wrong answer without a place in the code."""
    record: str = ""
    """A glob of Difference.record, the part of the format in which bytes must differ."""


class Mutation(Record, frozen=True):
    """harness/workflows/mutation_testing/bugs/NAME.toml."""

    name: str
    title: str
    fault: Fault
    server: str
    edits: list[Edit]
    expected: list[Expected]
    allocator: Allocator = "libc"
    """The allocator without which the bug has no effect."""
    tier: Tier = "quick"
    """The tier in which the suites find it."""
    memory_order: MemoryOrder = "usual"
    """The order in which the servers' threads see one another's stores."""
    silent: list[str] = msgspec.field(default_factory=list)
    """Targets whose memory order hides the bug: the same suites must find nothing there."""

    @property
    def targets(self) -> list[str]:
        """Every target that must show it."""
        return list(dict.fromkeys(target for expected in self.expected for target in expected.targets))

    @property
    def suites(self) -> list[str]:
        """Every suite that may show it."""
        return list(dict.fromkeys(suite for expected in self.expected for suite in expected.suites))


def mutations(folder: Path = FOLDER) -> dict[str, Mutation]:
    """Name -> mutation. Raises UsageError for an invalid file."""
    return {path.stem: read_toml(path, Mutation, name=path.stem) for path in sorted(folder.glob("*.toml"))}


class Planted(Protocol):
    """A bug that can be planted: one that was written by hand, or a mutant made by rule."""

    @property
    def name(self) -> str:
        """Its identifier."""

    @property
    def edits(self) -> Sequence[Edit]:
        """The text to replace."""


def plant(mutation: Planted, tree: Path, into: Path) -> None:
    """Copy a tree and edit the copy. Raises UsageError for an anchor that is missing or not unique."""
    copy_tree(tree, into)
    for edit in mutation.edits:
        file = into / edit.file
        where = f"{mutation.name}: {edit.file}"
        if not file.is_file():
            raise UsageError("the mutation's file does not exist", where=where, because=f"the tree is {tree}")
        text = file.read_bytes()
        start = _only(text, edit.after, where) + len(edit.after.encode()) if edit.after else 0
        if not edit.after:
            _only(text, edit.anchor, where)
        anchor = edit.anchor.encode()
        at = text.find(anchor, start)
        if at < 0:
            raise UsageError(f"no '{edit.anchor}' behind '{edit.after}'", where=where, remedy=_REMEDY)
        file.write_bytes(text[:at] + edit.replacement.encode() + text[at + len(anchor) :])


_REMEDY = "the edit is for another release: name that release, or correct the anchor"


def _only(text: bytes, anchor: str, where: str) -> int:
    count = text.count(anchor.encode())
    if count != 1:
        remedy = _REMEDY if not count else "say `after` which text the anchor comes"
        raise UsageError(f"'{anchor}' is there {count or 'no'} times, and not once", where=where, remedy=remedy)
    return text.index(anchor.encode())


def caught(mutation: Mutation, findings: list[Finding]) -> dict[str, list[Finding]]:
    """Target that must show the bug -> its expected findings, without known ones; empty if the suites missed it."""
    found: dict[str, list[Finding]] = {target: [] for target in mutation.targets}
    for expected in mutation.expected:
        for target in expected.targets:
            found[target] += [finding for finding in findings if _is_expected(finding, expected, target)]
    return found


def _is_expected(finding: Finding, expected: Expected, target: str) -> bool:
    # A check passes with known findings, and so would miss the bug. A server that does not compile is not tested.
    if finding.known or finding.kind == BUILD:
        return False
    here = any(witness.target == target and witness.suite in expected.suites for witness in finding.witnesses)
    named = not expected.function or finding.function == expected.function
    differences = [witness.difference for witness in finding.witnesses if witness.target == target]
    records = {difference.record for difference in differences if difference}
    placed = not expected.record or any(fnmatch.fnmatchcase(record, expected.record) for record in records)
    return here and named and placed and fnmatch.fnmatchcase(finding.id, expected.finding)
