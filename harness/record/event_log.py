"""A cell's events.jsonl: the writer that adds lines while tests run, and the reader that reports missing lines.

The first line has the number of tests. The last line has the number that ended, and a digest of the lines before it.
These two lines reveal a cut, lost or changed line: a judgement must respect `doubts`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.errors import ABSENT_FILE, InfrastructureError
from harness.core.model import Record
from harness.record.cell_events import CollectedEvent, EndEvent, Event, GuestEvent, ProcessorTime, TestEvent

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAME = "events.jsonl"
Line = Event | CollectedEvent | EndEvent


class EventLog:
    """The only writer of a cell's events. It writes nothing more after a line that it could not write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = 0
        self._digest = hashlib.sha256()
        self._is_broken = False

    def append(self, event: Line) -> None:
        """Add a line. Raises InfrastructureError if this line or an earlier one could not be written."""
        line = json_codec.encode(event) + b"\n"
        if not self._is_broken:
            try:
                with self.path.open("ab", buffering=0) as stream:
                    self._is_broken = stream.write(line) != len(line)
            except OSError as error:
                self._is_broken = True
                raise _unwritten(self.path, error.strerror or str(error)) from error
        if self._is_broken:
            raise _unwritten(self.path, "a line was cut short")
        self._lines += 1
        self._digest.update(line)

    def close(
        self,
        *,
        tests: int,
        failed: int,
        processor_seconds: float = 0.0,
        processor: ProcessorTime | None = None,
        blocks: tuple[int, ...] = (),
    ) -> None:
        """Write the last line: how many tests ended, how many of them failed, and their cost. `blocks`: as in
        EndEvent.
        """
        end = EndEvent(
            tests=tests,
            failed=failed,
            lines=self._lines,
            digest=self._digest.hexdigest(),
            processor_seconds=round(processor_seconds, 2),
            processor=processor,
            blocks=blocks,
        )
        self.append(end)


class Recorded(Record, frozen=True):
    """The content of an event log."""

    events: list[Event]
    """Tests and guests, in the order in which they were written."""
    failed: int
    """How many of the collected tests failed, according to the last line."""
    doubts: list[str]
    """Human-readable reasons why events may be missing; empty if every collected test ended."""
    processor_seconds: float = 0.0
    """Processor time of the tests, according to the last line."""
    processor: ProcessorTime | None = None
    """The same by consumer."""
    blocks: tuple[int, ...] = ()
    """As in EndEvent."""


def read(path: Path) -> Recorded:
    """The events of all complete lines, and a doubt for each problem with the others."""
    try:
        content = path.read_bytes()
    except ABSENT_FILE:
        return Recorded(events=[], failed=0, doubts=[f"there is no {path.name}"])
    *lines, rest = content.split(b"\n")
    decoded = [_decoded(line) for line in lines]
    cut = [f"{path.name} ends in the middle of a line"] if rest else []
    last = decoded[-1] if decoded else None
    end = last if isinstance(last, EndEvent) else None
    return Recorded(
        events=[one for one in decoded if isinstance(one, TestEvent | GuestEvent)],
        failed=end.failed if end else 0,
        processor_seconds=end.processor_seconds if end else 0.0,
        processor=end.processor if end else None,
        blocks=end.blocks if end else (),
        doubts=[*cut, *_doubts(path, lines, decoded)],
    )


def _doubts(path: Path, lines: Sequence[bytes], decoded: Sequence[Line | None]) -> list[str]:
    """What is wrong with the complete lines of a log."""
    doubts = [f"line {number} of {path.name} is damaged" for number, one in enumerate(decoded, 1) if one is None]
    first = decoded[0] if decoded else None
    last = decoded[-1] if decoded else None
    collected = first.tests if isinstance(first, CollectedEvent) else None
    if collected is None:
        doubts.append(f"{path.name} does not say how many tests there are")
    if isinstance(last, EndEvent):
        before = b"".join(line + b"\n" for line in lines[:-1])
        if (last.lines, last.digest) != (len(lines) - 1, hashlib.sha256(before).hexdigest()):
            doubts.append(f"{path.name} differs from what was written")
        elif collected is not None and last.tests != collected:
            doubts.append(f"{last.tests} of {collected} tests came to an end")
    else:
        doubts.append("its test process left no word of its end")
    return doubts


def read_events(path: Path) -> list[Event]:
    """The tests and guests of a log, even of an incomplete one."""
    return read(path).events


def _decoded(line: bytes) -> Line | None:
    try:
        return json_codec.decode(line, Line)  # type: ignore[arg-type]
    except msgspec.DecodeError:
        return None


def _unwritten(path: Path, because: str) -> InfrastructureError:
    return InfrastructureError(
        "the evidence cannot be written", where=str(path), because=because, remedy="free some space, then run again"
    )
