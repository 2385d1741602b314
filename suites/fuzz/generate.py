"""Makes streams from the grammar. Pure: the same random state gives the same stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.protocol.command_stream import Command
from suites.fuzz.grammar import expand, grammar
from suites.fuzz.values import Draw

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from harness.protocol.command_stream import Stream
    from suites.fuzz.grammar import Grammar, Theme
    from suites.fuzz.turns import Turns

SHARE_OF_TWO = 0.25
"""Weight of a theme with two clients in the choice of a stream's themes; the others have 1."""
_JUNK = tuple(
    Command(words=tuple(line.split()), inline=True)
    for line in (b"PING", b"PING a", b"ECHO abc", b"PING ab", b"ECHO abcd", b"GET x", b"PING abcde")
)
_SHARES_THAT_WAIT = (0.0, 0.0, 0.0, 0.1)
"""Possible shares of a stream's commands that wait for the command before. Such a command takes as long as six others.
"""
_FILLS = (0, 1, 2, 3, 4)
"""Possible numbers of commands that fill a theme's keys at the beginning of a stream."""
_LIMITS = (-2, 0, 1, 2, 3, 4, 8, 16, 64, 128, 512)


def generate(
    random: random.Random, themes: Sequence[str] = (), known: Grammar | None = None, turns: Turns | None = None
) -> Stream:
    """A new stream from a few of these themes (or of all): few keys, several commands in a write, some inline
    commands. `known`: what the release knows of the grammar; all of it by default. `turns`: those of the session.
    """
    draw = Draw(random, turns)
    all_themes = (known or grammar()).themes
    every = {name: all_themes[name] for name in themes or all_themes}
    # With two clients, each command waits for the one before it.
    weights = [SHARE_OF_TWO if theme.second else 1.0 for theme in every.values()]
    chosen = random.choices(list(every.values()), weights, k=random.choice((1, 1, 1, 2, 3)))
    commands = [one for theme in chosen for one in _lowered(theme, random)]
    commands += _filling(chosen, draw)
    listening = [theme for theme in chosen if theme.second]
    commands += [_by_second(line, draw) for theme in listening for line in theme.begins]
    if random.random() < 0.15:
        commands.insert(0, Command(words=(b"HELLO", b"3")))
    pace = random.choice(_SHARES_THAT_WAIT)
    transaction = 0
    for _ in range(random.choice((4, 12, 25) if listening else (4, 12, 25, 50))):
        if random.random() < 0.06:
            commands.append(random.choice(_JUNK))
        if random.random() < 0.02:
            commands.append(Command(words=(b"EXEC" if transaction else b"MULTI",)))
            transaction = 1 - transaction
        one = one_of(random.choice(chosen), draw)
        commands.append(msgspec.structs.replace(one, waits=True) if random.random() < pace else one)
    if transaction:
        commands.append(Command(words=(b"EXEC",)))
    return tuple(commands)


def one_of(theme: Theme, draw: Draw) -> Command:
    """A command of a theme, of either client."""
    if theme.second and draw.random.random() < 0.5:
        return _by_second(draw.random.choice(theme.second), draw)
    draw.place = tuple(theme.commands)
    return expand(draw.choice(theme.commands), draw)


def _by_second(line: str, draw: Draw) -> Command:
    return expand(line, draw, client=1)


def _filling(themes: Sequence[Theme], draw: Draw) -> list[Command]:
    """Commands with which keys get values, for each theme a few."""
    lines = [
        draw.random.choice(theme.fills) for theme in themes if theme.fills for _ in range(draw.random.choice(_FILLS))
    ]
    return [expand(line, draw) for line in lines]


def _lowered(theme: Theme, random: random.Random) -> list[Command]:
    """Commands that set the theme's thresholds, each with a chance of one half."""
    chosen = [name for name in theme.thresholds if random.random() < 0.5]
    return [Command(words=(b"CONFIG", b"SET", name.encode(), b"%d" % random.choice(_LIMITS))) for name in chosen]
