"""What sanitizers and Valgrind say on standard error → reports; and what makes them say it.

The reader is pure: text goes in, it starts nothing and opens no file.

It refuses to guess: an unknown message is a report all the same, of kind `…-other`, and a stack that the detector did
not print is one frame `??`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.analysis.detectors import asan, memcheck, ubsan
from harness.analysis.detectors.report import Line, Report, own_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness.core.model import Detector

__all__ = ["ENVIRONMENTS", "PREFIXES", "PRELUDES", "PRELUDE_FILE", "Report", "own_frames", "reports", "write_prelude"]

ENVIRONMENTS: dict[Detector, dict[str, str]] = {
    "": {},
    "ubsan": {},
    # Too large an allocation fails as it does in libc, and leaks are the business of no suite here.
    "asan": {"ASAN_OPTIONS": "halt_on_error=0:detect_leaks=0:allocator_may_return_null=1"},
    "valgrind": {},
}
"""What a program needs in its environment to report and go on: sanitizers' common flags (LLVM, sanitizer_flags.inc)."""

PRELUDES: dict[Detector, str] = {
    "": "",
    # GCC's library reads UBSAN_OPTIONS from /proc/self/environ at the first report, and by then a server has written
    # its process title over it. It asks this function as well (LLVM, ubsan_flags.cpp).
    "ubsan": """\
#ifndef __ASSEMBLER__
#ifdef __cplusplus
extern "C"
#endif
__attribute__((weak, visibility("default"))) const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void) { return "print_stacktrace=1:halt_on_error=0"; }
#endif
""",
    "asan": "",
    "valgrind": "",
}
"""C text that precedes every file compiled for a target."""
PRELUDE_FILE = "detector.h"

PREFIXES: dict[Detector, list[str]] = {
    "": [],
    "ubsan": [],
    "asan": [],
    "valgrind": [
        "valgrind",
        "--tool=memcheck",
        # Errors alone: the banner would be taken for the output of a program whose output is read.
        "--quiet",
        "--leak-check=no",
        "--error-exitcode=0",
        # Every error of every place, or silence would mean nothing after the thousandth.
        "--error-limit=no",
        "--num-callers=24",
        # Whole paths: a file is told by its place in the server's tree.
        "--fullpath-after=",
        # Its debugger's pipes in /tmp would outlive a guest that is killed.
        "--vgdb=no",
    ],
}
"""What a native program's command line begins with (Valgrind manual, Core options)."""


def write_prelude(detector: Detector, folder: Path) -> list[str]:
    """Write a detector's prelude, if it has one, into a folder; returns the flags that have compilers read it first."""
    if not PRELUDES[detector]:
        return []
    path = folder / PRELUDE_FILE
    path.write_text(PRELUDES[detector], "utf-8")
    return ["-include", str(path)]


_READERS: dict[Detector, Callable[[list[Line]], Iterator[Report]]] = {
    "ubsan": ubsan.read,
    "asan": asan.read,
    "valgrind": memcheck.read,
}


def reports(log: bytes, detector: Detector) -> list[Report]:
    """Every report in a guest's log, in order. Lines of the server and of other processes in between do no harm."""
    return list(_READERS[detector](_lines(log))) if detector else []


def _lines(log: bytes) -> list[Line]:
    found, offset = [], 0
    for line in log.split(b"\n"):
        found.append(Line(text=line.decode("utf-8", "replace").rstrip("\r"), offset=offset))
        offset += len(line) + 1
    return found
