"""What the suite asks, and which replies may differ where: data in requests.toml and differences.toml."""

from __future__ import annotations

import fnmatch
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.core.model import Record
from harness.core.strict_toml import ROOT, read_toml
from harness.protocol.command_stream import from_text, line_of
from harness.report import markdown_table

if TYPE_CHECKING:
    from harness.core.target_model import Target
    from harness.protocol.command_stream import Command, Stream
    from harness.protocol.resp import Reply

FOLDER = Path(__file__).parent
PAGE = ROOT / "docs" / "DIFFERENCES.md"


class RequestGroup(Record, frozen=True):
    """Requests that are sent one after the other, to empty servers."""

    name: str
    since: list[int]
    """The release that first knows all of them: Redis', and Valkey's if `since_valkey` is empty."""
    requests: str
    """A command a line."""
    since_valkey: list[int] = msgspec.field(default_factory=list)

    def known_to(self, family: str, version: tuple[int, ...]) -> bool:
        """Whether a release has all that is asked."""
        since = self.since_valkey if family == "valkey" and self.since_valkey else self.since
        return list(version) >= since

    @property
    def commands(self) -> Stream:
        """The requests as values."""
        return from_text(self.requests)


class Unasked(Record, frozen=True):
    """Commands that no group asks."""

    reason: str
    commands: list[str]


class Asked(Record, frozen=True):
    """requests.toml."""

    groups: list[RequestGroup]
    unasked: list[Unasked]


class Listed(Record, frozen=True):
    """A reply that differs from the native build's."""

    request: str
    """A glob for the line."""
    targets: list[str]
    """Globs of targets and groups where it does."""
    native: str
    """What this machine (x86-64) answers, as `shown` has it."""
    there: list[str]
    """What they answer: one of these."""
    reason: str
    fault: bool = False
    """Whether it is a bug of the server (docs/FOUND.md), and no machine's right."""
    since: tuple[int, ...] = ()
    until: tuple[int, ...] = ()
    """The release that first has it no more; empty: all have it."""

    def covers(self, command: Command, target: Target, version: tuple[int, ...], *, development: bool = False) -> bool:
        """Whether the reply to a command must differ there; of a development tree, whether it may.

        That has what one release changed and another has not changed yet: neither `since` nor `until` is told of it.
        """
        names = [target.name, *target.groups]
        here = any(fnmatch.fnmatchcase(name, glob) for name in names for glob in self.targets)
        living = development or (version >= self.since and (not self.until or version < self.until))
        return here and living and fnmatch.fnmatchcase(line_of(command), self.request)

    def fits(self, guest: Reply, native: Reply) -> bool:
        """Whether the two replies are those that are listed. Everything else that differs is not."""
        return shown(native) == self.native and shown(guest) in self.there


def shown(reply: Reply) -> str:
    """A reply as the list has it: text as such, other bytes as hexadecimal digits, an array with commas."""
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
def asked() -> Asked:
    """What is asked."""
    return read_toml(FOLDER / "requests.toml", Asked)


@cache
def table() -> RequestTable:
    """What may differ."""
    return read_toml(FOLDER / "differences.toml", RequestTable)


def page() -> str:
    """docs/DIFFERENCES.md."""
    number = sum(len(group.commands) for group in asked().groups)
    lines = [
        "# Replies that differ between machines",
        "",
        f"The suite `visible` asks {number} requests for bytes that a machine keeps in its own way. These are",
        "answered otherwise on some target than on this machine (x86-64); all others are the same bytes everywhere.",
        "The suite fails for a difference that is not listed, for one that is not as listed, and for a listed one that",
        "no longer shows. What cannot be asked so is in suites/visible/requests.toml under `unasked`, with its reason.",
        "`python -m suites.visible.table` writes this page, of suites/visible/differences.toml.",
        "",
    ]
    rows = []
    for one in table().differences:
        there = " or ".join(f"`{reply}`" for reply in one.there)
        cells = [f"`{one.request}`", ", ".join(one.targets), f"`{one.native}`", there]
        rows.append((*cells, "a bug" if one.fault else "", one.reason))
    headings = ["request", "targets", "x86-64", "there", "", "reason"]
    return "\n".join([*lines, *markdown_table.table(headings, rows), ""])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
