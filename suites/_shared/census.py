"""The commands of a release and their options, from its own command table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from suites._shared.needs import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.protocol.resp import Client, Reply
    from harness.run.cell_spec import CellSpec

Commands = dict[str, set[str]]
"""Command, or command and subcommand, in upper case -> the words of its options."""


def of_release(native: Client, cell: CellSpec) -> Commands:
    """The commands of the cell's release. Without COMMAND DOCS, it lists neither subcommands nor options."""
    require(cell, "command command")
    if cell.development:
        pytest.skip("a development tree may have new commands that are not listed yet")
    if cell.lacks("form COMMAND DOCS"):
        return names_only(native.command("COMMAND"))
    return documented(native.command("COMMAND", "DOCS"))


def names_only(reply: Reply) -> Commands:
    """The commands in a reply to COMMAND, which lists neither subcommands nor options."""
    return {text_of(one[0]): set() for one in _list(reply)}


def documented(reply: Reply) -> Commands:
    """The commands in a reply to COMMAND DOCS (Redis 7). A command that has subcommands is omitted: only its
    subcommands are listed.
    """
    found: Commands = {}
    for name, about in _pairs(reply):
        fields = dict(_pairs(about))
        if "SUBCOMMANDS" in fields:
            found |= {one.replace("|", " "): words for one, words in documented(fields["SUBCOMMANDS"]).items()}
        else:
            found[name] = set(_options(fields.get("ARGUMENTS", [])))
    return found


def _options(arguments: Reply) -> Iterator[str]:
    for argument in _list(arguments):
        fields = dict(_pairs(argument))
        # MIGRATE's second form has an empty word instead of a key.
        if (token := fields.get("TOKEN")) is not None and text_of(token) != '""':
            yield text_of(token)
        yield from _options(fields.get("ARGUMENTS", []))


def _pairs(reply: Reply) -> Iterator[tuple[str, Any]]:
    fields = _list(reply)
    return zip(map(text_of, fields[::2]), fields[1::2], strict=True)


def _list(reply: Reply) -> list[Any]:
    assert isinstance(reply, list)
    return reply


def text_of(word: Any) -> str:
    """A word of a table or a command, in upper case."""
    return bytes(word).decode("utf-8", "backslashreplace").upper()
