"""Where the next stream comes from: out of the grammar, or of kept ones, as each way has paid of late.

What pays is new behaviour. At first the grammar alone finds most; when it finds nothing more, kept streams that lead to
rare places are changed and continued. Shares follow what was found, so that neither has to be guessed.
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

    from harness.stream import Stream

FORGETTING = 0.98
"""By what a payoff of before is multiplied at each stream: what was fifty streams ago counts a third."""
CURIOSITY = 0.2
"""Share of the streams whose way is drawn evenly, so that one that paid nothing is tried again."""
LEAST_KEPT = 8
DISAPPOINTMENT, LEAST_HOPE = 0.9, 0.05
"""By what a child without anything new lowers the chance of its parent, and how far at most."""


class _Way(msgspec.Struct):
    """One way to make streams, and what it has paid."""

    name: str
    payoff: float = 1.0


class Guide:
    """Makes streams, and is told what each came to. `kept` grows by those that showed something new."""

    def __init__(self, random: random.Random, kept: list[Stream]) -> None:
        self.random = random
        self._ways = [_Way(name) for name in ("generate", "mutate", "splice", "extend")]
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
        """What each way has paid of late: twofold logarithms of new features a stream."""
        return {way.name: round(way.payoff, 3) for way in self._ways}

    def next(self) -> Stream:
        """A stream to try."""
        self._way, self.parent = self._ways[0], -1
        if len(self._hopes) >= LEAST_KEPT:
            even = self.random.random() < CURIOSITY
            weights = [1.0 if even else way.payoff + 1e-6 for way in self._ways]
            self._way = self.random.choices(self._ways, weights)[0]
        if self._way.name == "generate":
            return generate(self.random)
        self.parent = self.random.choices(range(len(self._hopes)), self._hopes)[0]
        parent, other = self._kept[self.parent], self.random.choice(self._kept)
        if self._way.name == "extend":
            return extend(parent, self.random)
        return (mutate if self._way.name == "mutate" else splice)(parent, other, self.random)

    def learn(self, new: int) -> None:
        """The stream that was run last showed so many features for the first time. It need not come from here."""
        self._hopes += [1.0] * (len(self._kept) - len(self._hopes))
        if self._way is not None:
            self._way.payoff = FORGETTING * self._way.payoff + (1 - FORGETTING) * math.log2(1 + new)
        if self.parent >= 0:
            self._hopes[self.parent] = 1.0 if new else max(LEAST_HOPE, DISAPPOINTMENT * self._hopes[self.parent])
        self._way, self.parent = None, -1


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
