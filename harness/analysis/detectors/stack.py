"""Reads the stacks of the address and the undefined behaviour sanitizer, which one library prints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.analysis.detectors.report import frames_of

if TYPE_CHECKING:
    from harness.analysis.detectors.report import Line
    from harness.core.finding import Frame

SANITIZER_RUNTIME = r"libsanitizer/|lib(a|ub|t)san\.so"
"""A pattern of all sanitizers' files and objects."""
_STACK_WITHIN_LINES = 12
"""The reader searches this many lines for a stack's next line, because other processes' output may come between."""
_SANITIZER_FRAME = re.compile(r"\s+#(?P<number>\d+) 0x(?P<pc>[0-9a-f]+)\s+(?:in (?P<function>\S+) )?(?P<place>.+)")
_IN_OBJECT = re.compile(r"\((?P<object>.+)\+0x[0-9a-f]+\)(?: \(BuildId: \w+\))?")


def sanitizer_stack(lines: list[Line], *, ends_with: re.Pattern[str]) -> list[Frame]:
    """The first stack from here on: frames numbered from 0, up to an empty line or the next report."""
    found: list[tuple[int, str, str, int]] = []
    silence = 0
    for line in lines:
        frame = _SANITIZER_FRAME.fullmatch(line.text)
        if frame is not None and int(frame["number"]) == len(found):
            found.append((int(frame["pc"], 16), frame["function"] or "??", *_sanitizer_place(frame["place"])))
            silence = 0
            continue
        silence += 1
        ended = found and (not line.text.strip() or frame is not None)
        if ended or ends_with.search(line.text) or silence > _STACK_WITHIN_LINES:
            break
    return frames_of(found)


def _sanitizer_place(place: str) -> tuple[str, int]:
    inside = _IN_OBJECT.fullmatch(place)
    if inside is not None:
        return inside["object"], 0
    parts = re.fullmatch(r"(?P<file>.+?)(?::(?P<line>\d+))?(?::\d+)?(?: \(BuildId: \w+\))?", place)
    assert parts is not None
    return parts["file"], int(parts["line"] or 0)
