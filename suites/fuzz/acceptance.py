"""Counts how much damaged input the native build takes: a kind of which it takes nothing tests nothing, and fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LEAST_SHARE = 0.02
"""Share of a kind's damaged inputs that must be taken, and at least one. Damage is drawn so that a tenth or more
are."""


class Acceptance:
    """The damaged inputs of each kind, and how many of them the native build took."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self.tried = dict.fromkeys(kinds, 0)
        self.taken = dict.fromkeys(self.tried, 0)

    def count(self, kind: str, *, taken: bool) -> None:
        """Count one more damaged input. Raises KeyError for an unknown kind."""
        self.tried[kind] += 1
        self.taken[kind] += taken

    @property
    def lacking(self) -> list[str]:
        """The kinds of which too few were taken."""
        return [kind for kind, tried in self.tried.items() if self.taken[kind] < max(1, tried * LEAST_SHARE)]

    def __str__(self) -> str:
        counts = [f"{self.taken[kind]} of {tried} damaged {kind} were taken" for kind, tried in self.tried.items()]
        return ", ".join(counts)
