"""The grammar in grammar.toml: themes, and lines with choices, each of which becomes a command. Pure. A line is parsed
only once: each expansion only draws the choices.
"""

from __future__ import annotations

import fnmatch
import itertools
import re
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from harness.core.model import Record
from harness.core.strict_toml import read_toml
from harness.protocol.command_stream import Command, split_words
from suites.fuzz.values import KEY_LETTERS, KINDS, Draw

if TYPE_CHECKING:
    import random
    from collections.abc import Set as AbstractSet

    from harness.core.model import Abilities

GRAMMAR = Path(__file__).with_name("grammar.toml")


class Theme(Record, frozen=True):
    """Commands that work on keys of the same kind."""

    commands: list[str]
    thresholds: list[str]
    fills: list[str] = msgspec.field(default_factory=list)
    """Commands with which a stream begins, so that its keys have values."""
    begins: list[str] = msgspec.field(default_factory=list)
    """Commands that a second client sends first."""
    second: list[str] = msgspec.field(default_factory=list)
    """Commands that a second client sends; empty if there is no second client."""


class Unsent(Record, frozen=True):
    """Commands that no line of the grammar sends."""

    commands: list[str]
    """Globs of commands, or commands and subcommands."""
    reason: str


class Grammar(Record, frozen=True):
    """grammar.toml."""

    themes: dict[str, Theme]
    unsent: list[Unsent]


@cache
def grammar() -> Grammar:
    """The grammar. Raises UsageError for an unknown key."""
    return read_toml(GRAMMAR, Grammar)


LEAST_KNOWN = 0.5
"""Share of a theme's lines that a release must know. Other themes have the rest of such a theme's commands, too."""


@lru_cache(maxsize=16)
def of_release(abilities: Abilities) -> Grammar:
    """The grammar without the lines whose command a release lacks, and without the themes that consist of them.

    Both servers refuse such a command alike, which `test_refusals` tests.
    """
    themes = {}
    for name, theme in grammar().themes.items():
        commands, fills = (
            [line for line in lines if _is_known(line, abilities)] for lines in (theme.commands, theme.fills)
        )
        if len(commands) >= LEAST_KNOWN * len(theme.commands):
            second = [line for line in theme.second if _is_known(line, abilities)]
            themes[name] = msgspec.structs.replace(theme, commands=commands, fills=fills, second=second)
    return msgspec.structs.replace(grammar(), themes=themes)


def _is_known(line: str, abilities: Abilities) -> bool:
    """Whether a release has one of the commands of a line."""
    names, sub = (part.lower().split("|") for part in (*_template(line), "")[:2])
    return any(
        not abilities.lacks([f"command {name}|{one}" if one else f"command {name}"]) for name in names for one in sub
    )


_KIND = re.compile(r"<(\w+)>")
_ALTERNATIVES = re.compile(r"[^|\s]+(\|[^|\s]+)+")
_REPEATED = re.compile(r"(<\w+>(?:,<\w+>)*)(\+\+?)")


@cache
def _template(line: str) -> tuple[str, ...]:
    return tuple(word.decode() for word in split_words(line.encode()))


class _Part(NamedTuple):
    """One or several words of a line: each kind in `kinds` is drawn, or one of `words` is chosen."""

    words: tuple[bytes, ...] = ()
    kinds: tuple[str, ...] = ()
    before: bytes = b""
    """Text before a drawn word; `after` follows it."""
    after: bytes = b""
    repeated: Literal["", "+", "++"] = ""
    """Whether the kinds are drawn once or more often, or several times."""


@cache
def _parts(line: str) -> tuple[_Part, ...]:
    parts = []
    for part in _template(line):
        if repeated := _REPEATED.fullmatch(part):
            times: Literal["+", "++"] = "++" if repeated[2] == "++" else "+"
            parts.append(_Part(kinds=tuple(_KIND.findall(repeated[1])), repeated=times))
        elif kind := _KIND.search(part):
            before, after = part[: kind.start()].encode(), part[kind.end() :].encode()
            parts.append(_Part(kinds=(kind[1],), before=before, after=after))
        elif _ALTERNATIVES.fullmatch(part):
            parts.append(_Part(words=tuple(word.encode() for word in part.split("|"))))
        else:
            parts.append(_Part(words=(part.encode(),)))
    return tuple(parts)


def expand(line: str, draw: Draw, *, client: int = 0) -> Command:
    """A command of that client: one line of the grammar with its choices drawn. Raises KeyError for an unknown kind."""
    words: list[bytes] = []
    for number, (choices, kinds, before, after, repeated) in enumerate(_parts(line)):
        draw.place = line, number
        if repeated:
            times = _how_many(draw.random) if repeated == "+" else _several(draw.random)
            words += [draw.word(kind) for _ in range(times) for kind in kinds]
        elif kinds:
            words.append(before + draw.word(kinds[0]) + after)
        else:
            words.append(choices[0] if len(choices) == 1 else draw.choice(choices))
    return Command(words=tuple(words), client=client)


def _how_many(random: random.Random) -> int:
    """Usually a small number; sometimes one beyond the default limits of compact encodings (128)."""
    chance = random.random()
    return random.randrange(1, 5) if chance < 0.85 else random.randrange(5, 40) if chance < 0.98 else 140


def _several(random: random.Random) -> int:
    """Enough to fill a value, within the default limits of compact encodings."""
    return random.randrange(3, 12)


@cache
def themes_of_data() -> tuple[str, ...]:
    """The themes whose commands may be in an append-only file: they have one client, and only use keys.

    A failing script in such a file ends every server since Redis 7 (docs/found/aof-failing-script.md), and so does
    DISCARD in a transaction (docs/found/aof-discard.md). `generate` makes transactions without DISCARD.
    """
    others = {"functions", "scripts", "server", "transactions"}
    return tuple(name for name, theme in grammar().themes.items() if not theme.second and name not in others)


def lines_of_one() -> list[str]:
    """The lines of the themes that have one client."""
    return [line for theme in grammar().themes.values() if not theme.second for line in theme.commands]


def unknown_kinds() -> set[str]:
    """Kinds that the grammar names but that `Draw` does not know."""
    return {kind for line in all_lines() for kind in _KIND.findall(line)} - set(KINDS) - set(KEY_LETTERS)


def all_lines() -> list[str]:
    """Every line of the grammar, of both clients."""
    themes = grammar().themes.values()
    return [line for theme in themes for line in (*theme.fills, *theme.commands, *theme.begins, *theme.second)]


def sent(known: AbstractSet[str]) -> set[str]:
    """The commands (or commands with subcommands) of a release that the grammar sends."""
    names = set()
    for line in all_lines():
        alternatives = [part.split("|") if _ALTERNATIVES.fullmatch(part) else [part] for part in _template(line)[:2]]
        names |= {" ".join(words) for words in itertools.product(*alternatives)} | set(alternatives[0])
    return names & known


def left_out(known: AbstractSet[str]) -> list[str]:
    """The commands that the grammar neither sends nor lists as unsent."""
    globs = [glob for one in grammar().unsent for glob in one.commands]
    # In a table without subcommands, entries for subcommands of `CLUSTER` stand for `CLUSTER` itself.
    globs += [glob.partition(" ")[0] for glob in globs]
    rest = known - sent(known)
    return sorted(name for name in rest if not any(fnmatch.fnmatchcase(name, glob) for glob in globs))
