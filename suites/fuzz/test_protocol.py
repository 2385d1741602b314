"""Damaged protocol and noise: the server may reply with errors and close the connection, but must not die."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.protocol.command_stream import wire
from suites.fuzz.corrupt import damaged_protocol
from suites.fuzz.generate import generate
from suites.fuzz.session import FuzzSession

if TYPE_CHECKING:
    from harness.run.session.cell_session import CellSession
    from suites.fuzz.emptying import Emptying


def test_noise(cell_run: CellSession, emptying: Emptying) -> None:
    session = FuzzSession(cell_run, emptying, name="protocol", share=0.05, cost=2)
    while session.more():
        session.noise(damaged_protocol(wire(generate(session.random)[:10]), session.random))
    session.conclude()
