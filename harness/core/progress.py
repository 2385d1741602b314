"""Progress messages: on standard error only, so that standard output remains one document.

A stage is never silent for long. On a terminal, one line at the bottom shows how far the running stages are. Elsewhere,
such as in a CI system's log, a plain line does so periodically.
"""

from __future__ import annotations

import contextlib
import threading
import time
from functools import cache
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from harness.core.untrusted_text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SILENT_SECONDS = 12.0
"""Without a moving line, a stage reports its progress after this time of silence. The documents promise 15 s."""
TICK_SECONDS = 1.0
"""The time between two updates of the moving line."""


class Activity:
    """A running activity, and its progress."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.started = time.monotonic()
        self.shown = self.started
        """When the last line about it was printed."""
        self._state: Callable[[], str] | None = None

    def shows(self, state: Callable[[], str]) -> None:
        """Make the stage report its progress with `state`, which another thread calls, at most once a second."""
        self._state = state

    def describe(self) -> str:
        """The activity and its state, or how long it has taken so far."""
        state = ""
        # A file that the state is read from may disappear when the stage ends.
        with contextlib.suppress(OSError):
            state = self._state() if self._state else ""
        return f"{self.name}: {state or f'{time.monotonic() - self.started:.0f} s so far'}"


class _Display:
    """The running stages on one console. Several threads may use it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._lock = threading.RLock()
        self._stages: list[Activity] = []
        self._ticker: threading.Thread | None = None
        self._drawn = False

    @property
    def moves(self) -> bool:
        """Whether a line can move. It cannot in a file or in a CI system's log, even if that supports colours."""
        return self.console.file.isatty() and not self.console.is_dumb_terminal

    def say(self, text: str) -> None:
        with self._lock:
            self._erase()
            self.console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {escape(visible(text))}")
            if len(self._stages) == 1:
                # With several, the line may be about another one.
                self._stages[0].shown = time.monotonic()

    def begin(self, stage: Activity) -> None:
        with self._lock:
            self._stages.append(stage)
            if not self.moves:
                self.say(f"{stage.name} …")
            if self._ticker is None:
                ticker = threading.Thread(target=self._tick, name="progress", daemon=True)
                # If the machine allows no more threads, only these lines are lost.
                with contextlib.suppress(RuntimeError):
                    ticker.start()
                    self._ticker = ticker

    def end(self, stage: Activity) -> None:
        with self._lock:
            self._stages.remove(stage)
            self._erase()

    def _tick(self) -> None:
        """Report the progress of the stages until none is left."""
        while True:
            time.sleep(TICK_SECONDS)
            with self._lock:
                if not self._stages:
                    self._ticker = None
                    return
                now = time.monotonic()
                if self.moves:
                    self._draw("; ".join(stage.describe() for stage in self._stages))
                elif any(now - stage.shown >= SILENT_SECONDS for stage in self._stages):
                    self.say("; ".join(stage.describe() for stage in self._stages))
                    for stage in self._stages:
                        stage.shown = now

    def _draw(self, text: str) -> None:
        """Write the moving line. It is cut to the terminal's width: a line that wraps could not be erased."""
        line = Text(visible(text).replace("\n", " "))
        line.truncate(self.console.width - 1, overflow="ellipsis")
        self._write(f"\r\x1b[2K{line.plain}")
        self._drawn = True

    def _erase(self) -> None:
        if self._drawn:
            self._write("\r\x1b[2K")
            self._drawn = False

    def _write(self, text: str) -> None:
        self.console.file.write(text)
        self.console.file.flush()


@cache
def _on_standard_error() -> _Display:
    """The display that all messages share: two of them would write into each other's line."""
    return _Display(Console(stderr=True, highlight=False, emoji=False, soft_wrap=True))


class Progress:
    """Messages and timed stages. Several threads may use it."""

    def __init__(self, console: Console | None = None, *, display: _Display | None = None, label: str = "") -> None:
        self._display = display or (_Display(console) if console else _on_standard_error())
        self._label = label
        self.stages: dict[str, float] = {}
        """Stage -> seconds spent in it so far."""
        self.processor_seconds: dict[str, float] = {}
        """Stage -> processor time of this process meanwhile. Concurrent stages share it."""

    @property
    def console(self) -> Console:
        """Where the messages go."""
        return self._display.console

    def fresh(self, label: str) -> Progress:
        """A progress on the same console, without stages, whose messages begin with `label`."""
        return Progress(display=self._display, label=label)

    def say(self, text: str) -> None:
        """Print a line with the time of day."""
        self._display.say(f"{self._label}{text}")

    @contextlib.contextmanager
    def stage(self, name: str, activity: str) -> Iterator[Activity]:
        """Announce an activity, its progress, and how long it took. Durations of the same stage name add up."""
        stage = Activity(f"{self._label}{activity}")
        self._display.begin(stage)
        used = time.process_time()
        done = False
        try:
            yield stage
            done = True
        finally:
            seconds = time.monotonic() - stage.started
            self._display.end(stage)
            self.stages[name] = round(self.stages.get(name, 0.0) + seconds, 2)
            used = time.process_time() - used
            self.processor_seconds[name] = self.processor_seconds.get(name, 0.0) + used
            self.say(f"{activity} {'took' if done else 'stopped after'} {seconds:.1f} s")
