"""Where the next stream comes from: out of the grammar, or of kept ones, as each way has paid of late.

What pays is new behaviour for the commands that it took: a long stream finds more than a short one, and costs more. At
first the grammar alone finds most, and of its themes those that still have something to say are drawn more often; when
it finds nothing more, kept streams that lead to rare places are changed and continued. Shares follow what was found, so
that none has to be guessed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from suites.fuzz.generate import LONGEST, expand, generate, grammar, mutate, splice
from suites.fuzz.values import KEY_LETTERS, Draw

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from harness.protocol.command_stream import Stream

FORGETTING = 0.98
"""By what a payoff of before is multiplied at each stream: what was fifty streams ago counts a third."""
CURIOSITY = 0.2
"""Share of the streams whose way is drawn evenly, so that one that paid nothing is tried again."""
LEAST_KEPT = 8
MIXED = 2
"""Themes that a new stream is drawn from."""
EMPTYING = 20
"""What a stream costs beside its own commands, in commands: two connections, no keys, default settings."""
USUAL_COMMANDS = 25
DISAPPOINTMENT, LEAST_HOPE = 0.9, 0.05
"""By what a child without anything new lowers the chance of its parent, and how far at most."""


class _Way(msgspec.Struct):
    """One way to make streams, or one theme of the grammar, and what it has paid for what it cost."""

    name: str
    gained: float = 1.0
    spent: float = 1.0

    @property
    def payoff(self) -> float:
        return self.gained / self.spent

    def learn(self, gain: float, cost: float) -> None:
        self.gained = FORGETTING * self.gained + (1 - FORGETTING) * gain
        self.spent = FORGETTING * self.spent + (1 - FORGETTING) * cost


class Guide:
    """Makes streams, and is told what each came to. `kept` grows by those that showed something new.

    With `themes` the grammar's are drawn by what they have paid, too. That takes edges: the shapes of replies are soon
    all seen, and a theme whose replies say nothing new may still have the bug.
    """

    def __init__(self, random: random.Random, kept: list[Stream], *, themes: bool) -> None:
        self.random = random
        self._ways = [_Way(name) for name in ("generate", "mutate", "splice", "extend")]
        self._themes = [_Way(name) for name in grammar().themes] if themes else []
        self._drawn: list[_Way] = []
        """Themes of the stream that was made last."""
        self._cost = 1.0
        self._kept = kept
        self._hopes: list[float] = []
        """Of every kept stream, how likely it is to be taken: less with each child that finds nothing."""
        self._way: _Way | None = None
        self.parent = -1
        """Which kept stream the last one was made of; -1: none."""

    @property
    def way(self) -> str:
        """How the last stream was made; empty once it is known what it came to."""
        return self._way.name if self._way else ""

    @property
    def payoffs(self) -> dict[str, float]:
        """What each way has paid of late: twofold logarithms of new features, for a usual stream's cost."""
        return {way.name: round(way.payoff, 3) for way in self._ways}

    def next(self) -> Stream:
        """A stream to try."""
        stream = self._make()
        self._cost = (EMPTYING + len(stream)) / (EMPTYING + USUAL_COMMANDS)
        return stream

    def _make(self) -> Stream:
        self._way, self.parent, self._drawn = self._ways[0], -1, []
        if len(self._hopes) >= LEAST_KEPT:
            self._way = self._chosen(self._ways)[0]
        if self._way.name == "generate":
            self._drawn = self._chosen(self._themes, MIXED) if self._themes else []
            return generate(self.random, [theme.name for theme in self._drawn])
        self.parent = self.random.choices(range(len(self._hopes)), self._hopes)[0]
        parent, other = self._kept[self.parent], self.random.choice(self._kept)
        if self._way.name == "extend":
            return extend(parent, self.random)
        return (mutate if self._way.name == "mutate" else splice)(parent, other, self.random)

    def _chosen(self, ways: list[_Way], number: int = 1) -> list[_Way]:
        """Some of them by what they have paid, now and then whatever that was."""
        even = self.random.random() < CURIOSITY
        return self.random.choices(ways, [1.0 if even else way.payoff + 1e-6 for way in ways], k=number)

    def learn(self, new: int) -> None:
        """The stream that was run last showed so many features for the first time. It need not come from here."""
        self._hopes += [1.0] * (len(self._kept) - len(self._hopes))
        if self._way is not None:
            for way in [self._way, *self._drawn]:
                way.learn(math.log2(1 + new), self._cost)
        if self.parent >= 0:
            self._hopes[self.parent] = 1.0 if new else max(LEAST_HOPE, DISAPPOINTMENT * self._hopes[self.parent])
        self._way, self.parent, self._drawn = None, -1, []


class _SameKeys(Draw):
    """Draws words for a stream that is there already: its keys first."""

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
    """The beginning of a stream, and more commands of its kind on its keys."""
    begun = stream[: random.randrange(1, len(stream) + 1)]
    draw = _SameKeys(random, begun)
    lines = _lines_like(begun, random)
    more = tuple(expand(random.choice(lines), draw) for _ in range(random.choice((2, 5, 10, 20))))
    return (*begun, *more)[-LONGEST:]


def _lines_like(stream: Stream, random: random.Random) -> Sequence[str]:
    """The grammar's lines of a theme that one of the stream's commands belongs to, or of any."""
    name = random.choice(stream).name
    themes = list(grammar().themes.values())
    fitting = [theme for theme in themes if any(line.split(" ", 1)[0] == name for line in theme.commands)]
    return random.choice(fitting or themes).commands
