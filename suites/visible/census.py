"""Finds the commands and options of a release that the requests omit."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from suites._shared.census import text_of
from suites.visible import table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from suites._shared.census import Commands


def asked(known: Mapping[str, set[str]]) -> Commands:
    """The commands of a release that the requests contain, each with the words that follow it."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for group in table.requests().groups:
        for command in group.commands:
            words = [text_of(word) for word in command.words]
            name = next((name for name in (" ".join(words[:2]), words[0]) if name in known), "")
            if name:
                found[name] |= set(words[len(name.split()) :])
    return dict(found)


def missing(known: Commands) -> list[str]:
    """The commands and options of a release that no request contains and `unasked` does not list."""
    sent = asked(known)
    unasked = table.requests().unasked
    # In a table without subcommands, entries for subcommands of `CLIENT` stand for `CLIENT` itself.
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
