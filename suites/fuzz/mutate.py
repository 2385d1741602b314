"""Makes streams from old ones: changes, joins and damages their commands. Pure, as suites.fuzz.generate is."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import msgspec

from harness.protocol.command_stream import Command, command
from suites.fuzz.grammar import expand, lines_of_one
from suites.fuzz.values import INTEGERS, KEY_LETTERS, Draw

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from harness.protocol.command_stream import Stream

LONGEST = 80
"""Maximum number of commands in a stream."""
# An argument of these commands determines the length of a value.
_GROWING = frozenset({"SETRANGE", "SETBIT", "BITFIELD"})
_LARGEST_OFFSET = 1 << 20
_SOONEST = 10_000_000
"""The smallest number of seconds or milliseconds after which a key may expire."""


def is_sane(command: Command) -> bool:
    """Whether a mutated command may be sent: it must not allocate hundreds of megabytes, or depend on the clock or
    on a random order.
    """
    name = command.name
    if name in _GROWING:
        words = command.words
        # In BITFIELD an offset follows a type, and may be a multiple of its width (#).
        offsets = [after for word, after in itertools.pairwise(words) if re.fullmatch(rb"[iu]\d+", word)]
        numbers = [word.removeprefix(b"#") for word in [*offsets, *(words[2:3] if name != "BITFIELD" else [])]]
        return all(not number.isdigit() or int(number[:19]) < _LARGEST_OFFSET for number in numbers)
    if name == "XADD" and b"*" in command.words:
        return False
    return not (_waits_long(command) or _expires_soon(command) or _lists_everything(command))


def _lists_everything(command: Command) -> bool:
    """Whether the reply lists every command in the order of a hash table."""
    return command.name == "COMMAND" and tuple(word.upper() for word in command.words) in _UNORDERED


def _after(words: Sequence[bytes], *options: bytes) -> list[bytes]:
    """The words that follow one of these options."""
    return [after for word, after in itertools.pairwise(words) if word.upper() in options]


_LAST_BLOCKS = frozenset({"BLMOVE", "BLPOP", "BRPOP", "BRPOPLPUSH", "BZPOPMAX", "BZPOPMIN", "WAIT", "WAITAOF"})
_MILLISECONDS = frozenset({"WAIT", "WAITAOF", "XREAD", "XREADGROUP"})


def _waits_long(command: Command) -> bool:
    """Whether a command may block its client for more than an instant. The second client may block until the first one
    acts.
    """
    words = command.words
    timeouts = _after(words, b"BLOCK") if command.name in {"XREAD", "XREADGROUP"} else []
    if command.name in {"BLMPOP", "BZMPOP"}:
        timeouts = [*words[1:2]]
    elif command.name in _LAST_BLOCKS:
        timeouts = [*words[-1:]]
    # An invalid timeout is refused at once.
    short = {b"1" if command.name in _MILLISECONDS else b"0.002", *_WRONG[:2]}
    if command.client and not command.name.startswith("WAIT"):
        short.add(b"0")
    return any(word not in short for word in timeouts)


_RELATIVE = frozenset({"EXPIRE", "HEXPIRE", "HPEXPIRE", "PEXPIRE", "PSETEX", "RESTORE", "RESTORE-ASKING", "SETEX"})
_RELATIVE_OPTIONS = frozenset({"GETEX", "HGETEX", "HSETEX", "SET"})
_BRIEF = tuple(KEY_LETTERS[kind].encode() for kind in ("brief", "fading"))


def _expires_soon(command: Command) -> bool:
    """Whether a key would expire within hours, perhaps only on the slower server, or at a time relative to now although
    the times of that key are compared exactly.
    """
    words = command.words
    numbers = _after(words, b"EX", b"PX") if command.name in _RELATIVE_OPTIONS else []
    if command.name in _RELATIVE:
        numbers = [*words[2:3]]
    moments = [int(number[:19]) for number in numbers if number.isdigit()]
    exact = len(words) > 1 and not words[1].startswith(_BRIEF)
    return any(moment and (exact or moment < _SOONEST) for moment in moments)


def mutate(stream: Stream, other: Stream, random: random.Random) -> Stream:
    """A copy of this stream with some commands changed, duplicated, moved, omitted or taken from another stream."""
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


# Words that are wrong in most places: one that is not a number, and numbers that are too small or too large.
_WRONG = (b"none", b"-1", b"0", b"9223372036854775808")
_MANNERS = frozenset({"ACL", "CONFIG", "DEBUG", "FUNCTION", "MODULE", "SCRIPT"})
"""Commands that get one word more or less, but no changed word, because their settings would outlast the stream."""
WRONG_KINDS = (command("SET", "refused:string", "text"), command("RPUSH", "refused:list", "a"))
"""Keys whose kinds fit few commands: a string that is not a number, and a list."""


def refused(line: str, draw: Draw) -> Stream:
    """A correct command of the grammar, and variants of it. In each variant one word is wrong, missing or duplicated,
    or there are more words.
    """
    right = expand(line, draw)
    words = right.words
    variants = [words[:-1], (*words, b"none"), (*words, words[-1]), (*words, *words[1:])]
    if right.name in _UNSENT:
        variants = []
    elif right.name not in _MANNERS:
        places = range(1, min(len(words), _MOST_PLACES))
        # The hash function's seed determines where a wrong cursor begins. Lua's doubles cannot hold such numbers.
        limited = right.name.endswith("SCAN") or right.name.startswith(("EVAL", "FCALL"))
        others = [*(_WRONG[:1] if limited else _WRONG), *(key.words[1] for key in WRONG_KINDS)]
        variants += [(*words[:place], word, *words[place + 1 :]) for place in places for word in others]
        variants += [(*words[:place], *words[place + 1 :]) for place in places]
        variants += [(*words[: place + 1], *words[place:]) for place in places]
    made = [Command(words=one) for one in dict.fromkeys(variants) if one]
    return (*WRONG_KINDS, right, *(one for one in made if is_sane(one)))


_MOST_PLACES = 9
_UNSENT = frozenset({"AUTH", "HELLO"})
"""Since Redis 7.2 the refusal of these is lost after another reply (docs/found/failed-auth-without-reply.md)."""
_UNORDERED = ((b"COMMAND",), (b"COMMAND", b"DOCS"), (b"COMMAND", b"INFO"), (b"COMMAND", b"LIST"))
"""Requests that list every command in the order of a hash table."""


def splice(first: Stream, second: Stream, random: random.Random) -> Stream:
    """The beginning of one stream and the end of another."""
    joined = first[: random.randrange(1, len(first) + 1)] + second[random.randrange(len(second)) :]
    return joined[:LONGEST]


_UNCHANGED = frozenset({"ACL", "CLIENT", "CONFIG", "EVAL", "EVAL_RO", "FUNCTION", "SCRIPT"})


def _with_other_word(command: Command, others: Sequence[Command], random: random.Random) -> Command:
    """The command with one argument replaced by a boundary value, another length, or another word. Settings stay
    unchanged.
    """
    if len(command.words) < 2 or command.name in _UNCHANGED:
        return command
    place = random.randrange(1, len(command.words))
    word = command.words[place]
    donor = random.choice(random.choice(others).words)
    new = random.choice((b"%d" % random.choice(INTEGERS), word[:-1], word + b"a", word * 2, donor))
    words = (*command.words[:place], new, *command.words[place + 1 :])
    changed = msgspec.structs.replace(command, words=words)
    return changed if is_sane(changed) and len(new) < 1 << 18 else command
