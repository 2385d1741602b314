"""Represents a report of any detector, and knows no detector's format."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from harness.analysis.symbols import place_in_object, place_in_tree
from harness.core.finding import Frame
from harness.core.model import Record


class Line(Record, frozen=True):
    """A line of a log and its start in bytes.

    A report may begin in its middle: the program has written a line without its end, as a test does before its result.
    """

    text: str
    offset: int

    def place_of(self, character: int) -> int:
        """The offset in the log, in bytes, of a character of the line; a smaller one after bytes that are not UTF-8."""
        return self.offset + len(self.text[:character].replace("\ufffd", "?").encode())


class Report(Record, frozen=True):
    """One error as a detector reports it. A process reports each place once, however often the error occurs there."""

    detector: str
    kind: str
    """`alignment`; `undefined-` and GCC's -fsanitize= name; `asan-`, `memcheck-` and the tool's own name."""
    message: str
    """The detector's text, without addresses and process numbers."""
    direction: Literal["load", "store", ""]
    size_bytes: int
    """The size of the access; 0 if unknown."""
    alignment_bytes: int
    """The alignment that the access required; 0 for other errors."""
    modulo: int
    """The address modulo the required alignment."""
    type: str
    """The object's C type, as the compiler writes it; empty if unknown."""
    column: int
    """The column of the innermost frame's line; 0 if unknown."""
    through: str
    """The library function where the error happened, if the frames begin with its caller in the server."""
    frames: list[Frame]
    """Frames, innermost first. A detector's reader supplies the whole stack; `registry.reports` leaves at least one
    frame, the server's innermost first if there is one."""
    fatal: bool
    """Whether the error ends the process."""
    offset: int
    """The report's start in the text, in bytes."""
    against: list[Frame] = msgspec.field(default_factory=list)
    """The frames of the other thread's access, of a data race; else empty."""
    pid: int = 0
    """Number of the process, which may be a child of the server; 0 if the detector does not say."""

    @property
    def access(self) -> str:
        """The misaligned access as a phrase, or the detector's text."""
        if self.kind != "alignment":
            return self.message
        what = f"{self.direction} of" if self.direction else "member access in"
        return f"{what} {self.type} at {self.modulo} mod {self.alignment_bytes}, column {self.column}"

    @property
    def identity(self) -> str:
        """The key that distinguishes findings. A misaligned load or store has the same key as a trapped access."""
        return "-".join(part for part in (self.kind, self.frames[0].function, self.direction) if part)


_OBJECT = re.compile(r"\.so(\.[0-9.]+)?$")
"""The place of a frame in an object without line tables."""


def frames_of(found: list[tuple[int, str, str, int]]) -> list[Frame]:
    """Frames from (address, function, file, line); those at one address were inlined, each into the next."""
    frames = []
    for number, (pc, function, file, line) in enumerate(found):
        path, origin = place_in_object("??", file) if _OBJECT.search(file) else place_in_tree(file)
        inlined = number + 1 < len(found) and found[number + 1][0] == pc
        frames.append(Frame(function=function, file=path, line=line, origin=origin, pc=pc, inlined=inlined))
    return frames


def without_addresses(message: str) -> str:
    """A message without the parts that differ between runs."""
    return re.sub(r"0x[0-9a-fA-F]+", "…", message)
