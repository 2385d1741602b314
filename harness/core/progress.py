"""What `plumb` says while it works: on standard error only, so that standard output stays a document."""

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
    """Stage lines with durations, safe to use from several threads."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
        self.stages: dict[str, float] = {}

    def fresh(self) -> Progress:
        """Another that says on the same console, and has no stages yet."""
        other = Progress()
        other.console = self.console
        return other

    def say(self, text: str) -> None:
        """One line, with the time since nothing in particular: the wall clock."""
        self.console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {escape(visible(text))}")

    @contextmanager
    def stage(self, name: str, what: str) -> Iterator[None]:
        """Announce work that takes a while, and how long it took (seconds, added up by stage name)."""
        started = time.monotonic()
        self.say(f"{what} …")
        done = False
        try:
            yield
            done = True
        finally:
            seconds = time.monotonic() - started
            self.stages[name] = round(self.stages.get(name, 0.0) + seconds, 2)
            self.say(f"{what} {'took' if done else 'stopped after'} {seconds:.1f} s")
