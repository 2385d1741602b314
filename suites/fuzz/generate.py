"""Makes streams from the grammar and from old streams. Pure: the same random state gives the same stream."""

from __future__ import annotations

import fnmatch
import itertools
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.core.model import Record
from harness.core.strict_toml import read_toml
from harness.protocol.command_stream import Command, command, split_words
from suites.fuzz.values import INTEGERS, KEY_LETTERS, KINDS, Draw

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from harness.protocol.command_stream import Stream

GRAMMAR = Path(__file__).with_name("grammar.toml")
LONGEST = 80
"""Maximum number of commands in a stream."""
SHARE_OF_TWO = 0.25
"""Weight of a theme with two clients in the choice of a stream's themes; the others have 1."""
_JUNK = ("PING", "PING a", "ECHO abc", "PING ab", "ECHO abcd", "GET x", "PING abcde")
_LIMITS = (-2, 0, 1, 2, 3, 4, 8, 16, 64, 128, 512)


class Theme(Record, frozen=True):
    """Commands that work on keys of the same kind."""

    commands: list[str]
    thresholds: list[str]
    begins: list[str] = msgspec.field(default_factory=list)
    """What a second client sends first."""
    second: list[str] = msgspec.field(default_factory=list)
    """Commands that a second client sends; empty: there is none."""


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


_KIND = re.compile(r"<(\w+)>")
_ALTERNATIVES = re.compile(r"[^|\s]+(\|[^|\s]+)+")
_REPEATED = re.compile(r"(<\w+>(?:,<\w+>)*)\+")


@cache
def _template(line: str) -> tuple[str, ...]:
    return tuple(word.decode() for word in split_words(line.encode()))


def expand(line: str, draw: Draw) -> Command:
    """One line of the grammar with its choices drawn. Raises KeyError for an unknown kind."""
    words: list[bytes] = []
    for part in _template(line):
        if repeated := _REPEATED.fullmatch(part):
            words += [draw.word(kind) for _ in range(_how_many(draw.random)) for kind in _KIND.findall(repeated[1])]
        elif kind := _KIND.search(part):
            words.append(part[: kind.start()].encode() + draw.word(kind[1]) + part[kind.end() :].encode())
        elif _ALTERNATIVES.fullmatch(part):
            words.append(draw.random.choice(part.split("|")).encode())
        else:
            words.append(part.encode())
    return Command(words=tuple(words))


def _how_many(random: random.Random) -> int:
    """Usually a small number; sometimes one beyond the default limits of compact encodings (128)."""
    chance = random.random()
    return random.randrange(1, 5) if chance < 0.85 else random.randrange(5, 40) if chance < 0.98 else 140


@cache
def themes_of_data() -> tuple[str, ...]:
    """The themes whose commands may stand in an append-only file: they have one client, and work on keys alone.

    A script that fails there ends every server since Redis 7 (docs/found/aof-failing-script.md), and DISCARD in a
    transaction does so as well (docs/found/aof-discard.md). `generate` makes transactions without it.
    """
    others = {"functions", "scripts", "server", "transactions"}
    return tuple(name for name, theme in grammar().themes.items() if not theme.second and name not in others)


def generate(random: random.Random, themes: Sequence[str] = ()) -> Stream:
    """A new stream from a few of these themes (or of all): few keys, several commands a write, some inline lines."""
    draw = Draw(random)
    every = {name: grammar().themes[name] for name in themes or grammar().themes}
    # Each command of two clients waits for the one before it.
    weights = [SHARE_OF_TWO if theme.second else 1.0 for theme in every.values()]
    chosen = random.choices(list(every.values()), weights, k=random.choice((1, 1, 1, 2, 3)))
    commands = [one for theme in chosen for one in _lowered(theme, random)]
    listening = [theme for theme in chosen if theme.second]
    commands += [_by_second(line, draw) for theme in listening for line in theme.begins]
    if random.random() < 0.15:
        commands.insert(0, Command(words=(b"HELLO", b"3")))
    pace = random.choice((0.0, 0.0, 0.1, 0.5))
    transaction = 0
    for _ in range(random.choice((4, 12, 25) if listening else (4, 12, 25, 50))):
        if random.random() < 0.06:
            commands.append(Command(words=tuple(random.choice(_JUNK).encode().split()), inline=True))
        if random.random() < 0.02:
            commands.append(Command(words=(b"EXEC" if transaction else b"MULTI",)))
            transaction = 1 - transaction
        one = one_of(random.choice(chosen), draw)
        commands.append(msgspec.structs.replace(one, waits=random.random() < pace))
    if transaction:
        commands.append(Command(words=(b"EXEC",)))
    return tuple(commands)


def one_of(theme: Theme, draw: Draw) -> Command:
    """A command of a theme, of either client."""
    if theme.second and draw.random.random() < 0.5:
        return _by_second(draw.random.choice(theme.second), draw)
    return expand(draw.random.choice(theme.commands), draw)


def _by_second(line: str, draw: Draw) -> Command:
    return msgspec.structs.replace(expand(line, draw), client=1)


def _lowered(theme: Theme, random: random.Random) -> list[Command]:
    """Commands that set each of the theme's thresholds, half of the time."""
    chosen = [name for name in theme.thresholds if random.random() < 0.5]
    return [Command(words=(b"CONFIG", b"SET", name.encode(), b"%d" % random.choice(_LIMITS))) for name in chosen]


# These commands make a value as long as an argument says.
_GROWING = frozenset({"SETRANGE", "SETBIT", "BITFIELD"})
_LARGEST_OFFSET = 1 << 20
_SOONEST = 10_000_000
"""The smallest number of seconds, or milliseconds, after which a key may expire."""


def is_sane(command: Command) -> bool:
    """Whether a mutated command may be sent: it must not allocate hundreds of megabytes or depend on the clock."""
    name = command.name
    if name in _GROWING:
        words = command.words
        # BITFIELD's offsets follow types, and may be counted in fields.
        offsets = [after for word, after in itertools.pairwise(words) if re.fullmatch(rb"[iu]\d+", word)]
        numbers = [word.removeprefix(b"#") for word in [*offsets, *(words[2:3] if name != "BITFIELD" else [])]]
        return all(not number.isdigit() or int(number[:19]) < _LARGEST_OFFSET for number in numbers)
    return not (name == "XADD" and b"*" in command.words) and not _waits_long(command) and not _expires_soon(command)


def _after(words: Sequence[bytes], *options: bytes) -> list[bytes]:
    """The words that follow one of these options."""
    return [after for word, after in itertools.pairwise(words) if word.upper() in options]


_LAST_BLOCKS = frozenset({"BLMOVE", "BLPOP", "BRPOP", "BRPOPLPUSH", "BZPOPMAX", "BZPOPMIN", "WAIT", "WAITAOF"})
_MILLISECONDS = frozenset({"WAIT", "WAITAOF", "XREAD", "XREADGROUP"})


def _waits_long(command: Command) -> bool:
    """Whether a command may block its client for longer than a blink. The second client waits for the first one."""
    words = command.words
    timeouts = _after(words, b"BLOCK") if command.name in {"XREAD", "XREADGROUP"} else []
    if command.name in {"BLMPOP", "BZMPOP"}:
        timeouts = [*words[1:2]]
    elif command.name in _LAST_BLOCKS:
        timeouts = [*words[-1:]]
    # A time that is none is refused at once.
    short = {b"1" if command.name in _MILLISECONDS else b"0.002", *_WRONG[:2]}
    if command.client and not command.name.startswith("WAIT"):
        short.add(b"0")
    return any(word not in short for word in timeouts)


_RELATIVE = frozenset({"EXPIRE", "HEXPIRE", "HPEXPIRE", "PEXPIRE", "PSETEX", "RESTORE", "RESTORE-ASKING", "SETEX"})
_RELATIVE_OPTIONS = frozenset({"GETEX", "HGETEX", "HSETEX", "SET"})
_BRIEF = tuple(KEY_LETTERS[kind].encode() for kind in ("brief", "fading"))


def _expires_soon(command: Command) -> bool:
    """Whether a key would expire within hours, perhaps on the slower server alone.

    Or at a moment relative to now, where the key's moments are compared exactly.
    """
    words = command.words
    numbers = _after(words, b"EX", b"PX") if command.name in _RELATIVE_OPTIONS else []
    if command.name in _RELATIVE:
        numbers = [*words[2:3]]
    moments = [int(number[:19]) for number in numbers if number.isdigit()]
    exact = len(words) > 1 and not words[1].startswith(_BRIEF)
    return any(moment and (exact or moment < _SOONEST) for moment in moments)


def mutate(stream: Stream, other: Stream, random: random.Random) -> Stream:
    """A copy of this stream with some commands changed, doubled, moved, omitted or taken from another stream."""
    commands = list(stream)
    for _ in range(random.choice((1, 1, 2, 4))):
        place = random.randrange(len(commands))
        change = random.randrange(6)
        if change == 0:
            commands[place] = _with_other_word(commands[place], [*stream, *other], random)
        elif change == 1:
            commands[place] = msgspec.structs.replace(commands[place], waits=not commands[place].waits)
        elif change == 2 and len(commands) > 1:
            del commands[place]
        elif change == 3:
            commands.insert(random.randrange(len(commands) + 1), commands[place])
        elif change == 4:
            commands.insert(place, expand(random.choice(lines_of_one()), Draw(random)))
        else:
            start = random.randrange(len(other))
            commands[place:place] = other[start : start + random.randrange(1, 8)]
    return tuple(commands[:LONGEST])


# Words of which a command takes few in any one place: no number, and numbers below and beyond what a place can hold.
_WRONG = (b"none", b"-1", b"0", b"9223372036854775808")
_MANNERS = frozenset({"ACL", "CONFIG", "DEBUG", "FUNCTION", "MODULE", "SCRIPT"})
"""Commands that get a word more or less, and no other one: what they would set, remains."""
WRONG_KINDS = (command("SET", "refused:string", "text"), command("RPUSH", "refused:list", "a"))
"""Keys whose kinds fit few commands: a string that is no number, and a list."""


def refused(line: str, draw: Draw) -> Stream:
    """A command of the grammar as it should be, and then a word wrong, missing, twice or too many in each place."""
    right = expand(line, draw)
    words = right.words
    variants = [words[:-1], (*words, b"none"), (*words, words[-1]), (*words, *words[1:])]
    if right.name in _UNSENT:
        variants = []
    elif right.name not in _MANNERS:
        places = range(1, min(len(words), _MOST_PLACES))
        # A cursor of another number begins at a place that a hash's seed decides. Lua's doubles have no such number.
        limited = right.name.endswith("SCAN") or right.name.startswith(("EVAL", "FCALL"))
        others = [*(_WRONG[:1] if limited else _WRONG), *(key.words[1] for key in WRONG_KINDS)]
        variants += [(*words[:place], word, *words[place + 1 :]) for place in places for word in others]
        variants += [(*words[:place], *words[place + 1 :]) for place in places]
        variants += [(*words[: place + 1], *words[place:]) for place in places]
    made = [Command(words=one) for one in dict.fromkeys(variants) if one]
    return (*WRONG_KINDS, right, *(one for one in made if is_sane(one) and one.words not in _UNORDERED))


_MOST_PLACES = 9
_UNSENT = frozenset({"AUTH", "HELLO"})
"""Since Redis 7.2 a refusal of these is lost behind another reply (docs/found/auth-refusal-lost.md)."""
_UNORDERED = ((b"COMMAND",), (b"COMMAND", b"DOCS"), (b"COMMAND", b"INFO"), (b"COMMAND", b"LIST"))
"""They list every command, in the order of a hash table."""


def splice(first: Stream, second: Stream, random: random.Random) -> Stream:
    """The beginning of one stream and the end of another."""
    joined = first[: random.randrange(1, len(first) + 1)] + second[random.randrange(len(second)) :]
    return joined[:LONGEST]


def lines_of_one() -> list[str]:
    """The lines of the themes that have one client."""
    return [line for theme in grammar().themes.values() if not theme.second for line in theme.commands]


_UNCHANGED = frozenset({"ACL", "CLIENT", "CONFIG", "EVAL", "EVAL_RO", "FUNCTION", "SCRIPT"})


def _with_other_word(command: Command, others: Sequence[Command], random: random.Random) -> Command:
    """The command with one argument replaced: a boundary, a length, or another argument. Settings are kept."""
    if len(command.words) < 2 or command.name in _UNCHANGED:
        return command
    place = random.randrange(1, len(command.words))
    word = command.words[place]
    donor = random.choice(random.choice(others).words)
    new = random.choice((b"%d" % random.choice(INTEGERS), word[:-1], word + b"a", word * 2, donor))
    words = (*command.words[:place], new, *command.words[place + 1 :])
    changed = msgspec.structs.replace(command, words=words)
    return changed if is_sane(changed) and len(new) < 1 << 18 else command


def unknown_kinds() -> set[str]:
    """Kinds that the grammar names but that `Draw` does not know."""
    return {kind for line in all_lines() for kind in _KIND.findall(line)} - set(KINDS) - set(KEY_LETTERS)


def all_lines() -> list[str]:
    """Every line of the grammar, of both clients."""
    return [line for theme in grammar().themes.values() for line in (*theme.commands, *theme.begins, *theme.second)]


def sent(known: AbstractSet[str]) -> set[str]:
    """Those of a release's commands, or commands and subcommands, that the grammar sends."""
    names = set()
    for line in all_lines():
        alternatives = [part.split("|") if _ALTERNATIVES.fullmatch(part) else [part] for part in _template(line)[:2]]
        names |= {" ".join(words) for words in itertools.product(*alternatives)} | set(alternatives[0])
    return names & known


def left_out(known: AbstractSet[str]) -> list[str]:
    """Those that the grammar neither sends nor lists as unsent."""
    globs = [glob for one in grammar().unsent for glob in one.commands]
    # A table without subcommands knows of `CLUSTER` what the list says of its subcommands.
    globs += [glob.partition(" ")[0] for glob in globs]
    rest = known - sent(known)
    return sorted(name for name in rest if not any(fnmatch.fnmatchcase(name, glob) for glob in globs))
