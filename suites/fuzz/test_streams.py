"""Streams of commands: guest, native build and model must agree on the reply to every command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suites.fuzz.session import FuzzSession

if TYPE_CHECKING:
    from harness.run.session.cell_session import CellSession
    from suites.fuzz.emptying import Emptying


def test_streams(cell_run: CellSession, emptying: Emptying) -> None:
    session = FuzzSession(cell_run, emptying, name="streams", share=0.75, learns=True)
    while session.more():
        session.example(session.next_stream())
    session.conclude()
