"""Why a build failed, from its output: the first line that names what is missing or wrong.

It quotes the line, and does not guess what the person would have to install.
"""

from __future__ import annotations

import re

from tools.checks import last_lines, without_places

LONGEST = 200
_LINES = (
    # A tool of the host that does not know the target's programs.
    re.compile(r"valgrind: failed to start .+"),
    # A program or a header that is not there, before what follows from it.
    re.compile(r".*: (?:command )?not found$"),
    re.compile(r"make(?:\[\d+\])?: [^*]\S*: No such file or directory"),
    re.compile(r".*fatal error: \S+: No such file or directory$"),
    re.compile(r".*cannot find -l\S+.*"),
    # A script of Autoconf may name the folder first, and what is wrong in its next line.
    re.compile(r"configure: error: (?!in [`']).+"),
    re.compile(r"\S*meson\.build:\d+:\d+: ERROR: .+"),
    re.compile(r"ERROR: .+"),
    re.compile(r"\s*Could NOT find .+"),
    re.compile(r"\S+\.ac:\d+: error: .+"),
    re.compile(r"\S*(?:aclocal|autoreconf|automake|libtoolize)\S*: +(?:error|warning|line \d+): .+"),
    re.compile(r".*undefined reference to .+"),
    re.compile(r"\S+:\d+:(?:\d+:)? (?:fatal )?error: .+"),
    # The linker of one machine and the objects of another.
    re.compile(r"\S*ld\S*: .*: error adding symbols: .+"),
    re.compile(r"\S*(?:gcc|g\+\+|ld)\S*: (?:fatal )?error: .+"),
    re.compile(r"CMake Error\b.*"),
    re.compile(r"make(?:\[\d+\])?: \*\*\* .+"),
)
"""What a line says of a failure, the most telling first."""
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_TRIED = re.compile(r"^(?:checking|--|Checking|Looking|configure: WARNING|.*\bwarning: )")
"""A probe, which a build survives."""


_MESSAGE = re.compile(r"^error: (?:(?!\n  try: ).)*", re.DOTALL | re.MULTILINE)


def error_in(output: str) -> str:
    """The error message with which `plumb` ended, without its remedy; without one, the last lines."""
    message = _MESSAGE.search(output)
    return "\n".join(without_places(line) for line in message[0].splitlines()) if message else last_lines(output)


def reason_in(output: str) -> str:
    """The line of a failed build's output that tells most about it; empty if no line does."""
    lines = [_ANSI.sub("", line).rstrip() for line in output.splitlines()]
    # A shell that takes a program for a script prints parts of it.
    lines = [line for line in lines if line.isprintable() and not _TRIED.match(line)]
    for pattern in _LINES:
        if found := next((line for line in lines if pattern.fullmatch(line)), ""):
            return without_places(found.strip())[:LONGEST]
    return ""
