"""The data of findings: an access, a stack, a difference of bytes, a finding with its witnesses, a verdict."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from harness.core.model import FileNameOrNone, Name, NameOrNone, Record
from harness.core.target_model import AccessClass  # noqa: TC001 - msgspec reads the annotations when it decodes


class Verdict(StrEnum):
    """From the least severe to the most: merging takes the most severe."""

    SKIP = "SKIP"
    XFAIL = "XFAIL"
    PASS = "PASS"  # noqa: S105 - a verdict
    UNKNOWN = "UNKNOWN"
    FAIL = "FAIL"

    @property
    def severity(self) -> int:
        """Its rank, for comparisons; comparing the verdicts themselves would compare their letters."""
        return list(Verdict).index(self)

    @staticmethod
    def merge(verdicts: list[Verdict]) -> Verdict:
        """The worst of several verdicts; without any it is UNKNOWN, because silence is never a PASS."""
        return max(verdicts, key=lambda one: one.severity, default=Verdict.UNKNOWN)


Scope = Literal["machine", "everywhere"]
"""Whether a finding depends on the machine."""
Fate = Literal["", "hardware", "fixup", "rotated", "kill"]
"""The fate of a misaligned access when the kernel's fixup is on: performed by hardware, repaired by the kernel, or
SIGBUS nevertheless. rotated: also repaired, but with the fixup off and no signal (ARMv5's default) it loads a rotated
word.
"""


class Access(Record, frozen=True):
    """The shape of a misaligned access."""

    direction: Literal["load", "store", ""]
    size_bytes: int
    """0 if unknown."""
    modulo: int
    """Address modulo the size, or modulo the hint if that is larger (modulo 16 if the size is unknown)."""
    access_class: AccessClass | Literal[""] = ""
    hint_bytes: int = 0
    """The alignment that the instruction itself requires, as NEON's `:128` does; 0 if it requires nothing beyond its
    size.
    """

    def __str__(self) -> str:
        if not self.direction:
            return ""
        size = f"{self.size_bytes} bytes" if self.size_bytes else "unknown size"
        return f"{self.direction} of {size} at {self.modulo} mod {max(self.size_bytes, self.hint_bytes) or 16}"


UNKNOWN_FILE = "??"
"""The file of code without debug information."""


def place_in_file(file: str, line: int) -> str:
    """`FILE:LINE`; the file alone if the line is unknown, and a phrase for code without debug information."""
    return "line unknown" if file == UNKNOWN_FILE else f"{file}:{line}" if line else file


class Frame(Record, frozen=True):
    """One level of a stack, innermost first. Inlined functions have their own frames."""

    function: str
    file: str
    line: int
    origin: str
    """The owner of the code: `server`, `bundled/NAME`, `driver`, `libc`, `library/NAME`, `kernel`, `unknown` (see
    docs/reference.md).
    """
    pc: int
    inlined: bool = False


class Difference(Record, frozen=True):
    """Wrong bytes of a file or a reply, and the part of the format that they belong to."""

    where: str
    """The file, or the reply: `dump.rdb`, `reply to DUMP k`."""
    record: str
    """The part of the format: `double in sorted set 'z' of database 0`."""
    writer: str
    """The target that wrote the bytes."""
    reader: str
    """The reader that disagrees: a target, or `an independent reader`."""
    offset: int = -1
    """Offset of the first wrong byte; -1 if only the record is known."""
    expected: str = ""
    """The first expected bytes from there on, as hexadecimal digits."""
    actual: str = ""
    """The actual bytes."""
    function: str = ""
    """The server's function that writes such a record, according to its source; empty if several do."""


class Reproduction(Record, frozen=True):
    """How to reproduce a difference: a new server receives the requests, and its reply must contain the same wrong
    bytes.
    """

    target: Name
    requests: tuple[str, ...]
    """One line each, as in a stream (harness.protocol.command_stream)."""
    wrong: str
    """The wrong bytes, as hexadecimal digits."""
    file: FileNameOrNone = ""
    """The file in the working folder that must contain them afterwards; empty: the last reply."""
    guest: NameOrNone = ""
    """The folder, in the cell's, of the guest that received files; empty if there were none."""
    options: tuple[str, ...] = ()


class Occasion(Record, frozen=True, omit_defaults=True):
    """One way in which a witness saw a finding. An entry of the known list must match all of them."""

    test: str
    command: str
    """The client's request."""
    title: str
    """The title of this occasion; a finding has the title of one of them."""
    said: str
    """The whole message of a failed test; else empty."""
    functions: tuple[str, ...]
    """The functions on the stack, innermost first; empty if unknown."""
    asserted: str = ""
    """The place of a test's failed assertion in the suite, `SUITE/FILE:LINE`; empty if it is not known."""
    id: str = ""
    """The finding's id with the parameters of the test; empty if it does not differ from the finding's id. Known lists
    may name it.
    """


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
    against: list[Frame] = msgspec.field(default_factory=list)
    """Of a data race: the stack of the other thread's access."""
    count: int = 1
    """The number of observations; in an audit, how often the instruction made the access."""
    fate: Fate = ""
    """The effect of such an access under the target's own kernel."""
    detector: str = "signal"
    """What detected it: see harness.judge.sightings.sighting.Sighting."""
    kernel: str = ""
    """The report of a real kernel: signal, si_code, si_addr, PC, its log lines; empty on the user tier."""
    output: str = ""
    """The end of what the program wrote to its standard output and error, if it failed below `plumb exec`: up to 20
    lines.
    """
    unlike: str = ""
    """For a program that failed below `plumb exec`: how its types differ from those of the host."""
    difference: Difference | None = None
    """The bytes that differ, if any do."""
    overtakes: list[str] = msgspec.field(default_factory=list)
    """With `--memory-order weak`: stores that another thread saw in another order, each in a sentence; those that it
    read where the server failed come first.
    """
    cells: list[str] = msgspec.field(default_factory=list)
    """All cells that saw it, `TARGET/SUITE`: a target's servers are also peers in the cells of other targets."""
    occasions: list[Occasion] = msgspec.field(default_factory=list)
    """All distinct ways in which it was seen."""

    @property
    def tests(self) -> set[str]:
        """The tests that showed it."""
        return {self.test, *(occasion.test for occasion in self.occasions)}


class Suspect(Record, frozen=True):
    """A function whose execution correlates with a wrong result, as ranked. It need not be at fault."""

    function: str
    file: str
    line: int
    """Its line with the highest score."""
    score: float
    """Ochiai's coefficient, or the part of it that counts, from 0 to 1 (harness.analysis.suspects)."""
    why: str
    """A description of what was counted."""


class ValueComparison(Record, frozen=True):
    """The point at which values diverge, in functions that a target and the native build, or another target, executed
    for the same commands.
    """

    last_equal: str
    """The moment before the difference at which values were compared and equal; empty if there was none."""
    first_different: str
    """The first moment at which a value differs: the entry of a function, or the return from it."""
    differences: list[str]
    """The values there, `NAME = VALUE on TARGET, VALUE natively`. If the native build has the same values, but a target
    of the run whose test passed has not, `VALUE on TARGET` stands for `VALUE natively`.
    """
    within: str
    """The function whose activation produced the difference: its arguments were equal. Empty if it is none of the
    functions examined.
    """
    compared: int
    """How many moments were compared up to that point."""
    place: Frame | None = None
    """For the entry of a function, the call; for a return, the function's definition. None without debug
    information.
    """
    usual: bool = False
    """Whether these values also differ for other commands, whose replies agree, as sizes of structures do. No other
    value differs. Such a difference is unlikely to be the fault, and does not change the ranking.
    """


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
    """The origin of the innermost frame, as in Frame.origin."""
    targets: list[str]
    command: str
    """The client's request at the time."""
    replay: str
    """The shell command that reproduces it."""
    known: str
    """Why it does not fail the run: a known list's reason, the base, or the native build, which shows it as well. Empty
    if it fails the run.
    """
    witnesses: list[Witness]
    occurrences: int
    difference: Difference | None = None
    """The bytes that differ, if that is the finding. Each witness has its own."""
    ended: int = 0
    """For a program below `plumb exec`: the place of its end among all of them, from 1. 0 for other findings."""
    unit: str = ""
    """The function that a test called without a server, and that failed; else empty."""
    implicated: Frame | None = None
    """For a wrong result: the function that it points to, with the place of its definition. It need not be at fault."""
    suspects: list[Suspect] = msgspec.field(default_factory=list)
    """For a wrong result that `plumb suspects` has analysed: the ranked functions, the closest first."""
    scope: Scope = "machine"
    """`everywhere`: the native build of the same tree does the same, and so does every target of the run."""
    comparison: ValueComparison | None = None
    """For a wrong result that `plumb explain` has analysed: where the values of the suspects diverge."""


class Cause(Record, frozen=True):
    """A group of findings that probably share one reason."""

    title: str
    """The title of the finding to read first."""
    where: str
    """The targets: their names, or what they have in common (`on all big-endian machines of the run`)."""
    start: str
    """The id of the finding to read first: the most direct evidence."""
    members: list[str]
    """The ids of the other findings that share something with it."""
    shared: str
    """What they share; empty without members."""
    followers: list[str]
    """The ids of findings that may follow from it: less direct evidence on the same targets."""
    known: bool
    """Whether every finding that shares the cause is known."""
