"""Shortens a failing stream: fewer commands first, then shorter words. Pure except for the predicate it receives.

It is delta debugging (Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input, 2002), preceded by a few
guesses from the structure of a stream. Every attempt may require a new guest, so their number and time are limited.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.protocol.command_stream import Command, Stream

    Fails = Callable[[Stream], bool]


class Shrinker:
    """Shortens one failing stream. `fails` says whether a candidate still fails in the same way."""

    def __init__(self, fails: Fails, *, seconds: float, tries: int) -> None:
        self._fails = fails
        self._deadline = time.monotonic() + seconds
        self._left = tries
        self._tried: set[Stream] = set()
        self.tries = 0

    def shrink(self, stream: Stream, index: int) -> Stream:
        """The shortest failing stream found. `index`: the command that failed, or the last one that can have failed."""
        self._tried.add(stream)
        best = self._first(_guesses(stream, index)) or stream
        best = self._fewer(best)
        best = self._simpler(best)
        return self._fewer(best)

    def _holds(self, candidate: Stream) -> bool:
        if not candidate or candidate in self._tried or self._left <= 0 or time.monotonic() > self._deadline:
            return False
        self._tried.add(candidate)
        self._left -= 1
        self.tries += 1
        return self._fails(candidate)

    def _first(self, candidates: Iterator[Stream]) -> Stream | None:
        return next((candidate for candidate in candidates if self._holds(candidate)), None)

    def _fewer(self, stream: Stream) -> Stream:
        """Remove runs of commands: halves, quarters and so on, until every single command is necessary."""
        size = max(1, len(stream) // 2)
        while True:
            place = 0
            while place < len(stream):
                candidate = stream[:place] + stream[place + size :]
                if self._holds(candidate):
                    stream = candidate
                else:
                    place += size
            if size == 1:
                return stream
            size = max(1, size // 2)

    def _simpler(self, stream: Stream) -> Stream:
        """Simplify commands one after the other: send them in one write, with fewer and shorter words."""
        together = tuple(msgspec.structs.replace(one, waits=False) for one in stream)
        if together != stream and self._holds(together):
            stream = together
        for place in range(len(stream)):
            while True:
                plainer = self._first((*stream[:place], one, *stream[place + 1 :]) for one in _plainer(stream[place]))
                if plainer is None:
                    break
                stream = plainer
        return stream


def _guesses(stream: Stream, index: int) -> Iterator[Stream]:
    """Likely candidates: the failing command alone, with earlier commands that share a word, or with all."""
    last = stream[index]
    related = {index}
    words = set(last.words[1:])
    for place in range(index - 1, -1, -1):
        if words & set(stream[place].words[1:]):
            related.add(place)
            words |= set(stream[place].words[1:2])
    settings = {place for place in range(index) if stream[place].name == "CONFIG"}
    yield (last,)
    yield tuple(stream[place] for place in sorted(related))
    yield tuple(stream[place] for place in sorted(related | settings))
    yield stream[: index + 1]


def _plainer(one: Command) -> Iterator[Command]:
    """The command with fewer or shorter words. Every candidate is smaller, so the search ends."""
    words = one.words
    if len(words) > 8:
        half = 2 + (len(words) - 2) // 4 * 2
        yield msgspec.structs.replace(one, words=words[:half])
        yield msgspec.structs.replace(one, words=words[:2] + words[half:])
    for place in range(1, len(words)):
        word = words[place]
        if len(word) > 8:
            for shorter in (word[: len(word) // 2], word[:-1]):
                yield msgspec.structs.replace(one, words=(*words[:place], shorter, *words[place + 1 :]))
        elif len(set(word)) > 1 and not word.isascii():
            yield msgspec.structs.replace(one, words=(*words[:place], b"a" * len(word), *words[place + 1 :]))
