"""Progress messages: on standard error only, so that standard output remains one document."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from harness.core.untrusted_text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator


class Progress:
    """Messages and timed stages. Several threads may use it."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
        self.stages: dict[str, float] = {}
        """Stage -> seconds spent in it so far."""

    def fresh(self) -> Progress:
        """A progress on the same console, without stages."""
        return Progress(self.console)

    def say(self, text: str) -> None:
        """Print a line with the time of day."""
        self.console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {escape(visible(text))}")

    @contextmanager
    def stage(self, name: str, activity: str) -> Iterator[None]:
        """Announce an activity and how long it took. Durations of the same stage name add up."""
        started = time.monotonic()
        self.say(f"{activity} …")
        done = False
        try:
            yield
            done = True
        finally:
            seconds = time.monotonic() - started
            self.stages[name] = round(self.stages.get(name, 0.0) + seconds, 2)
            self.say(f"{activity} {'took' if done else 'stopped after'} {seconds:.1f} s")
