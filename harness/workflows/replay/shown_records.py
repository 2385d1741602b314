"""A replay's faults, failed assertions and reports as text: one with its stack, and one line for each other place."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from harness.analysis.detectors.registry import own_frames
from harness.core.finding import place_in_file
from harness.core.model import Record

if TYPE_CHECKING:
    from harness.core.finding import Frame

MOST_PLACES = 8


class ShownRecord(Record, frozen=True):
    """A fault, a failed assertion or a detector's report."""

    heading: str
    """Its kind and, after a colon, the part that differs between records of a kind: `SIGBUS: ldr r1, [r3] load of 4
    bytes …`.
    """
    frames: list[Frame]
    same: bool
    """Whether it is the record that the finding describes."""


def lines_of(records: list[ShownRecord]) -> list[str]:
    """The finding's record with its stack, and a line for each other place.

    If no record is the finding's, as with a .stream file, the first record has its stack: later ones are often its
    consequences.
    """
    if not records:
        return []
    main = next((record for record in records if record.same), records[0])
    places = Counter(_kind_and_place(record) for record in records)
    times = places.pop(_kind_and_place(main))
    also = [f"also {_counted(place, count)}" for place, count in places.items()]
    left = len(also) - MOST_PLACES
    more = [f"and in {left} more place{'' if left == 1 else 's'}"] if left > 0 else []
    return [_counted(main.heading, times), *map(_frame, main.frames), *also[:MOST_PLACES], *more]


def _kind_and_place(record: ShownRecord) -> str:
    """`SIGBUS in call (src/server.c:2250)`."""
    frame = own_frames(record.frames)[0][0]
    return f"{record.heading.partition(':')[0]} in {frame.function} ({place_in_file(frame.file, frame.line)})"


def _counted(text: str, times: int) -> str:
    return f"{text} ({times}×)" if times > 1 else text


def _frame(frame: Frame) -> str:
    return f"    {frame.function} ({place_in_file(frame.file, frame.line)}) [{frame.origin}]"
