"""One form for the values of keys, whether from the data set, from a server's commands, or from the reader of a file.

The form is independent of encodings: a set in an intset equals the same set in a hash table. Doubles are compared bit
by bit.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any


@dataclass(frozen=True)
class Text:
    """A string."""

    content: bytes


@dataclass(frozen=True)
class Sequence:
    """A list."""

    items: tuple[bytes, ...]


@dataclass(frozen=True)
class Members:
    """A set."""

    members: frozenset[bytes]


@dataclass(frozen=True)
class Scores:
    """A sorted set: member -> the score's bits, most significant first."""

    members: dict[bytes, bytes]


@dataclass(frozen=True)
class Fields:
    """A hash. Fields that expire have a time of expiry in milliseconds since 1970."""

    fields: dict[bytes, bytes]
    expiries: dict[bytes, int] = field(default_factory=dict)


Identifier = tuple[int, int]
"""The milliseconds and the sequence number of a stream entry."""


@dataclass(frozen=True)
class Pending:
    """An entry that its consumer has not acknowledged."""

    entry: Identifier
    deliveries: int = 1
    delivered: int = field(default=0, compare=False)
    """Time of the last delivery in milliseconds since 1970. It is not compared, because it depends on the run."""


@dataclass(frozen=True)
class ConsumerGroup:
    """A consumer group: its position, and consumer -> the entries that the consumer has not acknowledged."""

    last: Identifier
    pending: dict[bytes, tuple[Pending, ...]]
    read: int = field(default=-1, compare=False)
    """Number of entries that the group has read (since 7.0); -1 if the server does not know."""
    seen: dict[bytes, int] = field(default_factory=dict, compare=False)
    """Consumer -> the time of its last request for entries, in milliseconds since 1970."""


@dataclass(frozen=True)
class Stream:
    """A stream."""

    entries: tuple[tuple[Identifier, tuple[bytes, ...]], ...]
    """Identifier, then fields and values alternately."""
    last: Identifier
    groups: dict[bytes, ConsumerGroup] = field(default_factory=dict)
    deleted: Identifier = field(default=(0, 0), compare=False)
    """The greatest deleted identifier (since 7.0)."""
    added: int = field(default=0, compare=False)
    """Number of entries added in the stream's lifetime (since 7.0)."""


@dataclass(frozen=True)
class Foreign:
    """A module's saved data: numbers, doubles and texts in order."""

    module: str
    encoding: int
    items: tuple[int | float | bytes, ...]
    when: int = 0
    """The position of auxiliary data: before the keys (1) or after them (2)."""


Value = Text | Sequence | Members | Scores | Fields | Stream | Foreign


@dataclass(frozen=True)
class Key:
    """A key's name and its database."""

    database: int
    name: bytes


@dataclass(frozen=True)
class KeyEntry:
    """A key's value, and its time of expiry: milliseconds since 1970, or never."""

    value: Value
    expires: int | None = None


def score(value: float) -> bytes:
    """A double's bits, most significant first. Zero has no sign: since 7.0 a listpack stores it as an
    integer.
    """
    return struct.pack(">d", value + 0.0)


def identifier(text: bytes) -> Identifier:
    """`MILLISECONDS-SEQUENCE`, as commands print it."""
    milliseconds, _, sequence = text.partition(b"-")
    return int(milliseconds), int(sequence)


def differences(expected: dict[Key, KeyEntry], actual: dict[Key, KeyEntry]) -> list[str]:
    """The differences from the expected entries: one line for each key, with shortened forms of both values."""
    lines = []
    for key in sorted(expected.keys() | actual.keys(), key=lambda one: (one.database, one.name)):
        wanted, found = expected.get(key), actual.get(key)
        if wanted != found:
            lines.append(f"{key.name[:40]!r} of database {key.database}: {_difference(wanted, found)}")
    return lines


def _difference(expected: Any, actual: Any) -> str:
    """The innermost part in which two values differ."""
    if type(expected) is type(actual) and expected is not None:
        if is_dataclass(expected):
            names = [one.name for one in fields(expected)]
            name = next(name for name in names if getattr(expected, name) != getattr(actual, name))
            return f"{name} " + _difference(getattr(expected, name), getattr(actual, name))
        if isinstance(expected, dict) and expected.keys() == actual.keys():
            name = next(name for name in expected if expected[name] != actual[name])
            return f"{name!r:.60} " + _difference(expected[name], actual[name])
        if isinstance(expected, dict | frozenset):
            missing, surplus = set(expected) - set(actual), set(actual) - set(expected)
            return f"without {missing!r:.150}, with {surplus!r:.150}"
        if isinstance(expected, tuple) and len(expected) == len(actual):
            at = next(at for at, pair in enumerate(zip(expected, actual, strict=True)) if pair[0] != pair[1])
            return f"item {at} " + _difference(expected[at], actual[at])
    return f"expected {expected!r:.150}, got {actual!r:.150}"
