"""Which cells stand for others: a machine shows as a rule what all of its kind show."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.model import Cell
    from harness.core.target_model import Target


def representatives(cells: Sequence[Cell], targets: Mapping[str, Target]) -> dict[Cell, Cell]:
    """Each cell -> the cell of its suite on the target that stands for its kind: for the targets of a width, a byte
    order and a width of time_t the one that demands alignment of most kinds of accesses, of several the first.
    """
    best: dict[tuple[int, str, int, str], Cell] = {}

    def kind(cell: Cell) -> tuple[int, str, int, str]:
        target = targets[cell.target]
        return target.width_bits, target.endianness, target.time_bits, cell.suite

    for cell in cells:
        chosen = best.setdefault(kind(cell), cell)
        if len(targets[cell.target].demand) > len(targets[chosen.target].demand):
            best[kind(cell)] = cell
    return {cell: best[kind(cell)] for cell in cells}


def stand_ins(cells: Sequence[Cell], targets: Mapping[str, Target]) -> dict[Cell, list[Cell]]:
    """Some cells -> the cells of their suites that stand for them: so few that each width, byte order and width of
    time_t of a suite's targets occurs. Of equally good targets, those that demand alignment of most kinds of accesses,
    and of these the first. The cells that stand for others are not in the result.
    """
    found: dict[Cell, list[Cell]] = {}

    def properties(cell: Cell) -> set[tuple[int, int | str]]:
        one = targets[cell.target]
        return {*enumerate((one.width_bits, one.endianness, one.time_bits))}

    for suite in dict.fromkeys(cell.suite for cell in cells):
        those = [cell for cell in cells if cell.suite == suite]
        left = set().union(*map(properties, those))
        chosen: list[Cell] = []
        while left:
            best = max(those, key=lambda cell: (len(left & properties(cell)), len(targets[cell.target].demand)))
            chosen.append(best)
            left -= properties(best)
        found |= {cell: chosen for cell in those if cell not in chosen}
    return found
