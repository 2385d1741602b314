"""The refusals that a server whose C `long` has 32 bits may answer, as harness/protocol/refusals.toml lists them.

An entry names commands, an argument, releases and the text of the refusal. Any other answer that differs from a 64-bit
server's is a difference, and so is the refusal of a number that fits.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.core.model import Record
from harness.core.strict_toml import read_toml

if TYPE_CHECKING:
    from harness.protocol.command_stream import Command

REFUSALS = Path(__file__).with_name("refusals.toml")
NARROW_BITS = 32
"""Width of `long` on the machines that the list applies to."""
_INTEGER = re.compile(rb"-?[0-9]+")


class Release(NamedTuple):
    """The family and version of a server, which decide how it reads numbers."""

    family: str
    version: tuple[int, ...]


def release_of(program: Path, version: tuple[int, ...]) -> Release:
    """The release of a server's program, which is named after its family."""
    return Release(program.name.partition("-")[0], version)


class Refusal(Record, frozen=True):
    """A number that is refused where `long` has 32 bits."""

    commands: list[str]
    at: list[str]
    """Positions among a request's words: `2` is the third word, the second after the name; `LIMIT+1` is the first
    after LIMIT."""
    says: str
    """The whole error reply."""
    redis: list[str]
    """Releases with this refusal: [first], [first, first without it], or none."""
    valkey: list[str]
    source: str
    """The place at which the server reads the number, and the type into which it reads."""
    changes: bool = False
    """Whether the data differ afterwards if the number was not refused."""
    both: bool = False
    """Whether a 64-bit server refuses it too, with another text."""
    least: int = -(1 << 31)
    """The smallest number that does not get this refusal."""
    most: int = (1 << 31) - 1
    """The greatest such number."""

    def applies_to(self, request: Command, release: Release) -> bool:
        """Whether the request contains such a number, and the release reads it in this way."""
        if request.name not in self.commands or not is_among(release, self.redis, self.valkey):
            return False
        return any(
            _INTEGER.fullmatch(word) and not self.least <= int(word[:NUMBER_BYTES]) <= self.most
            for place in self.at
            for word in _words_at(request, place)
        )


NUMBER_BYTES = 40
"""Digits of a number that are examined: 64 bits have 20 digits."""


def has_wide_number(request: Command) -> bool:
    """Whether a word of a request is a number that does not fit a `long` of 32 bits."""
    return any(
        _INTEGER.fullmatch(word) and not -(1 << 31) <= int(word[:NUMBER_BYTES]) < 1 << 31 for word in request.words[1:]
    )


class RefusalList(Record, frozen=True):
    """harness/protocol/refusals.toml."""

    refusals: list[Refusal]


@cache
def listed() -> list[Refusal]:
    """All refusals that may occur."""
    return read_toml(REFUSALS, RefusalList).refusals


def due(request: Command, release: Release, width_bits: int) -> list[Refusal]:
    """The refusals that the server may answer to a request."""
    return [one for one in listed() if one.applies_to(request, release)] if width_bits == NARROW_BITS else []


def refused(
    request: Command, error: str | None, native_error: str | None, release: Release, width_bits: int
) -> Refusal | None:
    """The refusal that a reply is. `error` and `native_error` are the error texts of the server and of a 64-bit one."""
    return next(
        (
            one
            for one in due(request, release, width_bits)
            if error == one.says and (native_error is not None or not one.both)
        ),
        None,
    )


def is_among(release: Release, redis: list[str], valkey: list[str]) -> bool:
    """Whether a release is one of its family's: [first], [first, first that is none], or none.

    A refusal is allowed only in the releases in which it was examined: a server that was asked would excuse itself.
    """
    bounds = [tuple(map(int, text.split("."))) for text in (valkey if release.family == "valkey" else redis)]
    return bool(bounds) and bounds[0] <= release.version and not (bounds[1:] and release.version >= bounds[1])


def _words_at(request: Command, place: str) -> list[bytes]:
    """The words at a position; none if the request has no such position."""
    behind, _, distance = place.rpartition("+")
    if not behind:
        return list(request.words[int(distance) : int(distance) + 1])
    starts = [number for number, word in enumerate(request.words) if number > 1 and word.upper() == behind.encode()]
    return [request.words[start + int(distance)] for start in starts if start + int(distance) < len(request.words)]
