"""Chooses how to make the next stream: from the grammar or from kept streams, by the recent payoff of each method.

The payoff is new behaviour per command, because a long stream finds more than a short one but also costs more. At first
the grammar finds most, and the guide favours the themes that still show something new. When the grammar finds nothing
more, the guide changes and continues kept streams that reach rare code. The results determine the shares, so nobody
has to guess them.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from harness.protocol.command_stream import clients_of
from suites.fuzz.generate import generate, one_of
from suites.fuzz.grammar import grammar
from suites.fuzz.mutate import LONGEST, mutate, splice
from suites.fuzz.turns import Turns
from suites.fuzz.values import KEY_LETTERS, Draw

if TYPE_CHECKING:
    import random

    from harness.protocol.command_stream import Stream
    from suites.fuzz.grammar import Grammar, Theme

FORGETTING = 0.98
"""Factor that reduces earlier payoffs at each stream: a payoff from fifty streams ago counts a third."""
CURIOSITY = 0.2
"""Share of the streams whose method is drawn uniformly, so that methods without payoff are tried again."""
LEAST_KEPT = 8
MIXED = 2
"""Number of themes in a new stream."""
EMPTYING = 20
"""Cost of a stream in addition to its own commands, in commands: reading, comparing and removing all stored data."""
USUAL_COMMANDS = 25
WAITING = 8
"""Cost of a command that waits for the one before it, as in streams of two clients, relative to one that does not."""
DISAPPOINTMENT, LEAST_HOPE = 0.9, 0.05
"""Factor by which a child without anything new lowers its parent's chance, and the lower limit of that chance, as a
share of what it was at first.
"""
OPENING = 2
"""Number of streams from each theme with which a session begins, before payoffs decide."""
UNPROVED = 0.2
"""Payoff of a method that continues kept streams, before it was tried, relative to the grammar: at first, nearly every
line of the grammar finds something.
"""


class _Way(msgspec.Struct):
    """One method of making streams, or one theme of the grammar, with its payoff and its cost."""

    name: str
    gained: float = 1.0
    spent: float = 1.0
    uses: int = 0
    """How often a theme was drawn."""

    @property
    def payoff(self) -> float:
        return self.gained / self.spent

    def learn(self, gain: float, cost: float) -> None:
        self.gained = FORGETTING * self.gained + (1 - FORGETTING) * gain
        self.spent = FORGETTING * self.spent + (1 - FORGETTING) * cost


class Guide:
    """Makes streams, and learns the result of each. The caller adds streams that showed something new to `kept`.

    With `themes` it also chooses the grammar's themes by their payoff. That requires edges: a run soon sees all shapes
    of replies, and a theme without new shapes may still reach a bug.
    """

    def __init__(
        self, random: random.Random, kept: list[Stream], *, themes: bool, known: Grammar | None = None
    ) -> None:
        """`known`: what the release knows of the grammar; all of it by default."""
        self.random = random
        self._known = known or grammar()
        self._turns = Turns()
        self._ways = [_Way("generate"), *(_Way(name, gained=UNPROVED) for name in ("mutate", "splice", "extend"))]
        self._themes = [_Way(name) for name in self._known.themes] if themes else []
        self._drawn: list[_Way] = []
        """Themes of the latest stream."""
        self._cost = 1.0
        self._kept = kept
        self._hopes: list[float] = []
        """Each kept stream's weight in the choice of a parent. Every child that finds nothing lowers it. It is small
        for a stream of two clients, whose children cost several times as much.
        """
        self._way: _Way | None = None
        self.parent = -1
        """Index of the kept stream from which the latest one was made; -1: none."""

    @property
    def way(self) -> str:
        """How the latest stream was made; empty once its result is known."""
        return self._way.name if self._way else ""

    @property
    def payoffs(self) -> dict[str, float]:
        """The recent payoff of each method: the binary logarithm of the number of new features, per cost of a usual
        stream.
        """
        return {way.name: round(way.payoff, 3) for way in self._ways}

    def next(self) -> Stream:
        """The next stream to run."""
        stream = self._make()
        self._cost = _cost_of(stream, len(stream))
        return stream

    def _make(self) -> Stream:
        self._way, self.parent, self._drawn = self._ways[0], -1, self._opening()
        if len(self._hopes) >= LEAST_KEPT and not self._drawn:
            self._way = self._chosen(self._ways)[0]
        if self._way.name == "generate":
            if self._themes and not self._drawn:
                self._drawn = self._chosen(self._themes, MIXED)
            for theme in self._drawn:
                theme.uses += 1
            return generate(self.random, [theme.name for theme in self._drawn], self._known, self._turns)
        self.parent = self.random.choices(range(len(self._hopes)), self._hopes)[0]
        parent, other = self._kept[self.parent], self.random.choices(self._kept, self._hopes)[0]
        if self._way.name == "extend":
            return extend(parent, self.random)
        return (mutate if self._way.name == "mutate" else splice)(parent, other, self.random)

    @property
    def opens_alone(self) -> bool:
        """Whether the next stream comes from one of the first themes, which have one client."""
        return any(theme.uses < OPENING and not self._known.themes[theme.name].second for theme in self._themes)

    def _opening(self) -> list[_Way]:
        """The theme of a stream at the beginning of a session; none later.

        Values come first, where most differences between machines are. Streams of two clients, which cost several times
        as much, come last.
        """
        untried = [theme for theme in self._themes if theme.uses < OPENING]
        if not untried:
            return []
        first = min(map(self._rank, untried))
        return [self.random.choice([theme for theme in untried if self._rank(theme) == first])]

    def _rank(self, way: _Way) -> tuple[bool, bool, int]:
        """The place of a theme in the opening: equal ones come in random order."""
        theme = self._known.themes[way.name]
        return bool(theme.second), not theme.fills, way.uses

    def _chosen(self, ways: list[_Way], number: int = 1) -> list[_Way]:
        """Some of these methods, usually chosen by payoff, occasionally at random."""
        even = self.random.random() < CURIOSITY
        return self.random.choices(ways, [1.0 if even else way.payoff + 1e-6 for way in ways], k=number)

    def learn(self, new: int) -> None:
        """Learn how many new features the latest stream showed. The stream need not come from this guide."""
        self._hopes += [_hope_of(stream) for stream in self._kept[len(self._hopes) :]]
        if self._way is not None:
            for way in [self._way, *self._drawn]:
                way.learn(math.log2(1 + new), self._cost)
        if self.parent >= 0:
            first = _hope_of(self._kept[self.parent])
            lower = max(LEAST_HOPE * first, DISAPPOINTMENT * self._hopes[self.parent])
            self._hopes[self.parent] = first if new else lower
        self._way, self.parent, self._drawn = None, -1, []


def _cost_of(stream: Stream, commands: int) -> float:
    """What so many commands of a stream's clients cost, in usual streams."""
    turns = WAITING if clients_of(stream) > 1 else 1
    return (EMPTYING + turns * commands) / (EMPTYING + USUAL_COMMANDS)


def _hope_of(stream: Stream) -> float:
    """A kept stream's weight at first: children of equal length must pay alike."""
    return 1 / _cost_of(stream, USUAL_COMMANDS)


class _SameKeys(Draw):
    """Draws words for an existing stream, and prefers the stream's own keys."""

    def __init__(self, random: random.Random, stream: Stream) -> None:
        super().__init__(random)
        self._present: dict[str, list[bytes]] = {}
        for one in stream:
            if len(one.words) > 1 and one.words[1]:
                self._present.setdefault(chr(one.words[1][0]), []).append(one.words[1])

    def key(self, kind: str) -> bytes:
        present = self._present.get(KEY_LETTERS[kind])
        return self.random.choice(present) if present and self.random.random() < 0.9 else super().key(kind)


def extend(stream: Stream, random: random.Random) -> Stream:
    """The beginning of a stream, followed by more commands of its kind on its keys."""
    begun = stream[: random.randrange(1, len(stream) + 1)]
    draw = _SameKeys(random, begun)
    theme = _theme_like(begun, random)
    more = tuple(one_of(theme, draw) for _ in range(random.choice((2, 5, 10, 20))))
    return (*begun, *more)[-LONGEST:]


def _theme_like(stream: Stream, random: random.Random) -> Theme:
    """A theme of the grammar that contains one of the stream's commands and has as many clients, or any theme."""
    name, second = random.choice(stream).name, clients_of(stream) > 1
    return random.choice(_themes_with(name, second=second) or list(grammar().themes.values()))


@cache
def _themes_with(name: str, *, second: bool) -> list[Theme]:
    """The themes with a command of that name, and with or without a second client."""
    return [
        theme
        for theme in grammar().themes.values()
        if bool(theme.second) == second and any(line.split(" ", 1)[0] == name for line in theme.commands)
    ]
