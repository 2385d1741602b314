"""Reports the progress of a build: the completed steps, and the remaining time. Both come from the cache's history of
earlier builds.

A history is one small file for each kind of build, which the next build replaces. It affects only messages, so it has
no seal.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from harness.core import json_codec
from harness.core.cache import Cache, write_whole
from harness.core.model import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from harness.core.progress import Activity, Progress

KIND = "history"
_TAIL_BYTES = 4096
_TRUSTED_SHARE = 1 / 3
"""The share of all steps after which only the build's own pace counts: the first files belong to the dependencies."""


class Past(Record, frozen=True):
    """The last build of a kind."""

    steps: int
    """The number of its steps; 0 if they cannot be counted."""
    seconds: float


class Steps(NamedTuple):
    """The progress of a build."""

    done: int
    total: int = 0
    """The number of all steps; 0 if it is unknown."""


@contextlib.contextmanager
def counted_stage(
    cache: Cache, progress: Progress, stage: str, activity: str, *, history: Sequence[str], verb: str = ""
) -> Iterator[BuildProgress]:
    """A stage of the progress that says how far a build is, and becomes its history if it succeeds.

    `history` names the kind of build in parts, the most general first: if exactly this kind was never built, the latest
    build of the next more general kind counts. `verb` describes a step: `compiling`.
    """
    with progress.stage(stage, activity) as shown:
        build = BuildProgress(cache, shown, history, verb)
        shown.shows(build.state)
        yield build
        build.remember()


class BuildProgress:
    """A build that continues."""

    def __init__(self, cache: Cache, stage: Activity, history: Sequence[str], verb: str) -> None:
        self._file = cache.path(KIND, f"{'-'.join(history)}.json")
        self._past = _past(self._file, history)
        self._stage = stage
        self._verb = verb
        self._steps: Callable[[], Steps] = lambda: Steps(0)
        self._afterwards: tuple[str, Callable[[], Steps]] | None = None

    def counts(self, steps: Callable[[], Steps]) -> None:
        """Set the function that counts the steps. Another thread calls it."""
        self._steps = steps

    def goes_on(self, verb: str, steps: Callable[[], Steps] = lambda: Steps(0)) -> None:
        """Announce the work after the build, with its own steps. They do not affect the estimate of the remaining
        time.
        """
        self._afterwards = (verb, steps)

    def state(self) -> str:
        """`compiling 43/97, about 40 s left`. The total and the time are omitted if they are unknown."""
        seconds = time.monotonic() - self._stage.started
        if self._afterwards is not None:
            verb, steps = self._afterwards
            done, total = steps()
            return f"{verb} {done}/{total}, {seconds:.0f} s so far" if total else f"{verb}, {seconds:.0f} s so far"
        done, total = self._steps()
        if self._past is not None:
            total = total or self._past.steps
        known = 0 < done <= total
        counted = f"{self._verb} {done}/{total}" if known else f"{self._verb} {done}" if done else ""
        left = seconds_left(seconds, done / total if known else 0.0, self._past.seconds if self._past else 0.0)
        return ", ".join(filter(None, [counted, f"about {_rounded(left)} left" if left else f"{seconds:.0f} s so far"]))

    def remember(self) -> None:
        """Store the build as the last of its kind."""
        seconds = round(time.monotonic() - self._stage.started, 1)
        # A message is not worth an error.
        with contextlib.suppress(OSError):
            past = Past(steps=self._steps().done, seconds=seconds)
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file, json_codec.pretty(past))


def seconds_left(seconds: float, share: float, before: float) -> float:
    """The estimate of a build's remaining time after `seconds`, of which `share` of the steps took all.

    `before`: how long the last build of its kind took, in seconds. 0 if both are unknown. The weight of the build's own
    pace increases with its progress: it may find all its objects in the compilers' cache, or none.
    """
    by_history = max(before * (1 - share) if share else before - seconds, 0.0)
    if not share:
        return by_history
    by_pace = seconds * (1 - share) / share
    trust = min(1.0, share / _TRUSTED_SHARE) if before else 1.0
    return trust * by_pace + (1 - trust) * by_history


def _rounded(seconds: float) -> str:
    return f"{round(seconds / 60)} min" if seconds >= 90 else f"{max(5, round(seconds / 5) * 5)} s"


def _past(file: Path, history: Sequence[str]) -> Past | None:
    """The last build of this kind, or of the next more general one; None if there is none."""
    names = [file.name, *(f"{'-'.join(history[:known])}-*.json" for known in range(len(history) - 1, 0, -1))]
    for name in names:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            files = sorted(file.parent.glob(name), key=lambda path: path.stat().st_mtime)
            if files:
                return json_codec.decode(files[-1].read_bytes(), Past)
    return None


class CompilerCalls:
    """Counts the calls in make's output, a log that grows, that compile a file with one of the wrappers in `work`."""

    def __init__(self, log: Path, work: Path) -> None:
        self._log = log
        self._call = re.compile(rb"^" + re.escape(os.fsencode(work)) + rb"/\S+ (?:.* )?-c(?: |$)", re.MULTILINE)
        self._offset = 0
        self._done = 0

    def __call__(self) -> Steps:
        """The number of calls so far. An incomplete last line counts the next time."""
        with contextlib.suppress(FileNotFoundError), self._log.open("rb") as stream:
            stream.seek(self._offset)
            text = stream.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._offset += len(whole)
            self._done += len(self._call.findall(whole))
        return Steps(self._done)


def ninja_steps(log: Path) -> Steps:
    """The last `[43/97]` at the end of ninja's output."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        found = re.findall(rb"^\[(\d+)/(\d+)\] ", stream.read(), re.MULTILINE)
    return Steps(int(found[-1][0]), int(found[-1][1])) if found else Steps(0)
