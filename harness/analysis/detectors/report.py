"""A report of any detector: what it says, and frames of the server's own. It reads nobody's format."""

from __future__ import annotations

import re
from typing import Literal

from harness.analysis.symbols import place_in_object, place_in_tree
from harness.core.finding import Frame
from harness.core.model import Detector, Record


class Line(Record, frozen=True):
    """A line of a log, and where it begins, in bytes."""

    text: str
    offset: int


class Report(Record, frozen=True):
    """One error as a detector reports it. The same place is reported once a process, however often it errs."""

    detector: Detector
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
    """Innermost first, at least one. They begin in the server's own code if any of them is in it."""
    fatal: bool
    """The process ends of it."""
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


_RUNTIME = re.compile(r"libsanitizer/|lib(a|ub)san\.so|vgpreload_|vg_replace_")


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


def own_frames(frames: list[Frame]) -> tuple[list[Frame], str]:
    """Frames from the server's own innermost on, and the library function that it had called; else all of them.

    A library's function serves everybody: an error in it is told apart by who called it. What belongs to the detector
    itself is no part of the program.
    """
    program = list(frames)
    while program and _RUNTIME.search(program[0].file):
        program.pop(0)
    first = next((n for n, frame in enumerate(program) if frame.origin.partition("/")[0] in {"server", "bundled"}), 0)
    left = program[first:] or [Frame(function="??", file="??", line=0, origin="unknown", pc=0)]
    skipped = frames[: len(frames) - len(program) + first]
    through = skipped[-1].function.removeprefix("__interceptor_") if skipped else ""
    return left, through


def without_addresses(message: str) -> str:
    """A message without what differs from run to run."""
    return re.sub(r"0x[0-9a-fA-F]+", "…", message)
