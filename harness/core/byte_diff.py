"""Finds where two byte strings differ, and defines the error by which a test reports this.

Also tells whether the messages of failures differ only by what differs from run to run: folders, and what chance
decides.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def by_chance(message: str, first: str, second: str) -> bool:
    """Whether a message differs from that of the reference's first run only where its second run differs as well.

    Messages of as many words are compared word by word. Otherwise everything from the first difference of both runs to
    the last is due to chance, and nothing else.
    """
    text, old, other = (_WORD.findall(each) for each in (message, first, second))
    if old == other:
        return text == old
    if len(text) == len(old) == len(other):
        return all(word == before or before != after for word, before, after in zip(text, old, other, strict=True))
    head = parted(old, other)
    tail = min(parted(old[::-1], other[::-1]), min(len(old), len(other)) - head)
    same_ends = text[:head] == old[:head] and text[len(text) - tail :] == old[len(old) - tail :]
    return same_ends and len(text) >= head + tail
