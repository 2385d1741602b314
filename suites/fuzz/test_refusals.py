"""Every command of the grammar with one word wrong: it is refused, or not, as by the native build."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suites.fuzz.generate import lines_of_one, refused
from suites.fuzz.session import FuzzSession
from suites.fuzz.values import Draw

if TYPE_CHECKING:
    from harness.protocol.command_stream import Stream
    from harness.run.cell_session import CellSession


def test_refusals(cell_run: CellSession, defaults: dict[str, Stream]) -> None:
    session = FuzzSession(cell_run, defaults, name="refusals", share=0.3, cost=3)
    lines = lines_of_one()
    session.random.shuffle(lines)
    for line in lines:
        if not session.more():
            break
        session.example(refused(line, Draw(session.random)))
    session.conclude()
