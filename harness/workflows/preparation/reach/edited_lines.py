"""The source lines that a change edits, as a cell records them: a line with code counts as a function whose name is its
text, so the record shows which tests execute it.

The text identifies the line even after other edits have moved it. Lines with the same text in a file count as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from harness.analysis.code.line_code import line_code
from harness.record.executed_blocks.block_map import Function

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from harness.analysis.code.line_code import LineCode
    from harness.judge.baseline import BaseRevision
    from harness.record.executed_blocks.block_map import ProgramCode
    from harness.workflows.git.checkout import Checkout


class EditedLines(NamedTuple):
    """The lines of sources that a change edits."""

    pieces: Mapping[str, Sequence[range]]
    """Source -> its edited lines, piece by piece."""
    names: Mapping[tuple[str, int], str]
    """Source and line -> the name by which the line is recorded."""
    whole: bool
    """Whether they are the whole change: it edits no header and no makefile, and no lines are only removed."""

    def code_in(self, program: Path) -> list[LineCode]:
        """The code that a program has of the lines."""
        numbers = {file: {line for piece in pieces for line in piece} for file, pieces in self.pieces.items()}
        return line_code(program, numbers)

    def noted_in(self, code: ProgramCode, found: Iterable[LineCode]) -> ProgramCode:
        """A program's code, in which each of the lines is a function. `found`: the result of `code_in` for the
        program.
        """
        lines = [
            Function(start=one.start, size=one.end - one.start, names=[self.names[one.file, one.line]]) for one in found
        ]
        return msgspec.structs.replace(code, functions=sorted([*code.functions, *lines], key=lambda one: one.start))

    def with_code(self, found: Iterable[LineCode]) -> tuple[set[tuple[str, int]], bool]:
        """The lines that have code in a program, and whether they cover the whole change, with a line in each of its
        parts.

        `found`: the result of `code_in` for the program.
        """
        lines = {(one.file, one.line) for one in found}
        pieces = [(file, piece) for file, pieces in self.pieces.items() for piece in pieces]
        return lines, self.whole and all(any((file, line) in lines for line in piece) for file, piece in pieces)

    def not_executed(self, lines: Iterable[tuple[str, int]], entered: Collection[str]) -> list[tuple[str, int]]:
        """The lines, in order, that are not among the names that tests have entered."""
        return sorted(one for one in lines if self.names[one] not in entered)


def edited_lines(checkout: Checkout, base: BaseRevision, files: Iterable[str]) -> EditedLines:
    """The lines that differ from a base in these files of a checkout, which belong to programs."""
    pieces: dict[str, list[range]] = {}
    names: dict[tuple[str, int], str] = {}
    whole = True
    for file in files:
        found = checkout.changed_lines(base, file) if file.endswith(".c") else []
        whole = whole and bool(found) and all(found)
        if found:
            texts = (checkout.path / file).read_text("utf-8", "replace").split("\n")
            pieces[file] = found
            names |= {(file, line): f"{file}: {texts[line - 1].strip()}" for piece in found for line in piece}
    return EditedLines(pieces=pieces, names=names, whole=whole)
