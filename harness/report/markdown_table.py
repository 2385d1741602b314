"""Writes Markdown tables (GitHub Flavored Markdown, 4.10). No other module knows their syntax."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, numbers_from: int | None = None) -> list[str]:
    """The lines of a table. A heading may be empty; a row has a cell for each heading.

    Columns from `numbers_from` on are aligned to the right. Cells are Markdown: the caller escapes text that it did not
    write (`harness.report.formats.markdown.as_text`). Raises ValueError for a row of another length.
    """
    numbers = len(headings) if numbers_from is None else numbers_from
    rules = ["---" if number < numbers else "--:" for number in range(len(headings))]
    lines = [_line(headings), f"|{'|'.join(rules)}|"]
    for row in rows:
        if len(row) != len(headings):
            raise ValueError(f"{len(row)} cells under {len(headings)} headings: {row}")
        lines.append(_line(row))
    return lines


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
