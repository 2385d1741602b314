"""Which of a run's targets a cell meets."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec, PeerServer


def writers(cell: CellSpec) -> list[str]:
    """Whose files a cell reads: in the quick and the kernel tier the native build's, else everybody's.

    Every cell has its own file read by the independent reader, too: what is right there is as good as native's.
    """
    return ["native"] if cell.tier in {"quick", "kernel"} else list(cell.peers)


def companions(cell: CellSpec) -> list[str]:
    """With whom a cell's servers talk: the fastest target of each width and byte order."""
    fastest: dict[tuple[int, str], PeerServer] = {}
    for peer in cell.peers.values():
        target = peer.runner.target
        kind = target.width_bits, str(target.endianness)
        if kind not in fastest or target.slowdown < fastest[kind].runner.target.slowdown:
            fastest[kind] = peer
    return [peer.runner.target.name for peer in fastest.values()]
