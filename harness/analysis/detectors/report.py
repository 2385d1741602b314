"""A report of any detector. It knows no detector's format."""

from __future__ import annotations

import re
from typing import Literal

from harness.analysis.symbols import place_in_object, place_in_tree
from harness.core.finding import Frame
from harness.core.model import Record


class Line(Record, frozen=True):
    """A line of a log, and where it begins, in bytes."""

    text: str
    offset: int


class Report(Record, frozen=True):
    """One error as a detector reports it. The same place is reported once a process, however often it errs."""

    detector: str
    kind: str
    """`alignment`; `undefined-` and GCC's -fsanitize= name; `asan-`, `memcheck-` and the tool's own name."""
    message: str
    """What the detector says, without addresses and process numbers."""
    direction: Literal["load", "store", ""]
    size_bytes: int
    """Of the access; 0 where it is not told."""
    alignment_bytes: int
    """Demanded; 0 where the error is another one."""
    modulo: int
    """The address modulo the alignment demanded."""
    type: str
    """The C type of the object, as the compiler writes it; empty where it is not told."""
    column: int
    """Of the line of the innermost frame; 0 where it is not told."""
    through: str
    """The library function in which it happened, where the frames begin with its caller in the server."""
    frames: list[Frame]
    """Innermost first. A detector's reader gives the whole stack; `registry.reports` leaves it at least one frame, and
    the server's own innermost frame first if there is one."""
    fatal: bool
    """Whether the error ends the process."""
    offset: int
    """Where the report begins in the text, in bytes."""

    @property
    def access(self) -> str:
        """The misaligned access in a phrase, or what the detector says."""
        if self.kind != "alignment":
            return self.message
        what = f"{self.direction} of" if self.direction else "member access in"
        return f"{what} {self.type} at {self.modulo} mod {self.alignment_bytes}, column {self.column}"

    @property
    def identity(self) -> str:
        """What findings are told apart by; the same as a trapped access' for a misaligned load or store."""
        return "-".join(part for part in (self.kind, self.frames[0].function, self.direction) if part)


_OBJECT = re.compile(r"\.so(\.[0-9.]+)?$")
"""A frame's place where the object has no line tables."""


def frames_of(found: list[tuple[int, str, str, int]]) -> list[Frame]:
    """Frames of (address, function, file, line): those at one address were inlined, each into the next."""
    frames = []
    for number, (pc, function, file, line) in enumerate(found):
        path, origin = place_in_object("??", file) if _OBJECT.search(file) else place_in_tree(file)
        inlined = number + 1 < len(found) and found[number + 1][0] == pc
        frames.append(Frame(function=function, file=path, line=line, origin=origin, pc=pc, inlined=inlined))
    return frames


def without_addresses(message: str) -> str:
    """A message without what differs from run to run."""
    return re.sub(r"0x[0-9a-fA-F]+", "…", message)
