"""Reads Valgrind's reports.

Every line begins with `==PID== `. The error follows at one blank, its details at two, and its stacks at four. The first
stack is the error's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from harness.analysis.detectors.detector import Detector
from harness.analysis.detectors.report import Line, Report, frames_of, without_addresses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.core.finding import Frame

_VALGRIND = re.compile(r"==(?P<pid>\d+)== (?P<text>.*)")
_VALGRIND_FRAME = re.compile(r"   (?:at|by) 0x(?P<pc>[0-9A-F]+): (?P<function>.+?)(?: \((?P<place>[^()]*)\))?")
_ENDING = "Process terminating"
_MEMCHECK: list[tuple[str, str, Literal["load", "store", ""]]] = [
    (r"Invalid read of size", "invalid-read", "load"),
    (r"Invalid write of size", "invalid-write", "store"),
    (r"Conditional jump or move depends on uninitialised", "uninitialised-condition", ""),
    (r"Use of uninitialised value", "uninitialised-use", ""),
    (r"Syscall param .* uninitialised", "uninitialised-syscall", ""),
    (r"Syscall param .* unaddressable", "unaddressable-syscall", ""),
    (r"Invalid free", "invalid-free", ""),
    (r"Mismatched free", "mismatched-free", ""),
    (r"Source and destination overlap", "overlap", ""),
    (r"Argument .* has a fishy", "fishy-size", ""),
    (r"Jump to the invalid address", "invalid-jump", ""),
]


def read(lines: list[Line]) -> Iterator[Report]:
    """Every report, in order. Lines of several processes interleave, so each process is read separately."""
    by_process: dict[str, list[Line]] = {}
    for line in lines:
        match = _VALGRIND.search(line.text)
        if match is not None:
            own = Line(text=match["text"], offset=line.place_of(match.start()))
            by_process.setdefault(match["pid"], []).append(own)
    found = [report for pid, own in by_process.items() for report in _memcheck(own, int(pid))]
    yield from sorted(found, key=lambda report: report.offset)


def _memcheck(lines: list[Line], pid: int) -> Iterator[Report]:
    for number, line in enumerate(lines):
        if not line.text or line.text.startswith(" "):
            continue
        after = lines[number + 1 :]
        fatal = line.text.startswith(_ENDING)
        while fatal and after and re.match(r" \S", after[0].text):
            # The description of the signal precedes the stack.
            after = after[1:]
        frames = _valgrind_stack(after)
        if not frames:
            continue
        error, direction = _memcheck_error(line.text)
        size = re.search(r"of size (\d+)", line.text)
        yield Report(
            detector="valgrind",
            kind=f"memcheck-{error}",
            message=without_addresses(line.text),
            direction=direction,
            size_bytes=int(size[1]) if size else 0,
            alignment_bytes=0,
            modulo=0,
            type="",
            column=0,
            through="",
            frames=frames,
            fatal=fatal,
            offset=line.offset,
            pid=pid,
        )


def _memcheck_error(text: str) -> tuple[str, Literal["load", "store", ""]]:
    if text.startswith(_ENDING):
        name = re.search(r"\((SIG\w+)\)", text)
        return (name[1].lower() if name else "signal"), ""
    return next(((name, way) for pattern, name, way in _MEMCHECK if re.match(pattern, text)), ("other", ""))


def _valgrind_stack(lines: list[Line]) -> list[Frame]:
    found: list[tuple[int, str, str, int]] = []
    for line in lines:
        frame = _VALGRIND_FRAME.fullmatch(line.text)
        if frame is None:
            break
        place = (frame["place"] or "??").removeprefix("in ")
        file, _, number = place.rpartition(":")
        if not (file and number.isdigit()):
            file, number = place, "0"
        found.append((int(frame["pc"], 16), frame["function"].replace("???", "??"), file, int(number)))
    return frames_of(found)


VALGRIND = Detector(
    name="valgrind",
    read=read,
    kinds={"memcheck-": "A memory error, reported by Valgrind's memcheck."},
    canary={
        "overflow-load": "memcheck-invalid-read-overflow_load-load",
        "overflow-store": "memcheck-invalid-write-overflow_store-store",
        "use-after-free": "memcheck-invalid-read-use_after_free-load",
        "uninitialised": "memcheck-uninitialised-condition-uninitialised",
    },
    runtime=r"vgpreload_|vg_replace_",
    undefined_kinds=("memcheck-uninitialised",),
    # Valgrind manual, Core options.
    command=(
        "valgrind",
        "--tool=memcheck",
        # Errors only: a banner would be mistaken for output of the program.
        "--quiet",
        "--leak-check=no",
        "--error-exitcode=0",
        # Every error at every place: otherwise silence would mean nothing after the thousandth.
        "--error-limit=no",
        "--num-callers=24",
        # Full paths: a file's place in the server's tree identifies it.
        "--fullpath-after=",
        # The debugger's pipes in /tmp would outlive a killed guest.
        "--vgdb=no",
        # A server that restarts becomes its own program anew (DEBUG RESTART). Shells and their like are not checked.
        "--trace-children=yes",
        "--trace-children-skip=/bin/*,/usr/bin/*",
    ),
    hides_program="under Valgrind gdb would see Valgrind",
)
