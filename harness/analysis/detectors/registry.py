"""Lists all known detectors and finds their reports in a log: docs/howto/add-a-detector.md.

Reading is pure: it starts no process and opens no file. It never guesses: an unknown message becomes a report of kind
`…-other`, and a stack that the detector did not print becomes one frame `??`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from harness.analysis.detectors import asan, memcheck, tsan, ubsan
from harness.analysis.detectors.detector import Detector
from harness.analysis.detectors.report import Line, Report
from harness.analysis.symbols import is_own
from harness.core.errors import UsageError
from harness.core.finding import Frame

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "DETECTORS",
    "OBSERVERS",
    "PRELUDE_FILE",
    "Report",
    "named",
    "own_frames",
    "prelude_files",
    "reports",
    "write_prelude",
]

DETECTORS: dict[str, Detector] = {
    detector.name: detector
    for detector in (
        asan.ASAN,
        memcheck.VALGRIND,
        tsan.TSAN,
        ubsan.UBSAN,
    )
}
OBSERVERS = frozenset({"gdb", "ltrace", "rr", "strace", "valgrind"})
"""Programs that run another program to observe it, which must be of their own machine."""
_NONE = Detector(name="", read=lambda _: iter(()), kinds={}, canary={}, runtime="")
PRELUDE_FILE = "detector.h"


def named(name: str) -> Detector:
    """The detector with this name in targets; for the empty name, one that finds nothing.

    Raises UsageError for a name that no module claims.
    """
    if name and name not in DETECTORS:
        raise UsageError(
            f"unknown detector '{name}'",
            where="harness/analysis/detectors/registry.py",
            because=f"the known detectors are {', '.join(DETECTORS)}",
            remedy="docs/howto/add-a-detector.md",
        )
    return DETECTORS.get(name, _NONE)


def prelude_files(name: str) -> dict[str, str]:
    """The header that a program without a source tree needs of a detector: its name and its text; empty if none."""
    prelude = named(name).prelude
    return {PRELUDE_FILE: prelude} if prelude else {}


def write_prelude(name: str, folder: Path, tree: Path | None = None) -> list[str]:
    """Write a detector's prelude, if any, into a folder; returns the flags that make compilers read it first.

    `tree`: the source tree, which may name reports that its authors expect.
    """
    detector = named(name)
    if not detector.prelude:
        return []
    path = folder / PRELUDE_FILE
    path.write_text(detector.prelude + _suppressions(detector, tree), "utf-8")
    return ["-include", str(path)]


def _suppressions(detector: Detector, tree: Path | None) -> str:
    """C text by which a detector reads the tree's own list; empty if the tree has none."""
    file = tree / detector.suppressions if tree is not None and detector.suppressions else None
    if file is None or not file.is_file():
        return ""
    lines = [line.strip() for line in file.read_text("utf-8", "replace").splitlines()]
    text = "".join(f'"{_escaped(line)}\\n"' for line in lines if line and not line.startswith("#"))
    return detector.suppressing.replace("TEXT", text or '""')


def _escaped(text: str) -> str:
    return "".join(one if one.isalnum() else f"\\{ord(one):03o}" for one in text if ord(one) < 128)


def reports(log: bytes, name: str) -> list[Report]:
    """Every report of a detector in a guest's log, in order."""
    return [_of_server(report) for report in named(name).read(_lines(log))]


def _of_server(report: Report) -> Report:
    frames, through = own_frames(report.frames)
    against = own_frames(report.against)[0] if report.against else []
    return msgspec.structs.replace(report, frames=frames, through=through, against=against)


def own_frames(frames: list[Frame]) -> tuple[list[Frame], str]:
    """Frames from the innermost one of the server, or of the program that runs instead of one, and the library function
    that it called; otherwise all frames.

    A library function has many callers, so the caller distinguishes one error in it from another. Frames of the
    detector itself are not part of the program.
    """
    program = list(frames)
    while program and _RUNTIME.search(program[0].file):
        program.pop(0)
    first = next((n for n, frame in enumerate(program) if is_own(frame)), 0)
    left = program[first:] or [Frame(function="??", file="??", line=0, origin="unknown", pc=0)]
    skipped = frames[: len(frames) - len(program) + first]
    through = skipped[-1].function.removeprefix("__interceptor_") if skipped else ""
    return left, through


_RUNTIME = re.compile("|".join(detector.runtime for detector in DETECTORS.values()))


def _lines(log: bytes) -> list[Line]:
    found, offset = [], 0
    for line in log.split(b"\n"):
        found.append(Line(text=line.decode("utf-8", "replace").rstrip("\r"), offset=offset))
        offset += len(line) + 1
    return found
