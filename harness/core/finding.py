"""The nouns of what is found: an access, a stack, a difference of bytes, a finding with its witnesses, a verdict."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

import msgspec

from harness.core.model import FileNameOrNone, Name, NameOrNone, Record
from harness.core.target_model import AccessClass  # noqa: TC001 - msgspec reads the annotations when it decodes


class Verdict(IntEnum):
    """Ordered so that merging takes the maximum."""

    SKIP = 0
    XFAIL = 1
    PASS = 2
    UNKNOWN = 3
    FAIL = 4

    @staticmethod
    def merge(verdicts: list[Verdict]) -> Verdict:
        """The worst of several; of none it is UNKNOWN, because silence is never a PASS."""
        return max(verdicts, default=Verdict.UNKNOWN)


Fate = Literal["", "hardware", "fixup", "rotated", "kill"]
"""A misaligned access on its target, when its kernel's fixup is on: done by hardware, repaired by the kernel, or SIGBUS
even then. rotated: repaired too, but with the fixup off and no signal (ARMv5's default) it loads a rotated word."""


class Access(Record, frozen=True):
    """The shape of a misaligned access."""

    direction: Literal["load", "store", ""]
    size_bytes: int
    """0 where it is not known."""
    modulo: int
    """Address modulo the size (modulo 16 where the size is unknown)."""
    access_class: AccessClass | Literal[""] = ""

    def __str__(self) -> str:
        if not self.direction:
            return ""
        size = f"{self.size_bytes} bytes" if self.size_bytes else "unknown size"
        return f"{self.direction} of {size} at {self.modulo} mod {self.size_bytes or 16}"


class Frame(Record, frozen=True):
    """One level of a stack: innermost first; inlined functions are frames of their own."""

    function: str
    file: str
    line: int
    origin: str
    """Whose code it is: `server`, `bundled/NAME`, `driver`, `libc`, `library/NAME` or `unknown` (docs/reference.md)."""
    pc: int
    inlined: bool = False


class Difference(Record, frozen=True):
    """Bytes of a file or a reply that are not what they must be, and what the format has there."""

    where: str
    """The file, or the reply: `dump.rdb`, `reply to DUMP k`."""
    record: str
    """What stands there: `double in sorted set 'z' of database 0`."""
    writer: str
    """The target that wrote them."""
    reader: str
    """Who says otherwise: a target, or `an independent reader`."""
    offset: int = -1
    """Where they part, in bytes from the beginning; -1 where only the record is known."""
    expected: str = ""
    """The bytes that are due from there on, as hexadecimal digits; some."""
    actual: str = ""
    """The bytes that are there."""
    function: str = ""
    """The server's function that writes such a part, by its source; empty where several do."""


class Reproduction(Record, frozen=True):
    """How a difference is shown again: a server of its own is asked, and what comes must have the same wrong bytes."""

    target: Name
    requests: tuple[str, ...]
    """As a stream has them, a line each (harness.protocol.command_stream)."""
    wrong: str
    """Hexadecimal digits of bytes that are wrong."""
    file: FileNameOrNone = ""
    """Where they must be afterwards: a file of its working folder; empty: the last reply."""
    guest: NameOrNone = ""
    """The folder of the guest, in the cell's, that was given files; empty where there were none."""
    options: tuple[str, ...] = ()


class Occasion(Record, frozen=True):
    """One way in which a witness saw it. An entry of the known list has to fit every one of them."""

    test: str
    command: str
    """What the client had asked for."""
    title: str
    """What was said of it there: a finding has the title of one occasion."""
    said: str
    """All that a failed test said; else empty."""
    functions: tuple[str, ...]
    """On the stack, innermost first; empty where nothing tells."""


class Witness(Record, frozen=True):
    """One target's evidence for a finding."""

    target: str
    suite: str
    file: str
    line: int
    instruction: str
    access: str
    test: str
    evidence: str
    """Path in the run folder."""
    backtrace: list[Frame]
    count: int = 1
    """How often it was seen; in an audit how often the instruction did it."""
    fate: Fate = ""
    """What becomes of such an access under the target's own kernel."""
    detector: str = "signal"
    """What saw it: see harness.judge.sightings.Sighting."""
    kernel: str = ""
    """As a real kernel reported it: signal, si_code, si_addr, PC, its lines in the log; empty on the user tier."""
    difference: Difference | None = None
    """Where bytes differ: which ones."""
    cells: list[str] = msgspec.field(default_factory=list)
    """All that saw it there, `TARGET/SUITE`: a target's servers are peers in others' cells, too."""
    occasions: list[Occasion] = msgspec.field(default_factory=list)
    """All ways in which it was seen there, each once."""


class Finding(Record, frozen=True):
    """One judged misbehaviour, across all the targets that show it."""

    id: str
    kind: str
    title: str
    function: str
    file: str
    line: int
    instruction: str
    access: str
    origin: str
    """Of the innermost frame, as Frame.origin has it."""
    targets: list[str]
    command: str
    """What the client had asked for when it happened."""
    replay: str
    """The shell command that shows it again."""
    known: str
    """Reason from the known list, or empty."""
    witnesses: list[Witness]
    occurrences: int
    difference: Difference | None = None
    """Which bytes differ, where that is what is wrong; its witnesses have each their own."""
