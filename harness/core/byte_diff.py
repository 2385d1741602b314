"""Finds where two byte strings differ, and defines the error by which a test reports this."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.finding import Difference, Reproduction

SHOWN_BYTES = 16
"""The number of bytes of each side that a message shows."""


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
