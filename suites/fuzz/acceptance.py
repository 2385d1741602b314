"""Counts the damaged inputs that the native build accepts. A test fails if too few of a kind are accepted, because
refused inputs test little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LEAST_SHARE = 0.02
"""Minimum share of a kind's damaged inputs that the native build must accept. It must always accept at least one.

The damage is chosen so that the native build accepts at least a tenth.
"""


class Acceptance:
    """The damaged inputs of each kind, and the number of them that the native build accepted."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self.tried = dict.fromkeys(kinds, 0)
        self.taken = dict.fromkeys(self.tried, 0)

    def count(self, kind: str, *, taken: bool) -> None:
        """Count one more damaged input. Raises KeyError for an unknown kind."""
        self.tried[kind] += 1
        self.taken[kind] += taken

    @property
    def lacking(self) -> list[str]:
        """The kinds of which the native build accepted too few."""
        return [kind for kind, tried in self.tried.items() if self.taken[kind] < max(1, tried * LEAST_SHARE)]

    def __str__(self) -> str:
        counts = [f"{self.taken[kind]} of {tried} damaged {kind} were taken" for kind, tried in self.tried.items()]
        return ", ".join(counts)
