"""Streams of commands: guest, native build and model must agree, whatever is sent in whatever order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suites.fuzz.session import Session

if TYPE_CHECKING:
    from harness.protocol.command_stream import Stream
    from harness.run.cell_session import CellRun


def test_streams(cell_run: CellRun, defaults: dict[str, Stream]) -> None:
    session = Session(cell_run, defaults, name="streams", share=0.75, learns=True)
    while session.more():
        session.example(session.corpus.next_old() or session.guide.next())
    session.conclude()
