"""Finds the place in the source that a failing program names in its output: its assertion, check or panic.

The places of servers' own assertions are harness.analysis.crash_reports.assertion_log's.
"""

from __future__ import annotations

import re

from harness.core.finding import Frame

NAMELESS = "??"
"""The function of a message that names only file and line."""
_SOURCE = r"(?P<file>[^\s:()'\"]+\.(?:[cChH]|cc|cpp|cxx|c\+\+|hh|hpp|hxx|inl|m|rs|go|py|f|f90|pas|adb|d))"
# The innermost call outside of Go's own packages follows the panic.
_GO = (
    r"^goroutine \d+ .*:\n(?:.*\n\t\S*/src/(?:runtime|testing|internal)/.*\n)*(?P<function>\S+?)\(.*\n"
    r"\t(?P<file>\S+\.go):(?P<line>\d+)"
)
_PLACES = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        # glibc, assert/assert.c. A C++ compiler passes the whole declaration.
        r"^\S+: (?P<file>[^\s:]+):(?P<line>\d+): (?P<function>.+?): Assertion `.*' failed\.$",
        # musl, src/exit/assert.c.
        r"^Assertion failed: .* \((?P<file>[^\s:]+): (?P<function>[^:\s]+): (?P<line>\d+)\)$",
        # GLib, glib/gtestutils.c.
        r"ERROR:(?P<file>[^\s:]+):(?P<line>\d+):(?P<function>[^:\s]+): ",
        # Rust, library/std/src/panicking.rs, before and since 1.73.
        rf"^thread '.*' (?:\(\d+\) )?panicked at (?:'(?s:.{{0,2000}}?)', )?{_SOURCE}:(?P<line>\d+):\d+:?$",
        _GO,
    )
)
_NAMED_BY_CHECKS = re.compile(rf"^(?:.*?[\s(\['\"])?{_SOURCE}:(?P<line>\d+)\b", re.MULTILINE)
"""The form in which most test programs name the line of a failed check. A backtrace or a warning may have it, too."""
_SIGNATURE = re.compile(r"([~\w]+)\s*\(")


def asserted_place(output: str) -> Frame | None:
    """The place of the last assertion or panic in a program's output; None without any.

    The file is as the program's compiler was given it.
    """
    found = [one for pattern in _PLACES for one in pattern.finditer(output)]
    return _frame(max(found, key=lambda one: one.start())) if found else None


def checked_place(output: str) -> Frame | None:
    """The last line of source that a program's output names, as most test programs do for a failed check; else None.

    Other texts may have the same form, so the caller must verify the place.
    """
    found = list(_NAMED_BY_CHECKS.finditer(output))
    return _frame(found[-1]) if found else None


def _frame(found: re.Match[str]) -> Frame:
    function = found.groupdict().get("function") or NAMELESS
    return Frame(function=_short(function), file=found["file"], line=int(found["line"]), origin="unknown", pc=0)


def _short(function: str) -> str:
    """The name in a declaration: `check` of `void check(int)`."""
    named = _SIGNATURE.search(function)
    return named[1] if named else function


def last_line(output: str) -> str:
    """The last line that says something; empty if none does. Below a panic of Go it is the panic's, not its stack's."""
    if _GO_STACK.search(output) and (panics := _GO_PANIC.findall(output)):
        return str(panics[-1]).strip()
    return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")


_GO_STACK = re.compile(r"^goroutine \d+ .*:$", re.MULTILINE)
_GO_PANIC = re.compile(r"^(?:panic|fatal error): .*$", re.MULTILINE)
