"""Where two pieces of bytes part, and the error by which a test says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.core.finding import Difference, Reproduction

SHOWN_BYTES = 16
"""So many bytes of each side are told."""


class DifferenceError(AssertionError):
    """Bytes are not what they must be. A test raises it; the cell's evidence keeps what it says."""

    def __init__(self, message: str, difference: Difference, again: Reproduction | None = None) -> None:
        super().__init__(f"{message}; {described(difference)}")
        self.difference = difference
        self.again = again
        """How it is shown again; None: as every failed test, by its requests."""


def parted(expected: bytes, actual: bytes) -> int:
    """The offset of the first byte that differs; -1 if none does."""
    if expected == actual:
        return -1
    shorter = min(len(expected), len(actual))
    return next((at for at in range(shorter) if expected[at] != actual[at]), shorter)


def excerpt(content: bytes, at: int) -> str:
    """Some bytes from an offset on, as hexadecimal digits."""
    return content[at : at + SHOWN_BYTES].hex()


def described(difference: Difference) -> str:
    """One line for a reader."""
    place = f"byte {difference.offset} of {difference.where}" if difference.offset >= 0 else difference.where
    function = f", which {difference.function} writes" if difference.function else ""
    bytes_told = f": {difference.actual or 'nothing'}, due {difference.expected or 'nothing'}"
    return (
        f"{place}, {difference.record}{function}{bytes_told if difference.actual or difference.expected else ''}; "
        f"written by {difference.writer}, read by {difference.reader}"
    )
