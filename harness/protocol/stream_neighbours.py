"""Draws the neighbours of a stream: streams that differ from it in one command, or in one word of a command.

If a stream has a wrong reply, some of its neighbours also have it and others do not. Code that only the former execute
is close to the fault.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.protocol.command_stream import Command, Stream

_NUMBERS = (b"0", b"1", b"2", b"-1", b"1000")
_TEXTS = (b"", b"a", b"ab", b"x" * 20)
"""Words in place of another one. Short and long texts, and small and large numbers, are stored in different ways."""


def neighbours(stream: Stream) -> Iterator[Stream]:
    """The neighbours of a stream, all different: alternately with less and with other words, the latest commands
    first.
    """
    seen = {stream}
    ways = [_without(stream), _beginnings(stream), _alone(stream), _with_other_words(stream)]
    for drawn in itertools.zip_longest(*ways):
        for candidate in drawn:
            if candidate and candidate not in seen:
                seen.add(candidate)
                yield candidate


def with_fewer_commands(stream: Stream) -> Iterator[Stream]:
    """The neighbours of a stream that lack some of its commands, no two alike."""
    yield from dict.fromkeys(
        candidate for candidate in itertools.chain(_without(stream), _beginnings(stream), _alone(stream)) if candidate
    )


def _without(stream: Stream) -> Iterator[Stream]:
    for place in reversed(range(len(stream))):
        yield stream[:place] + stream[place + 1 :]


def _beginnings(stream: Stream) -> Iterator[Stream]:
    for end in reversed(range(1, len(stream))):
        yield stream[:end]


def _alone(stream: Stream) -> Iterator[Stream]:
    for one in reversed(stream):
        yield (msgspec.structs.replace(one, client=0, waits=False),)


def _with_other_words(stream: Stream) -> Iterator[Stream]:
    """One word changed. The commands take turns, so a few draws reach each of them."""
    drawn = [_others(one) for one in reversed(stream)]
    for round_ in itertools.zip_longest(*drawn):
        for back, other in enumerate(round_, 1):
            if other is not None:
                place = len(stream) - back
                yield (*stream[:place], other, *stream[place + 1 :])


def _others(one: Command) -> Iterator[Command]:
    words = one.words
    for place in reversed(range(1, len(words))):
        word = words[place]
        is_number = word.removeprefix(b"-").isdigit()
        for other in (*_NUMBERS, *_TEXTS) if is_number else (*_TEXTS, *_NUMBERS):
            if other != word:
                yield msgspec.structs.replace(one, words=(*words[:place], other, *words[place + 1 :]))
    if len(words) > 2:
        yield msgspec.structs.replace(one, words=words[:-1])
