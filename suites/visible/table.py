"""The suite's requests, and the replies that may differ: data in requests.toml and differences.toml."""

from __future__ import annotations

import fnmatch
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from harness.core.model import Record
from harness.core.strict_toml import ROOT, read_toml
from harness.protocol.command_stream import from_text, line_of
from harness.report import markdown_table

if TYPE_CHECKING:
    from collections.abc import Collection

    from harness.core.target_model import Target
    from harness.protocol.command_stream import Command, Stream
    from harness.protocol.resp import Reply

FOLDER = Path(__file__).parent
PAGE = ROOT / "docs" / "DIFFERENCES.md"


class RequestGroup(Record, frozen=True):
    """Requests that are sent in order to empty servers."""

    name: str
    requests: str
    """One command a line."""

    @property
    def commands(self) -> Stream:
        """The requests as values."""
        return from_text(self.requests)


class Unasked(Record, frozen=True):
    """Commands and options that no group of requests contains."""

    reason: str
    commands: list[str] = msgspec.field(default_factory=list)
    """Commands, or commands and subcommands, with all of their options."""
    options: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Command -> the words of its options."""
    suites: list[str] = msgspec.field(default_factory=list)
    """The suites that send these commands."""


class Requests(Record, frozen=True):
    """requests.toml."""

    groups: list[RequestGroup]
    unasked: list[Unasked]


class Listed(Record, frozen=True):
    """A reply that differs from that of x86-64."""

    request: str
    """A glob for the command's line."""
    targets: list[str]
    """Globs of the targets on which it differs; `32-bit` and `big-endian`: all targets of that width or byte order."""
    native: str
    """The reply of x86-64, in the form that `shown` returns."""
    there: list[str]
    """The possible replies on these targets."""
    reason: str
    fault: bool = False
    """Whether the difference is a bug of the server (docs/FOUND.md)."""
    since: tuple[int, ...] = ()
    until: tuple[int, ...] = ()
    """The first release without the difference; empty: all have it."""

    def covers(self, command: Command, target: Target, version: tuple[int, ...], *, development: bool = False) -> bool:
        """Whether the reply to a command must differ on a target; for a development tree, whether it may.

        An entry names releases because the difference is what the test looks for: a server that was asked would excuse
        itself. A development tree has the changes of one release but not yet those of the next, so `since` and `until`
        do not decide. A native build replies like the target that is named after the host's processor: `aarch64` on
        AArch64. A target of the kernel tier replies like the target whose builds it runs.
        """
        living = development or (version >= self.since and (not self.until or version < self.until))
        # An entry is for one request and for many targets.
        if not (living and fnmatch.fnmatchcase(line_of(command), self.request)):
            return False
        names = [*target.aliases, *([target.machine] if target.emulator.runs_here else [])]
        return any(fnmatch.fnmatchcase(name, glob) for name in names for glob in self.targets)


class AllowedReplies(NamedTuple):
    """The allowed replies of a target and of the native build to a request on which machines differ."""

    guest: Collection[str]
    native: Collection[str]

    @property
    def must_differ(self) -> bool:
        """Whether the two have no possible reply in common."""
        return not {*self.guest} & {*self.native}

    def fits(self, guest: Reply, native: Reply) -> bool:
        """Whether the two replies differ, and each is one of those for its machine."""
        return shown(guest) != shown(native) and shown(guest) in self.guest and shown(native) in self.native


def expected(
    command: Command, guest: Target, native: Target, version: tuple[int, ...], *, development: bool = False
) -> AllowedReplies | None:
    """The replies that the list allows a target and the native build; None if it covers neither of them. A development
    tree may also reply like x86-64.
    """
    listed = [
        [one for one in table().differences if one.covers(command, target, version, development=development)]
        for target in (guest, native)
    ]
    if not any(listed):
        return None
    usual = [one.native for found in listed for one in found][:1]
    own, here = ([reply for one in found for reply in one.there] for found in listed)
    if development:
        return AllowedReplies([*own, *usual], [*here, *usual])
    return AllowedReplies(own or usual, here or usual)


def shown(reply: Reply) -> str:
    """A reply in the list's form: text as it is, other bytes as hexadecimal digits, an array with commas."""
    if isinstance(reply, list):
        return ", ".join(map(shown, reply))
    if not isinstance(reply, bytes):
        return f"error: {reply}" if isinstance(reply, Exception) else str(reply)
    text = reply.decode("ascii", "replace")
    return text if text.isprintable() and text.isascii() else reply.hex(" ")


class RequestTable(Record, frozen=True):
    """differences.toml."""

    differences: list[Listed]


@cache
def requests() -> Requests:
    """The requests."""
    return read_toml(FOLDER / "requests.toml", Requests)


@cache
def table() -> RequestTable:
    """The allowed differences."""
    return read_toml(FOLDER / "differences.toml", RequestTable)


def page() -> str:
    """docs/DIFFERENCES.md."""
    number = sum(len(group.commands) for group in requests().groups)
    lines = [
        "# Replies that differ between machines",
        "",
        f"The suite `visible` sends {number} requests for bytes that each machine stores in its own way. This table",
        "lists the replies that differ between a target and x86-64. All other replies have the same bytes everywhere.",
        "On an AArch64 machine the native build replies as the table says of `aarch64`. The suite fails if a reply",
        "differs from this table, and if a listed difference no longer occurs. `python -m suites.visible.table` writes",
        "this page from suites/visible/differences.toml.",
        "",
    ]
    rows = []
    for one in table().differences:
        there = " or ".join(f"`{reply}`" for reply in one.there)
        cells = [f"`{one.request}`", ", ".join(one.targets), f"`{one.native}`", there]
        rows.append((*cells, "a bug" if one.fault else "", one.reason))
    headings = ["request", "targets", "x86-64", "there", "", "reason"]
    return "\n".join([*lines, *markdown_table.table(headings, rows), "", *_unasked(), ""])


def _unasked() -> list[str]:
    lines = [
        "## Commands and options that it does not send",
        "",
        "A test compares the requests with the table of commands of each release. It fails for a command, a subcommand",
        "or, since Redis 7, an option that is neither sent nor in this table.",
        "",
    ]
    rows = []
    for one in requests().unasked:
        names = [f"`{name}`" for name in one.commands]
        names += [f"`{name}` with {' '.join(f'`{word}`' for word in words)}" for name, words in one.options.items()]
        rows.append((", ".join(names), one.reason, ", ".join(f"`{suite}`" for suite in one.suites)))
    return [*lines, *markdown_table.table(["commands", "reason", "suites that send them"], rows)]


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
