"""The processes above programs of a traced command that failed, as tracer.c recorded them.

They may be programs of the host: shells, make, drivers of tests. A program whose end none of them minded did not fail.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core.model import Record
from harness.record import program_launch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_WORDS_BEFORE = 4
"""Words of a caller before its arguments."""


class Caller(Record, frozen=True):
    """A process above a program that failed."""

    caller: int
    """The number of the process that made it; 0 for the command, and if it is unknown."""
    folder: str
    """Its working folder when the program failed; empty if it had ended."""
    words: list[str]
    """What it executed then, with its arguments; empty if it had ended."""
    how: Literal["exited", "killed", ""] = ""
    """Empty if its end is not recorded."""
    number: int = 0
    """The exit status, or the signal."""
    ended_ms: int = 0
    """When, in milliseconds since 1970."""
    last: int = 0
    """The number of the last process to end that it made; 0 without one."""
    last_status: int = 0
    """The status of that process, as shells count it: 128 more than a signal."""

    @property
    def has_succeeded(self) -> bool:
        """Whether it ended with status 0."""
        return self.how == "exited" and not self.number


def read_callers(cell: Path) -> dict[int, Caller]:
    """The callers of a cell by their numbers, without what is incomplete. What made a process has a lower number."""
    found = dict(_began(cell / program_launch.CALLERS))
    for line in program_launch.lines_of(cell, program_launch.CALLER_ENDS):
        one = re.fullmatch(r"(\d+) (exited|killed) (\d+) (\d+) (\d+) (\d+)", line)
        if one is not None and int(one[1]) in found:
            found[int(one[1])] = msgspec.structs.replace(
                found[int(one[1])],
                how=one[2],
                number=int(one[3]),
                ended_ms=int(one[4]),
                last=int(one[5]),
                last_status=int(one[6]),
            )
    return found


def _began(path: Path) -> Iterator[tuple[int, Caller]]:
    words = [os.fsdecode(word) for word in path.read_bytes().split(b"\0")[:-1]] if path.is_file() else []
    at = 0
    while at + _WORDS_BEFORE <= len(words):
        number, caller, folder, count = words[at : at + _WORDS_BEFORE]
        at += _WORDS_BEFORE
        if not (number.isdigit() and caller.isdigit() and count.isdigit()) or at + int(count) > len(words):
            return
        if int(caller) < int(number):
            yield int(number), Caller(caller=int(caller), folder=folder, words=words[at : at + int(count)])
        at += int(count)
