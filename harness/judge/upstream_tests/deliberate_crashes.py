"""Distinguishes crashes that an upstream test causes on purpose from all others, by what the test announced.

A test announces a crash by the command that causes it (DEBUG SEGFAULT, DEBUG PANIC, kill), or by counting the message
of an assertion in the server's log, as tests with damaged values do. What such a test then looks for in the log allows
no other crash than its command's. A misaligned access is never on purpose, and neither is a fault while the server
reports another one: except in a module of the tests that crashes twice, whose test looks for the report of just that.
"""

from __future__ import annotations

import re
import signal
from pathlib import PurePath
from typing import TYPE_CHECKING

from harness.analysis.crash_reports.assertion_log import UNKNOWN as NAMELESS

if TYPE_CHECKING:
    from harness.core.finding import Frame
    from harness.judge.sightings.sighting import Sighting
    from harness.record.cell_events import GuestEvent

_DEBUG = "debugCommand"
"""The server's function that executes DEBUG."""
_ASSERTING = (_DEBUG, "redisOutOfMemoryHandler", "serverOutOfMemoryHandler")
"""The functions with the assertions and panics that DEBUG ASSERT, PANIC and OOM cause (src/debug.c, src/server.c)."""
_FILES = ("debug.c", "server.c")
"""Their files, if only the file is known."""
_ASSERTION = "assertion"
_MODULE = "library/"
"""The prefix of the origin of code that belongs neither to the server nor to libc: here, to a module of the tests."""
_LOG = "log"
"""The first word of an announcement that a test looks for a crash in the log."""
_OF_SIGNAL = re.compile(r"crashed", re.IGNORECASE)
"""What a test looks for that expects a signal, and no assertion."""
_TWICE = re.compile(r"log: \*?Crashed running")
"""The announcement of a test that waits for, or counts, a crash report within another crash's report."""
_NUMBERED = {str(number.value): number.name for number in signal.Signals}


def is_deliberate(event: GuestEvent, sighting: Sighting) -> bool:
    """Whether a guest's fault or end is the crash that the test announced, during which the guest ended."""
    if sighting.kind == "alignment":
        return False
    if any(_TWICE.match(announced) for announced in event.announced) and _in_module(sighting):
        return True
    if sighting.kind.startswith("crash-handler"):
        return False
    commands = [announced for announced in event.announced if announced.partition(": ")[0] != _LOG]
    return any(_announces(announced, event, sighting) for announced in commands or event.announced)


def _in_module(sighting: Sighting) -> bool:
    return sighting.kind.endswith("sigsegv") and bool(sighting.frames) and sighting.frames[0].origin.startswith(_MODULE)


def _announces(announced: str, event: GuestEvent, sighting: Sighting) -> bool:
    way, _, text = announced.partition(": ")
    if way == _LOG:
        # The test distinguishes an assertion from a signal, and allows the former.
        if _OF_SIGNAL.search(text):
            return False
        return sighting.kind == _ASSERTION or (sighting.kind == "crash" and _ended_by(event, "SIGABRT"))
    words = text.split()
    if words[:1] == ["kill"]:
        return words[2:] == [str(event.pid)] and _ended_by(event, _name(words[1].lstrip("-")))
    if sighting.kind == "crash":
        return True
    if sighting.kind == _ASSERTION:
        return _is_debugs(sighting.frames[0]) if sighting.frames else False
    return any(frame.function == _DEBUG for frame in sighting.frames)


def _is_debugs(place: Frame) -> bool:
    """Whether DEBUG fails the assertion at a place: its own, or for `oom` the allocator's. Any other one is a fault."""
    if place.function == NAMELESS:
        return PurePath(place.file).name in _FILES
    return place.function in _ASSERTING


def _ended_by(event: GuestEvent, name: str) -> bool:
    return event.end == "signal" and event.detail == f"killed by {name}"


def _name(word: str) -> str:
    """A signal's whole name, from what kill(1) accepts: SEGV, SIGSEGV, 11."""
    return _NUMBERED.get(word) or (word if word.startswith("SIG") else f"SIG{word}")
