"""Which of a run's targets a cell meets."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.cell import CellSpec, Peer


def chosen_peers(cell: CellSpec) -> list[str]:
    """In the quick tier the fastest target of each width and byte order, else all."""
    if cell.tier != "quick":
        return list(cell.peers)
    fastest: dict[tuple[int, str], Peer] = {}
    for peer in cell.peers.values():
        target = peer.runner.target
        kind = target.width_bits, str(target.endianness)
        if kind not in fastest or target.slowdown < fastest[kind].runner.target.slowdown:
            fastest[kind] = peer
    return [peer.runner.target.name for peer in fastest.values()]
