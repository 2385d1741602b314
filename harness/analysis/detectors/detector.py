"""What the code has to know about a detector: the form that every detector's module fills in.

It holds no detector's facts. A field with a default describes a detector that needs nothing of the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping  # noqa: TC003 - the annotations of NamedTuples are evaluated
from typing import NamedTuple

from harness.analysis.detectors.report import Line, Report  # noqa: TC001 - the same


class Detector(NamedTuple):
    """Something in or around a program that reports the program's errors on standard error."""

    name: str
    """What targets call it: `detector` in targets/*.toml."""
    read: Callable[[list[Line]], Iterator[Report]]
    """The lines of a log -> every report in them, in order; lines of other programs in between do no harm."""
    kinds: Mapping[str, str]
    """What a finding's kind begins with -> a sentence that explains the kind to the reader of a report."""
    canary: Mapping[str, str]
    """Error of harness/run/detector_canary.c -> identity of the one report that the error must give."""
    runtime: str
    """A pattern of the source files and objects that belong to the detector itself."""
    undefined_kinds: tuple[str, ...] = ()
    """Beginnings of the kinds that C leaves undefined and that may do no harm: warnings, where others are errors."""
    environment: Mapping[str, str] = {}
    """What a program's environment needs so that it reports and goes on."""
    prelude: str = ""
    """C text that precedes every file compiled for a target."""
    command: tuple[str, ...] = ()
    """What a native program's command line begins with."""
    hides_program: str = ""
    """Why gdb cannot look into a program that runs under the detector."""
