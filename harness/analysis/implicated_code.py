"""Finds the code that a wrong result points to: who writes the wrong part, the unit that failed, the command's handler.

A reader of code scanning needs a line. The function is named by the evidence or by the release's own command table; its
line is where the tree defines it. Judging a check stores the places in the run folder, because a tree may change.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from harness.core import json_codec
from harness.core.finding import Finding, Frame
from harness.core.model import Record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FILE = "implicated.json"
_REPLY = "reply to "
_TABLE_ENTRY = re.compile(r'^\s*\{"([\w-]+)",\s*(\w+Command)\b', re.MULTILINE)
"""An entry of the command table that releases before 7.0 keep in C."""


_CARRIERS = {
    "get",
    "mget",
    "dump",
    "restore",
    "save",
    "bgsave",
    "bgrewriteaof",
    "client info",
    "client list",
    "config get",
}
"""Commands that return, accept or save data that others stored, or show what others counted: a wrong result is rarely
their handlers' fault.
"""


class ImplicatedCode(Record, frozen=True):
    """RUN/implicated.json."""

    schema: int = 1
    places: dict[str, Frame] = msgspec.field(default_factory=dict)
    """Finding -> the definition of the function that it points to."""


def collect(folder: Path, findings: Iterable[Finding], tree: Path | None) -> list[Finding]:
    """The findings, with the code that wrong results point to. Writes RUN/implicated.json; existing places stay.

    Without a tree only stored places are used.
    """
    findings = list(findings)
    places = dict(_read(folder).places)
    if tree is not None:
        for finding in findings:
            if finding.id not in places and (place := _place(finding, tree.resolve())) is not None:
                places[finding.id] = place
        (folder / FILE).write_bytes(json_codec.encode(ImplicatedCode(places=places)) + b"\n")
    return [msgspec.structs.replace(finding, implicated=places.get(finding.id)) for finding in findings]


def _read(folder: Path) -> ImplicatedCode:
    """The stored places; none if they are missing or damaged, because they are not evidence."""
    try:
        return json_codec.decode((folder / FILE).read_bytes(), ImplicatedCode)
    except (OSError, msgspec.DecodeError):
        return ImplicatedCode()


def _place(finding: Finding, tree: Path) -> Frame | None:
    """The function that a wrong result points to; None for other findings, and if nothing names a function."""
    if finding.kind != "wrong-result" or finding.file:
        return None
    named = [finding.unit, finding.difference.function if finding.difference else "", _handler(finding, tree)]
    return next((place for name in named if name and (place := _definition(tree, name)) is not None), None)


def wrongly_answered(finding: Finding) -> str:
    """The request whose reply is wrong, as far as the evidence names it; empty if it names none."""
    difference = finding.difference
    named = (difference.where, difference.record) if difference else ()
    replies = [one.removeprefix(_REPLY) for one in named if one.startswith(_REPLY)]
    return replies[0] if replies else finding.command.rpartition("; ")[2]


def _handler(finding: Finding, tree: Path) -> str:
    """The function that serves the command whose reply is wrong; empty for carriers, and if the table lacks it."""
    words = wrongly_answered(finding).lower().split()
    if {" ".join(words[:1]), " ".join(words[:2])} & _CARRIERS:
        return ""
    table = _handlers(tree)
    return table.get(" ".join(words[:2]), "") or table.get(" ".join(words[:1]), "")


@cache
def _handlers(tree: Path) -> dict[str, str]:
    """Command, or container and subcommand -> its function, from the tree's command table."""
    found: dict[str, str] = {}
    for path in sorted((tree / "src").glob("commands/*.json")):
        try:
            described = json_codec.decode(path.read_bytes(), dict[str, dict[str, Any]])
        except msgspec.DecodeError:
            continue
        for name, entry in described.items():
            container = str(entry.get("container", ""))
            found[f"{container} {name}".strip().lower()] = str(entry.get("function", ""))
    for name in () if found else ("server.c", "redis.c"):
        source = tree / "src" / name
        if source.is_file():
            found.update({command.lower(): function for command, function in _TABLE_ENTRY.findall(_text(source))})
    return found


@cache
def _definition(tree: Path, function: str) -> Frame | None:
    """Where src/*.c defines a function: a line that begins with a type, and does not end a declaration."""
    pattern = re.compile(rf"^[A-Za-z_][\w \t*]*\b{re.escape(function)}\s*\([^;]*$", re.MULTILINE)
    for path in sorted((tree / "src").glob("*.c")):
        if found := pattern.search(_text(path)):
            line = _text(path).count("\n", 0, found.start()) + 1
            return Frame(function=function, file=f"src/{path.name}", line=line, origin="server", pc=0)
    return None


@cache
def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace")
