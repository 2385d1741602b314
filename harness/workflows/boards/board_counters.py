"""Whether a board's kernel counts misaligned accesses, and its user may read that: an audit there needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.errors import InfrastructureError
from harness.run.boards.reached_machine import ReachedMachine

if TYPE_CHECKING:
    from harness.run.boards.board_image import BoardImage


_REMEDY = "plumb audit --target {}, which emulates the machine"


def refuse_uncounted(image: BoardImage) -> None:
    """Raise InfrastructureError if nothing there tells how many misaligned accesses the kernel repairs."""
    if image.board.runs_already:
        raise InfrastructureError(
            "the board cannot be audited",
            where=image.file,
            because="without `start`, nothing reads its kernel's counters",
            remedy=_REMEDY.format(image.board.target),
        )
    host = ReachedMachine(image)
    try:
        counters = host.machine().counters()
    finally:
        host.close()
    if counters is None:
        file = image.counting_file
        raise InfrastructureError(
            "the board cannot be audited",
            where=host.shell.shown,
            because=f"its user cannot read {file}" if file else "Linux counts no misaligned accesses on this machine",
            remedy=_REMEDY.format(image.board.target),
        )
