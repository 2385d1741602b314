"""Chooses the targets of a run with which a cell exchanges files or commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec, PeerServer


def writers(cell: CellSpec) -> list[str]:
    """The targets whose files a cell reads: the native build in the quick and the kernel tier, otherwise all targets.

    The independent reader reads the cell's own file, too: a correct file needs no comparison with the native build's.
    """
    return ["native"] if cell.tier in {"quick", "kernel"} else list(cell.peers)


def companions(cell: CellSpec) -> list[str]:
    """The targets with which a cell's servers communicate: the fastest target of each width and byte order."""
    fastest: dict[tuple[int, str], PeerServer] = {}
    for peer in cell.peers.values():
        target = peer.runner.target
        kind = target.width_bits, str(target.endianness)
        if kind not in fastest or target.slowdown < fastest[kind].runner.target.slowdown:
            fastest[kind] = peer
    return [peer.runner.target.name for peer in fastest.values()]
