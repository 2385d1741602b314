"""What a release can be asked, by its own table of commands, and what of that the requests leave out."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from suites.visible import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harness.protocol.resp import Reply

Commands = dict[str, set[str]]
"""Command, or command and subcommand, in capitals -> the words of its options."""


def names_only(reply: Reply) -> Commands:
    """The commands in a reply to COMMAND, which lists neither subcommands nor options."""
    return {_text(one[0]): set() for one in _list(reply)}


def documented(reply: Reply) -> Commands:
    """The commands in a reply to COMMAND DOCS (Redis 7). One that has subcommands is none itself."""
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
        # MIGRATE's second form has an empty word in the place of a key.
        if (token := fields.get("TOKEN")) is not None and _text(token) != '""':
            yield _text(token)
        yield from _options(fields.get("ARGUMENTS", []))


def asked(known: Mapping[str, set[str]]) -> Commands:
    """The commands of a release's table that the requests contain, each with the words that follow it."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for group in table.requests().groups:
        for command in group.commands:
            words = [_text(word) for word in command.words]
            name = next((name for name in (" ".join(words[:2]), words[0]) if name in known), "")
            if name:
                found[name] |= set(words[len(name.split()) :])
    return dict(found)


def missing(known: Commands) -> list[str]:
    """The commands and options of a release that are neither asked nor listed as unasked."""
    sent = asked(known)
    unasked = table.requests().unasked
    # A table without subcommands knows of `CLIENT` what the list says of its subcommands.
    left_out = {part for one in unasked for name in one.commands for part in (name, name.partition(" ")[0])}
    names = sorted(set(known) - set(sent) - left_out)
    excused = {(name, option) for one in unasked for name, options in one.options.items() for option in options}
    options = [
        f"{name} {option}"
        for name in sorted(set(known) & set(sent))
        for option in sorted(known[name] - sent[name])
        if (name, option) not in excused
    ]
    return names + options


def _pairs(reply: Reply) -> Iterator[tuple[str, Any]]:
    fields = _list(reply)
    return zip(map(_text, fields[::2]), fields[1::2], strict=True)


def _list(reply: Reply) -> list[Any]:
    assert isinstance(reply, list)
    return reply


def _text(word: Any) -> str:
    return bytes(word).decode("utf-8", "backslashreplace").upper()
