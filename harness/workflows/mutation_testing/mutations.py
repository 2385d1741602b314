"""Planted bugs: edits of ours to a release's source, and what must be found when one is in it.

It reads the data and edits a copy of a tree; it never writes to the tree it reads, and builds and runs nothing.
"""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.build.sources.tree_files import copy_tree
from harness.core.errors import UsageError
from harness.core.model import Allocator, Record
from harness.core.strict_toml import read_toml

if TYPE_CHECKING:
    from harness.core.finding import Finding

FOLDER = Path(__file__).with_name("bugs")


class Edit(Record, frozen=True):
    """One replacement in one file."""

    file: str
    """Path in the tree."""
    anchor: str
    """The text that is replaced: no more of it than is needed to find it."""
    replacement: str
    after: str = ""
    """The anchor is the first one behind this text, which the file has once; empty: the file has the anchor once."""


class Expected(Record, frozen=True):
    """What must be found on each of some targets, by one at least of some suites."""

    targets: list[str]
    suites: list[str]
    finding: str
    """A glob of identities (Finding.id)."""
    function: str = ""
    """What the finding must name; empty where a wrong answer has no place in the code."""
    record: str = ""
    """A glob of what the finding must say of the bytes that differ: Difference.record."""


class Mutation(Record, frozen=True):
    """harness/workflows/mutation_testing/bugs/NAME.toml."""

    name: str
    title: str
    fault: Literal["alignment", "byte-order", "width", "signedness", "bounds"]
    server: str
    edits: list[Edit]
    expected: list[Expected]
    allocator: Allocator = "libc"
    """What must give the server its memory, or nothing is seen."""

    @property
    def targets(self) -> list[str]:
        """Every target that must show it."""
        return list(dict.fromkeys(target for one in self.expected for target in one.targets))

    @property
    def suites(self) -> list[str]:
        """Every suite that may show it."""
        return list(dict.fromkeys(suite for one in self.expected for suite in one.suites))


def mutations(folder: Path = FOLDER) -> dict[str, Mutation]:
    """Every mutation by its name. Raises UsageError for a file that is not one."""
    return {path.stem: read_toml(path, Mutation, name=path.stem) for path in sorted(folder.glob("*.toml"))}


def plant(mutation: Mutation, tree: Path, into: Path) -> None:
    """Copy a tree and edit the copy. Raises UsageError for an anchor that is missing or not unique."""
    copy_tree(tree, into)
    for edit in mutation.edits:
        file = into / edit.file
        where = f"{mutation.name}: {edit.file}"
        if not file.is_file():
            raise UsageError("the mutation's file is not there", where=where, because=f"the tree is {tree}")
        text = file.read_bytes()
        start = _only(text, edit.after, where) + len(edit.after.encode()) if edit.after else 0
        if not edit.after:
            _only(text, edit.anchor, where)
        anchor = edit.anchor.encode()
        at = text.find(anchor, start)
        if at < 0:
            raise UsageError(f"no '{edit.anchor}' behind '{edit.after}'", where=where, remedy=_REMEDY)
        file.write_bytes(text[:at] + edit.replacement.encode() + text[at + len(anchor) :])


_REMEDY = "the edit is for another release: name the one it is for, or mend the anchor"


def _only(text: bytes, anchor: str, where: str) -> int:
    count = text.count(anchor.encode())
    if count != 1:
        remedy = _REMEDY if not count else "say `after` which text the anchor comes"
        raise UsageError(f"'{anchor}' is there {count or 'no'} times, and not once", where=where, remedy=remedy)
    return text.index(anchor.encode())


def caught(mutation: Mutation, findings: list[Finding]) -> dict[str, list[Finding]]:
    """Target that must show it -> the findings there that are as expected; empty where it was missed."""
    found: dict[str, list[Finding]] = {target: [] for target in mutation.targets}
    for expected in mutation.expected:
        for target in expected.targets:
            found[target] += [finding for finding in findings if _is_expected(finding, expected, target)]
    return found


def _is_expected(finding: Finding, expected: Expected, target: str) -> bool:
    here = any(seen.target == target and seen.suite in expected.suites for seen in finding.witnesses)
    named = not expected.function or finding.function == expected.function
    told = {seen.difference.record for seen in finding.witnesses if seen.target == target and seen.difference}
    placed = not expected.record or any(fnmatch.fnmatchcase(one, expected.record) for one in told)
    return here and named and placed and fnmatch.fnmatchcase(finding.id, expected.finding)
