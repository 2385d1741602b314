"""Whether what a replay saw is the finding again: reproduced, gone, or nobody can tell. Pure.

Reproduced is what comes again in the same way: a fault of the same kind in the same function, the same end, the same
line. Gone is what was looked for and did not come: the server started, took all requests, and lives on. All else, as a
server that does not start in another way, says nothing of the finding, and is unknown; never one of the two.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from harness.analysis.detectors import registry
from harness.core.model import Record

if TYPE_CHECKING:
    from harness.judge.reproducer import Reproducer

Outcome = Literal["reproduced", "gone", "unknown"]

WRONG_RESULT = "wrong-result"
"""The kind of finding that is shown again by what was answered, or written."""
NAMELESS = "??"
"""A function that no debug information names."""
RECORDED = {"signal", "audit", *registry.DETECTORS}
"""What sees a finding by a record that the emulator, the kernel or a detector writes: its silence must be believed."""


STREAM = "stream"
"""Instead of what saw a finding: there is none yet, and whatever is wrong with what comes of a stream is one."""


class ObservedFault(Record, frozen=True):
    """A record of a fault, as far as it tells what is the same."""

    misaligned: bool
    signal: str
    """`sigbus`; empty for an access that was let through."""
    direction: str
    functions: frozenset[str]
    """The innermost, and the innermost of the server's own."""


class ObservedUnit(Record, frozen=True):
    """A unit, or a self-test, that ran instead of a server."""

    complete: bool
    lines: tuple[str, ...]
    complaints: tuple[str, ...]
    """What a self-test said is wrong; of a unit of ours, how it ended."""


class Observation(Record, frozen=True):
    """What happened in a replay."""

    end: str
    """How it ended, for the reader."""
    started: bool = True
    detail: str = ""
    """How it ended by itself, as a GuestEvent has it; empty while it lives on."""
    hung: bool = False
    """It runs, and answers nobody."""
    undelivered: str = ""
    """Why not all requests were sent and answered."""
    cut: str = ""
    """Why its records cannot be believed, which is no fault of the server's."""
    faults: tuple[ObservedFault, ...] = ()
    reports: frozenset[tuple[str, str, str]] = frozenset()
    """Of a detector: its name, the kind, the function."""
    asserted: frozenset[str] = frozenset()
    """Functions that asserted what does not hold; files, where no function is known."""
    unit: ObservedUnit | None = None
    came: bool | None = None
    """Whether the wrong bytes came again; None where none were looked for."""
    refuses_files: bool = False
    """It does not start with the files that it is given, and does without."""
    difference: str = ""
    """The first reply that is not the native build's."""
    differing: str = ""
    """Its command's name, in capitals."""
    uncompared: str = ""
    """Why replies were not compared with the native build's."""
    free: tuple[str, ...] = ()
    """Commands among the requests that two right servers may answer differently."""


class Recurrence(Record, frozen=True):
    """The answer."""

    outcome: Outcome
    reason: str = ""
    """Why nobody can tell."""
    machine: bool = False
    """That is this machine's fault, and none of the tree's."""


def recurrence(reproducer: Reproducer, seen: Observation) -> Recurrence:
    """Compare. That silence was watched over (harness.workflows.replay.replay lets canaries prove it) is the caller's
    to see to.
    """
    same, why = _compared(reproducer, seen)
    if same:
        return Recurrence(outcome="reproduced")
    if seen.cut:
        return Recurrence(outcome="unknown", reason=seen.cut, machine=True)
    why = why or _not_looked(reproducer, seen)
    return Recurrence(outcome="unknown", reason=why) if why else Recurrence(outcome="gone")


_Compared = tuple[bool, str]
"""Whether it is the same; why that cannot be compared."""


def _compared(reproducer: Reproducer, seen: Observation) -> _Compared:
    if reproducer.detector == STREAM:
        ended = seen.started and not seen.cut and bool(seen.detail or seen.hung)
        return ended or bool(seen.faults or seen.difference), ""
    if reproducer.detector in registry.DETECTORS:
        return (reproducer.detector, reproducer.kind, reproducer.function) in seen.reports, ""
    if reproducer.kind == "assertion":
        return reproducer.function in seen.asserted or reproducer.file in seen.asserted, ""
    if reproducer.detector in RECORDED:
        return _same_fault(reproducer, seen)
    compared = _same_complaint if reproducer.unit else _same_end if reproducer.detector == "process" else _same_answer
    return compared(reproducer, seen)


def _same_answer(reproducer: Reproducer, seen: Observation) -> _Compared:
    if seen.difference and (asked := _asked(reproducer)) and seen.differing != asked:
        return False, f"another request is answered differently: {seen.difference}"
    return bool(seen.came or seen.difference), ""


def _asked(reproducer: Reproducer) -> str:
    """The name of the one command that was answered wrongly; empty where it may be any."""
    return "" if "(one of " in reproducer.command else reproducer.command.partition(" ")[0].upper()


def _same_fault(reproducer: Reproducer, seen: Observation) -> _Compared:
    kind = reproducer.kind.removeprefix("crash-handler-")
    kind = "sigsegv" if kind == "out-of-bounds" else kind
    direction = reproducer.finding.rpartition("-")[2]
    alike = [one for one in seen.faults if (one.misaligned if kind == "alignment" else one.signal == kind)]
    if direction in {"load", "store"}:
        alike = [one for one in alike if one.direction in {direction, ""}]
    if alike and reproducer.function == NAMELESS:
        return False, f"there is such a fault ({kind}), and no name tells whether it is in the same place"
    return any(reproducer.function in one.functions for one in alike), ""


def _same_complaint(reproducer: Reproducer, seen: Observation) -> _Compared:
    unit = seen.unit
    if unit is None or (unit.complete and not reproducer.wrong_line):
        return False, ""
    if reproducer.wrong_line:
        return reproducer.wrong_line in unit.lines, ""
    if any(one in reproducer.detail for one in unit.complaints):
        return True, ""
    return False, f"it went wrong in another way: {'; '.join(unit.complaints)}"


def _same_end(reproducer: Reproducer, seen: Observation) -> _Compared:
    """An end is the same at the same time: of a start is shown again by a start that fails, and of a test by none."""
    if reproducer.kind == "hang":
        return seen.hung and reproducer.starting != seen.started, ""
    if not seen.detail or reproducer.starting == seen.started:
        return False, ""
    if not reproducer.detail:
        return False, "the reproducer does not say how it had ended"
    (ours, told), (then, said) = _told(seen.detail), _told(reproducer.detail)
    return ours == then and (not reproducer.starting or told == said), ""


def _told(detail: str) -> tuple[str, str]:
    """`exit status 1; 7:M 1 Jan 10:00:00.000 # it cannot` is two parts: how, and what it said, without numbers."""
    how, _, said = detail.partition("; ")
    said = re.sub(r"^\d+:\w \d+ \w+( \d+)? [\d:.]+ [*#.-] ", "", said.strip())
    return how, re.sub(r"\d+", "N", said)


def _not_looked(reproducer: Reproducer, seen: Observation) -> str:
    """Why what did not come again need not be gone; empty where it is."""
    if seen.unit is not None:
        return "" if seen.unit.complete else f"it went wrong in another way: {'; '.join(seen.unit.complaints)}"
    if not seen.started:
        gone = reproducer.again is not None and seen.refuses_files
        return "" if gone else f"the server does not start: {seen.detail or 'it hangs'}"
    bad = f"it ended in another way: {seen.detail}" if seen.detail else ""
    bad = bad or ("it answers nobody any more" if seen.hung else seen.undelivered)
    if not bad and reproducer.kind == WRONG_RESULT and reproducer.again is None:
        return _not_compared(reproducer, seen)
    return bad


def _not_compared(reproducer: Reproducer, seen: Observation) -> str:
    if seen.uncompared:
        return seen.uncompared
    asked = _asked(reproducer)
    # Of a stream what is compared is told, and is all that was asked.
    if seen.free and reproducer.detector != STREAM and (not asked or asked in seen.free):
        return f"not compared, for two right servers answer differently: {', '.join(seen.free)}"
    return ""
