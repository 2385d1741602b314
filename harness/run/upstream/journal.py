"""Reads the journal that overlay.tcl writes while upstream's tests run. Pure: text becomes results.

A journal may end anywhere, because a test process may be killed. Nothing counts as having happened unless the journal
mentions it. An unreadable line may have reported the failure of a test, or a failure outside of tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core import json_codec
from harness.core.model import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

Reported = Literal["ok", "err", "exception", "skip", "ignore", ""]
"""Upstream's verdict on a test; empty for a test that did not end."""
FAILED = ("err", "exception")
PASSED_OVER = ("skip", "ignore")
"""What upstream reports of a test that it does not run, or whose body says that it is not for this machine."""


class UpstreamTest(Record, frozen=True):
    """One test that began, or that upstream skipped."""

    name: str
    reported: Reported
    message: str = ""
    """The expected and the actual result; or why the test was skipped, or has no result."""
    trace: str = ""
    seconds: float = 0.0
    began_ms: int = 0
    ended_ms: int = 0
    """When it began and ended, in milliseconds since 1970; 0 without an end."""
    servers: tuple[int, ...] = ()
    """Numbers of the server processes that it was given, the innermost last."""
    announced: tuple[str, ...] = ()
    """The crashes that it caused or expected: `command: debug segfault`, `log: ASSERTION FAILED`."""
    sent: str = ""
    """The command that it sent last."""
    logs_before: dict[str, int] = msgspec.field(default_factory=dict)
    logs_after: dict[str, int] = msgspec.field(default_factory=dict)
    """Guest -> length of its fault log in bytes when the test began and ended; absent for an empty log."""


class Journal(Record, frozen=True):
    """The results of one run of a file."""

    tests: list[UpstreamTest]
    outside: list[str]
    """Failures that upstream reported outside of tests."""
    done: bool
    """Whether the file ran to its end, according to a journal without a damaged line."""


class _Line(msgspec.Struct):
    """One line of the journal. Values are texts."""

    event: Literal["begin", "end", "announced", "outside", "done", "exception"]
    time: str
    pid: str = ""
    test: str = ""
    outcome: Reported = ""
    status: str = ""
    message: str = ""
    trace: str = ""
    servers: str = ""
    faults: str = ""
    sent: str = ""


def read_journal(content: bytes) -> Journal:
    """The results in a journal. Damaged lines are ignored: their tests, and the file, then count as not ended."""
    tests: list[UpstreamTest] = []
    began: list[tuple[int, int]] = []
    """The tests that run, innermost last: place in `tests`, time in milliseconds."""
    outside: list[str] = []
    done, whole = False, True
    logs: dict[str, int] = {}
    for line in _lines(content):
        if line is None:
            whole = False
            continue
        logs = logs | _lengths(line.faults)
        if line.event == "begin":
            began.append((len(tests), int(line.time)))
            servers = tuple(int(word) for word in line.servers.split() if word.isdigit())
            began_ms = int(line.time)
            tests.append(
                UpstreamTest(name=line.test, reported="", began_ms=began_ms, servers=servers, logs_before=logs)
            )
        elif line.event == "end" and began:
            place, at = began.pop()
            tests[place] = msgspec.structs.replace(
                tests[place],
                reported=line.outcome,
                message=_without_name(line.message, line.test),
                trace=line.trace,
                sent=line.sent,
                seconds=(int(line.time) - at) / 1000,
                ended_ms=int(line.time),
                logs_after=logs,
            )
        elif line.event == "announced":
            for place, _ in began:
                announced = (*tests[place].announced, line.message)
                tests[place] = msgspec.structs.replace(tests[place], announced=announced)
        elif line.event == "outside" and line.status == "ignore":
            continue
        elif line.event in {"outside", "exception"} and not done:
            # When upstream's test server ends, it closes the connection, and its client reports that as an error.
            outside.append(line.message)
        elif line.event == "done":
            done = True
    return Journal(tests=tests, outside=outside, done=done and whole)


def _without_name(message: str, test: str) -> str:
    """Upstream's message about a failed test, without its name and file, which appear elsewhere."""
    first, _, rest = message.partition("\n")
    return rest if rest and first.startswith(f"{test} in ") else message


def _lines(content: bytes) -> Iterator[_Line | None]:
    """Each line; None for one that is damaged."""
    for line in content.split(b"\n"):
        if line:
            try:
                yield json_codec.decode(line, _Line)
            except msgspec.DecodeError:
                yield None


def _lengths(words: str) -> dict[str, int]:
    """`guest-3=512 guest-4=99`."""
    pairs = (word.rpartition("=") for word in words.split())
    return {guest: int(length) for guest, _, length in pairs if length.isdigit()}
