"""Decides whether a replay showed the finding again: reproduced, gone, or unknown. Pure.

A finding is reproduced if it comes again in the same way: a fault of the same kind in the same function, the same end,
the same line. It is gone if the replay looked for it and it did not come: the server started, took every request, and
lives on. Anything else, such as a server that fails to start in another way, says nothing about the finding: unknown.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from harness.analysis.detectors import registry
from harness.core.model import Record

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from harness.judge.reproducer import Reproducer

Outcome = Literal["reproduced", "gone", "unknown"]

WRONG_RESULT = "wrong-result"
"""The kind of a finding that is visible in replies or in written files."""
BUILD = "build"
"""The kind of a finding whose tree does not compile."""
NAMELESS = "??"
"""The name of a function without debug information."""
RECORDED = {"signal", "audit", *registry.DETECTORS}
"""Detectors whose findings are records of the emulator, the kernel or a sanitizer. Their silence must be reliable."""


STREAM = "stream"
"""The detector of a stream that has no finding yet: any misbehaviour that the stream causes is one."""


class ObservedFault(Record, frozen=True):
    """The parts of a fault record that decide whether two faults are the same."""

    misaligned: bool
    signal: str
    """`sigbus`; empty for an access that was let through, and `forbidden-call` for a system call that was not."""
    direction: str
    functions: frozenset[str]
    """The innermost function, and the innermost one of the server itself."""


class ObservedUnit(Record, frozen=True):
    """A unit, or a self-test, that ran instead of a server."""

    complete: bool
    lines: tuple[str, ...]
    complaints: tuple[str, ...]
    """The failures that a self-test reported; for one of the project's unit drivers, how it ended."""


class Observation(Record, frozen=True):
    """What happened in a replay."""

    end: str
    """A description of how it ended."""
    started: bool = True
    detail: str = ""
    """How the server ended by itself, as in a GuestEvent; empty while it lives on."""
    hung: bool = False
    """Whether the server is running but answers no client."""
    undelivered: str = ""
    """Why not all requests were sent and answered."""
    cut: str = ""
    """Why its records are not trustworthy, for a reason other than the server."""
    faults: tuple[ObservedFault, ...] = ()
    reports: frozenset[tuple[str, str, str]] = frozenset()
    """Detector, kind and function of each report."""
    children: frozenset[str] = frozenset()
    """The signals that killed child processes of the server without a record of a fault: `SIGABRT`."""
    asserted: frozenset[str] = frozenset()
    """Functions whose assertion failed; the file if the function is unknown."""
    unit: ObservedUnit | None = None
    came: bool | None = None
    """Whether the wrong bytes occurred again; None if the replay did not look for any."""
    refuses_files: bool = False
    """Whether it fails to start with the reproducer's files and starts without them."""
    difference: str = ""
    """The first reply that differs from the native build's."""
    differing: str = ""
    """The name of that reply's command, in capitals."""
    uncompared: str = ""
    """Why replies were not compared with the native build's."""
    as_recorded: Literal["", "now", "once"] = ""
    """Whether a test's requests received the same replies as when it failed. Times may differ, because time has
    passed.
    """
    free: tuple[str, ...] = ()
    """Commands among the requests that two correct servers may answer differently."""


class Recurrence(Record, frozen=True):
    """The outcome of a comparison."""

    outcome: Outcome
    reason: str = ""
    """Why the outcome is unknown."""
    machine: bool = False
    """Whether that is the host's fault, not the tree's."""
    differing: str = ""
    """The name of the command with a wrong reply, if it is not the finding's command; otherwise empty."""


def recurrence(reproducer: Reproducer, observed: Observation) -> Recurrence:
    """Compare a replay with the finding. The caller must verify that silence means something: see `unless_blind`."""
    same, why = _compared(reproducer, observed)
    if same:
        return Recurrence(outcome="reproduced")
    if observed.cut:
        return Recurrence(outcome="unknown", reason=observed.cut, machine=True)
    why = why or _not_looked(reproducer, observed) or (PLAIN if reproducer.tls and not reproducer.starting else "")
    differing = observed.differing if _is_of_another_request(reproducer, observed) else ""
    return Recurrence(outcome="unknown", reason=why, differing=differing) if why else Recurrence(outcome="gone")


PLAIN = "requests over TLS were not recorded: a replay sends only those of the plain socket"
"""Why a finding of a server with TLS may still exist if it does not recur, unless the server died at its start."""

_Compared = tuple[bool, str]
"""Whether the replay showed the finding, and why the two cannot be compared."""


def _compared(reproducer: Reproducer, observed: Observation) -> _Compared:
    if reproducer.detector == STREAM:
        ended = observed.started and not observed.cut and bool(observed.detail or observed.hung)
        return ended or bool(observed.faults or observed.difference or observed.children), ""
    if reproducer.detector in registry.DETECTORS:
        return (reproducer.detector, reproducer.kind, reproducer.function) in observed.reports, ""
    if reproducer.kind == "assertion":
        return is_same_assertion(reproducer, observed.asserted), ""
    if reproducer.detector in RECORDED:
        return _same_fault(reproducer, observed)
    compared = _same_complaint if reproducer.unit else _same_end if reproducer.detector == "process" else _same_answer
    return compared(reproducer, observed)


def _same_answer(reproducer: Reproducer, observed: Observation) -> _Compared:
    if _is_of_another_request(reproducer, observed):
        return False, f"another request is answered differently: {observed.difference}"
    return bool(observed.came or observed.difference) or _answers_as_recorded(reproducer, observed, "now"), ""


def _is_of_another_request(reproducer: Reproducer, observed: Observation) -> bool:
    command = _wrong_command(reproducer)
    return bool(reproducer.kind == WRONG_RESULT and observed.difference and command and observed.differing != command)


def _answers_as_recorded(reproducer: Reproducer, observed: Observation, when: Literal["now", "once"]) -> bool:
    """Whether a test would again find a wrong reply that the native build also gives."""
    command = _wrong_command(reproducer)
    compared = command not in observed.free if command else not observed.free
    return reproducer.detector == "suite" and compared and observed.as_recorded == when


def _wrong_command(reproducer: Reproducer) -> str:
    """The name of the command with the wrong reply; empty if it may be one of several."""
    return "" if "(one of " in reproducer.command else reproducer.command.partition(" ")[0].upper()


def _same_fault(reproducer: Reproducer, observed: Observation) -> _Compared:
    alike = [fault for fault in observed.faults if _is_alike(reproducer, fault)]
    if alike and reproducer.function == NAMELESS:
        kind = _kind_of_fault(reproducer)
        return False, f"there is a fault of this kind ({kind}), but without function names its place cannot be compared"
    if any(is_same_fault(reproducer, fault) for fault in alike):
        return True, ""
    # It may have killed a child process, while the server lives on.
    others = sorted({name for fault in alike if fault.signal for name in fault.functions})
    return False, f"a fault of this kind is in another function: {', '.join(others)}" if others else ""


def is_same_assertion(reproducer: Reproducer, asserted: AbstractSet[str]) -> bool:
    """Whether an assertion that failed in one of these functions, or files, is the finding's."""
    return reproducer.kind == "assertion" and (reproducer.function in asserted or reproducer.file in asserted)


def is_same_fault(reproducer: Reproducer, fault: ObservedFault) -> bool:
    """Whether a fault is the finding's: of its kind and direction, in its function."""
    return (
        reproducer.detector in RECORDED
        and reproducer.detector not in registry.DETECTORS
        and _is_alike(reproducer, fault)
        and reproducer.function in fault.functions
    )


def _is_alike(reproducer: Reproducer, fault: ObservedFault) -> bool:
    kind = _kind_of_fault(reproducer)
    direction = reproducer.finding.rpartition("-")[2]
    return (fault.misaligned if kind == "alignment" else fault.signal == kind) and (
        direction not in {"load", "store"} or fault.direction in {direction, ""}
    )


def _kind_of_fault(reproducer: Reproducer) -> str:
    kind = reproducer.kind.removeprefix("crash-handler-")
    return "sigsegv" if kind == "out-of-bounds" else kind


def _same_complaint(reproducer: Reproducer, observed: Observation) -> _Compared:
    unit = observed.unit
    if unit is None or (unit.complete and not reproducer.wrong_line):
        return False, ""
    if reproducer.wrong_line:
        return reproducer.wrong_line in unit.lines, ""
    if any(complaint in reproducer.detail for complaint in unit.complaints):
        return True, ""
    return False, f"it failed in another way: {'; '.join(unit.complaints)}"


def _same_end(reproducer: Reproducer, observed: Observation) -> _Compared:
    """Whether the server ended in the same way, and in the same phase: a failed start, or an end after it."""
    if reproducer.kind == "hang":
        return observed.hung and reproducer.starting != observed.started, ""
    if reproducer.finding.startswith(_CHILD):
        return reproducer.finding.removeprefix(_CHILD) in observed.children, ""
    if not observed.detail or reproducer.starting == observed.started:
        return False, ""
    if not reproducer.detail:
        return False, "the reproducer does not record how it ended"
    (how, message), (recorded_how, recorded_message) = _parts(observed.detail), _parts(reproducer.detail)
    return how == recorded_how and (not reproducer.starting or message == recorded_message), ""


def _parts(detail: str) -> tuple[str, str]:
    """How it ended, and its last message without numbers, of `exit status 1; 7:M 1 Jan 10:00:00.000 # it cannot`."""
    how, _, message = detail.partition("; ")
    message = re.sub(r"^\d+:\w \d+ \w+( \d+)? [\d:.]+ [*#.-] ", "", message.strip())
    return how, re.sub(r"\d+", "N", message)


def _not_looked(reproducer: Reproducer, observed: Observation) -> str:
    """Why a finding that did not recur may still exist; empty if it is gone."""
    if observed.unit is not None:
        return "" if observed.unit.complete else f"it failed in another way: {'; '.join(observed.unit.complaints)}"
    if not observed.started:
        gone = reproducer.again is not None and observed.refuses_files
        return "" if gone else f"the server does not start: {observed.detail or 'it hangs'}"
    bad = f"it ended in another way: {observed.detail}" if observed.detail else ""
    bad = bad or ("it no longer answers clients" if observed.hung else observed.undelivered)
    if not bad and observed.children:
        bad = f"a child process of the server was killed by {', '.join(sorted(observed.children))}"
    if reproducer.upstream and reproducer.finding.startswith(_CHILD):
        return bad or "a replay of a release's own test does not see how the children of its servers end"
    if not bad and reproducer.kind == WRONG_RESULT and reproducer.again is None and not reproducer.upstream:
        return _not_compared(reproducer, observed)
    return bad or _not_asked(reproducer)


_UNASKED = ("", "(while starting)", "(while stopping)")
"""The phases in which a server needs no request. Between tests it may still execute earlier requests."""
_CHILD = "crash-child_"
"""The prefix of the id of a child process' death. Servers fork on request, but the request is not always recorded."""


def _not_asked(reproducer: Reproducer) -> str:
    """Why the server did not receive the requests that showed the finding: a damaged run may have lost them, and
    whoever made an untrusted reproducer may have left them out.
    """
    sent: dict[int, bytes] = {}
    for chunk in reproducer.chunks:
        if chunk.direction == "request":
            sent[chunk.connection] = sent.get(chunk.connection, b"") + chunk.content
    otherwise = reproducer.again is not None or reproducer.launch is not None or bool(reproducer.upstream)
    unasked = reproducer.command in _UNASKED and not reproducer.after_tests
    asked = not unasked or reproducer.finding.startswith(_CHILD)
    if not asked or otherwise:
        return ""
    if not sent:
        return "the reproducer has no requests"
    name = reproducer.command.partition(" ")[0]
    if not name.isalpha():
        # It depends on no single request.
        return "" if any(b"\n" in one for one in sent.values()) else "the reproducer has no whole request"
    sends = any(name.lower().encode() in one.lower() for one in sent.values())
    return "" if sends else f"the reproducer does not send {name}"


def _not_compared(reproducer: Reproducer, observed: Observation) -> str:
    if observed.uncompared:
        return observed.uncompared
    if _answers_as_recorded(reproducer, observed, "once"):
        return "it differs from the record only in times, which change: plumb check --test can tell"
    command = _wrong_command(reproducer)
    # A stream has no finding yet: its text already says which replies were not compared.
    if observed.free and reproducer.detector != STREAM and (not command or command in observed.free):
        return f"not compared, because two correct servers may answer differently: {', '.join(observed.free)}"
    return ""


def of_failed_build(reproducer: Reproducer, because: str) -> Recurrence:
    """A tree that does not compile can only reproduce a build failure, and only with the same first error.

    `because`: the first error of its compiler.
    """
    if reproducer.kind != BUILD:
        return Recurrence(outcome="unknown", reason="the tree does not compile")
    first = _without_numbers(because).splitlines()[:1]
    if first and first[0] in _without_numbers(reproducer.detail):
        return Recurrence(outcome="reproduced")
    return Recurrence(outcome="unknown", reason="the tree does not compile, for another reason")


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "N", text)


def unless_blind(ended: Recurrence, reproducer: Reproducer, why_blind: Callable[[], str]) -> Recurrence:
    """`ended`, or unknown if a recorded finding, or one of a weak memory order, did not recur but the canary shows that
    it could not.

    `why_blind` runs the canary, and returns why it could not; empty if it could.
    """
    is_recorded = (
        reproducer.memory_order != "usual" or reproducer.detector in RECORDED or reproducer.finding.startswith(_CHILD)
    )
    if ended.outcome != "gone" or not is_recorded:
        return ended
    why = why_blind()
    return Recurrence(outcome="unknown", reason=why, machine=True) if why else ended
