"""A changed tree in which the lines that the change does not edit keep the numbers that they have in the base.

Assertions compile the number of their line into the code (__LINE__). A line that is added to a file therefore changes
the code of each function behind it that has one, and all tests that enter it would run. Compared with this tree's code
instead, functions differ only if the change alters what they do.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from harness.build.sources.tree_files import copy_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.judge.baseline import BaseRevision
    from harness.workflows.git.checkout import Checkout, ReplacedLines

_NUMBERED = (".c", ".cc", ".cpp", ".h", ".hpp")


def moving_files(checkout: Checkout, base: BaseRevision) -> dict[str, list[ReplacedLines]]:
    """The sources in which an edit moves lines of the base -> their edited lines."""
    found = {}
    for name in checkout.changed(base):
        path = checkout.path / name
        if name.endswith(_NUMBERED) and path.is_file() and not path.is_symlink():
            lines = checkout.replaced_lines(base, name)
            if any(one.moves for one in lines) and checkout.text(base, name) is not None:
                found[name] = lines
    return found


def write(tree: Path, files: Mapping[str, Sequence[ReplacedLines]], into: Path) -> str:
    """Copy a tree into a folder, with the base's numbers in the unedited lines of these files. Returns the digest of
    what was copied: somebody may edit the tree meanwhile.
    """
    digest = copy_tree(tree, into)
    for name, lines in files.items():
        path = into / name
        # Some files are no part of a build (tree_files).
        if not path.is_file():
            continue
        times = path.stat()
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        path.write_bytes(numbered(text, lines).encode("utf-8", "surrogateescape"))
        # make would otherwise take what was generated from it for older.
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return digest


def numbered(text: str, lines: Sequence[ReplacedLines]) -> str:
    """A source with directives (`#line`) behind its edited lines that give the following ones their old numbers."""
    have = text.split("\n")
    at: dict[int, int] = {}
    ends = [*(one.new.start if one.new else one.new.start + 1 for one in lines[1:]), len(have)]
    for one, end in zip(lines, ends, strict=True):
        old, new = one.behind
        # A directive would end a macro's definition that continues behind it.
        while 1 < new < end and have[new - 2].rstrip().endswith("\\"):
            old, new = old + 1, new + 1
        if new < end or new == len(have):
            at[new] = old
    written: list[str] = []
    for number, line in enumerate(have, start=1):
        if number in at:
            written.append(f"#line {at[number]}")
        written.append(line)
    return "\n".join(written)
