"""Choices that take turns: of each group, everything comes once before anything comes again.

A session draws thousands of commands. Independent draws would repeat most of a group before they have had all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import random
    from collections.abc import Hashable, Sequence

Choice = TypeVar("Choice")


class Turns:
    """The groups of a session. The order of each round is random."""

    def __init__(self) -> None:
        self._left: dict[Hashable, list[Any]] = {}
        """Group -> what is left of its round."""

    def next(self, group: Hashable, choices: Sequence[Choice], random: random.Random) -> Choice:
        """The next of a group's choices, which are the same each time."""
        left = self._left.get(group)
        if not left:
            left = self._left[group] = random.sample(choices, len(choices))
        chosen: Choice = left.pop()
        return chosen
