"""Finds where two byte strings differ, and defines the error by which a test reports this.

Also tells whether the messages of failures differ only by what differs from run to run: folders, and what chance
decides.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.finding import Difference, Reproduction

SHOWN_BYTES = 16
"""The number of bytes of each side that a message shows."""
_WORD = re.compile(r"\w+|\W")


class DifferenceError(AssertionError):
    """Bytes differ from the expected ones. Tests raise this error, and the cell's evidence keeps its content."""

    def __init__(self, message: str, difference: Difference, again: Reproduction | None = None) -> None:
        super().__init__(f"{message}; {described(difference)}")
        self.difference = difference
        self.again = again
        """How to reproduce it; None: by the test's requests, like any failed test."""


def parted(expected: Sequence[object], actual: Sequence[object]) -> int:
    """The offset of the first byte, or other item, that differs; -1 if all are equal."""
    if expected == actual:
        return -1
    shorter = min(len(expected), len(actual))
    return next((at for at in range(shorter) if expected[at] != actual[at]), shorter)


def excerpt(content: bytes, at: int) -> str:
    """The bytes from an offset on, at most SHOWN_BYTES, as hexadecimal digits."""
    return content[at : at + SHOWN_BYTES].hex()


def described(difference: Difference) -> str:
    """The difference in one line."""
    place = f"byte {difference.offset} of {difference.where}" if difference.offset >= 0 else difference.where
    function = f", which {difference.function} writes" if difference.function else ""
    bytes_shown = f": {difference.actual or 'nothing'}, due {difference.expected or 'nothing'}"
    return (
        f"{place}, {difference.record}{function}{bytes_shown if difference.actual or difference.expected else ''}; "
        f"written by {difference.writer}, read by {difference.reader}"
    )


def without_places(message: str) -> str:
    """A message without log line prefixes, folders of files, and lines of sources, which a change moves."""
    plain = re.sub(r"\d+:[A-Z] \d+ \w+ \d+ [\d:.]+ ", "", message)
    return re.sub(r"(\.(?:c|h|tcl|py)):\d+", r"\1", re.sub(r"/\S*/", "", plain))


def by_chance(message: str, runs: Iterable[str]) -> bool:
    """Whether a message differs from those of the reference's runs only where these differ from each other.

    Messages of as many words are compared word by word. Otherwise everything from the first difference of the runs to
    the last is due to chance, and nothing else.
    """
    text = _WORD.findall(message)
    words = [_WORD.findall(run) for run in dict.fromkeys(runs)]
    if len(words) < 2:
        return text in words
    if {len(each) for each in words} == {len(text)}:
        return all(
            word in at_place or len(at_place) > 1
            for word, at_place in zip(text, map(set, zip(*words, strict=True)), strict=True)
        )
    first, *others = words
    head = min(parted(first, other) for other in others)
    least = min(map(len, words))
    tail = min(least - head, *(parted(first[::-1], other[::-1]) for other in others))
    same_ends = text[:head] == first[:head] and text[len(text) - tail :] == first[len(first) - tail :]
    return same_ends and len(text) >= head + tail
