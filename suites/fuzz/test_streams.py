"""Streams of commands: guest, native build and model must agree, whatever is sent in whatever order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suites.fuzz.generate import generate, mutate, splice
from suites.fuzz.session import Session

if TYPE_CHECKING:
    from harness.pytest_plugin import CellRun
    from harness.stream import Stream


def test_streams(cell_run: CellRun, defaults: dict[str, Stream]) -> None:
    session = Session(cell_run, defaults, name="streams", share=0.75, learns=True)
    while session.more():
        session.example(session.corpus.next_old() or _new(session))
    session.conclude()


def _new(session: Session) -> Stream:
    """From the grammar alone, or from what was kept because it did something new."""
    random, kept = session.random, session.corpus.streams
    chance = random.random()
    if len(kept) < 8 or chance < 0.5:
        return generate(random)
    first, second = random.choice(kept), random.choice(kept)
    return mutate(first, second, random) if chance < 0.85 else splice(first, second, random)
