"""Shows lines of a tree's source beside their places: a reader need not open a file to see what a headline means. Pure.

`files` maps the name of a file in the tree to its text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_LINE = 160


def line_of(files: Mapping[str, str], file: str, number: int) -> str:
    """A line with its white space as single spaces; empty for a file or a line that the tree does not have."""
    # Compilers count only \n: a form feed does not end a line.
    lines = files.get(file, "").split("\n")
    text = " ".join(lines[number - 1].split()) if 0 < number <= len(lines) else ""
    return text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 1]}…"


def quoted(place: str, *texts: str) -> str:
    """`src/dict.c:117  key = *(int *)p;  MESSAGE`; empty texts are left out."""
    return "  ".join(filter(None, [place, *texts]))
