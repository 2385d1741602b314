"""The record that every detector's module fills in with the detector's facts.

It holds no facts itself. A field's default suits a detector without that need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping  # noqa: TC003 - the annotations of NamedTuples are evaluated
from typing import NamedTuple

from harness.analysis.detectors.report import Line, Report  # noqa: TC001 - the same


class Detector(NamedTuple):
    """A component in or around a program that reports the program's errors on standard error."""

    name: str
    """The detector's name in targets: `detector` in targets/*.toml."""
    read: Callable[[list[Line]], Iterator[Report]]
    """The lines of a log -> every report in them, in order; interleaved lines of other programs do no harm."""
    kinds: Mapping[str, str]
    """Prefix of a finding's kind -> a sentence that explains the kind to the reader of a report."""
    canary: Mapping[str, str]
    """Error in harness/run/detector_canary.c -> identity of the single report that the error must produce."""
    runtime: str
    """A pattern of the detector's own source files and objects."""
    undefined_kinds: tuple[str, ...] = ()
    """Prefixes of kinds that C leaves undefined and that may be harmless: warnings, while others are errors."""
    environment: Mapping[str, str] = {}
    """Environment variables that make a program report errors and continue."""
    prelude: str = ""
    """C text to prepend to every file compiled for a target."""
    suppressions: str = ""
    """The file of a tree in which its authors name reports that they expect, one a line."""
    suppressing: str = ""
    """The C function that returns such text to the detector, defined like the rest of the prelude."""
    sees_order: bool = False
    """Whether it reports what only another memory order than the host's would show."""
    command: tuple[str, ...] = ()
    """The start of a native program's command line."""
    hides_program: str = ""
    """Why gdb cannot inspect a program that runs under the detector."""
