"""How much of what is damaged a server takes: where it takes nothing, nothing was looked at, and that is a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LEAST_SHARE = 0.02
"""Of the damaged inputs of a kind that were tried so many must be taken, and one at least. Damage is drawn so that a
tenth or more are."""


class Acceptance:
    """What was tried of each kind, and what of that the native build took."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self.tried = dict.fromkeys(kinds, 0)
        self.taken = dict.fromkeys(self.tried, 0)

    def count(self, kind: str, *, taken: bool) -> None:
        """One more damaged input. Raises KeyError for a kind that is not looked at."""
        self.tried[kind] += 1
        self.taken[kind] += taken

    @property
    def lacking(self) -> list[str]:
        """Kinds of which too few were taken to say anything."""
        return [kind for kind, tried in self.tried.items() if self.taken[kind] < max(1, tried * LEAST_SHARE)]

    def __str__(self) -> str:
        counts = [f"{self.taken[kind]} of {tried} damaged {kind} were taken" for kind, tried in self.tried.items()]
        return ", ".join(counts)
