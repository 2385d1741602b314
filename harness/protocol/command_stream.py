r"""Command streams: the commands that a client sends, as a value, as bytes on the wire, and as readable text.

The text has one command a line in the quoting of redis-cli (`SET "a b" "\x00"`), so that `redis-cli < FILE` runs it
too. An indented line is sent inline, as it stands; every other line is sent as an array of bulk strings. After an empty
line the client first waits for all replies; without one, all commands are one write.

Several clients may take turns: a line after `@2` is the second one's. Each command then waits for the reply to the one
before it. `<client-2>` stands for the number by which the server knows the second client (CLIENT ID).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import hiredis

from harness.core.errors import UsageError
from harness.core.model import Record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@lru_cache(maxsize=4096)
def _in_capitals(word: bytes) -> str:
    return word.decode("latin-1").upper()


class Command(Record, frozen=True):
    """One command of a stream."""

    words: tuple[bytes, ...]
    inline: bool = False
    """Sent as a line of text, which shifts everything after it in the server's query buffer by few bytes."""
    waits: bool = False
    """Sent only after all earlier commands have been answered."""
    client: int = 0
    """The connection that sends it, counted from 0."""

    @property
    def name(self) -> str:
        """The command's name in capitals: `SET`."""
        return _in_capitals(self.words[0])

    def __str__(self) -> str:
        return line_of(self)


Stream = tuple[Command, ...]


def clients_of(stream: Iterable[Command]) -> int:
    """The number of connections that send a stream."""
    return 1 + max([one.client for one in stream], default=0)


def command(*words: bytes | str | float) -> Command:
    """A command from words and numbers."""
    return Command(words=tuple(word if isinstance(word, bytes) else str(word).encode() for word in words))


def pieces(stream: Iterable[Command]) -> list[Stream]:
    """The stream in pieces, each of which is one write: a piece ends where the client waits for replies."""
    cut: list[list[Command]] = []
    for one in stream:
        if not cut or one.waits:
            cut.append([])
        cut[-1].append(one)
    return [tuple(piece) for piece in cut]


def wire(stream: Iterable[Command]) -> bytes:
    """The bytes that a client sends: the input of `nc HOST PORT`."""
    pack = hiredis.pack_command
    return b"".join(
        [
            line_of(one).strip().encode("ascii") + b"\r\n" if one.inline else pack(one.words)  # type: ignore[arg-type]
            for one in stream
        ]
    )


_PLAIN = re.compile(rb"[!#-&(-~]+")
_ESCAPES = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", ord('"'): '\\"', ord("\\"): "\\\\"}
_SHOWN = [_ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in range(256)]
_MEANINGS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


def line_of(one: Command) -> str:
    """A command as a line of the text form, without its line end."""
    words = [word.decode("ascii") if _PLAIN.fullmatch(word) else _quoted(word) for word in one.words]
    if words[0].startswith("@") or (one.inline and words[0].startswith("*")):
        # On the wire a star at the beginning of a line announces an array, in the text form an at sign a client.
        words[0] = _quoted(one.words[0])
    return (" " if one.inline else "") + " ".join(words)


def _quoted(word: bytes) -> str:
    return '"' + "".join(map(_SHOWN.__getitem__, word)) + '"'


_WORD = re.compile(
    rb"""\s*(?: "(?P<double>(?:[^"\\]|\\.)*)"(?=\s|$)
              | '(?P<single>(?:[^'\\]|\\.)*)'(?=\s|$)
              | (?P<plain>[^\s"']+)(?=\s|$) )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)


def split_words(line: bytes) -> tuple[bytes, ...]:
    """The words of an inline command. Raises ValueError if quotes do not balance."""
    words = []
    place, line = 0, line.strip()
    while place < len(line):
        found = _WORD.match(line, place)
        if found is None:
            raise ValueError(f"quotes do not balance from byte {place} on")
        if found["double"] is not None:
            words.append(_ESCAPED.sub(_meaning, found["double"]))
        elif found["single"] is not None:
            words.append(found["single"].replace(b"\\'", b"'"))
        else:
            words.append(found["plain"])
        place = found.end()
    return tuple(words)


def _meaning(found: re.Match[bytes]) -> bytes:
    escape = found[1]
    return bytes([int(escape[1:], 16)]) if len(escape) == 3 else _MEANINGS.get(escape, escape)


def text_of(stream: Iterable[Command]) -> str:
    """The text form of a stream."""
    return "".join(
        ("\n" if one.waits else "") + (f"@{one.client + 1} " if one.client else "") + line_of(one) + "\n"
        for one in stream
    )


_CLIENT = re.compile(rb"@([1-9]) ")


def until_command(stream: Stream, line: str) -> Stream:
    """A test's commands up to the last one with this line, before which the test failed; empty if there is none.

    A test that failed sends more commands, to restore settings.
    """
    places = [number for number, one in enumerate(stream, 1) if line_of(one) == line]
    return stream[: places[-1]] if places else ()


def from_text(text: str) -> Stream:
    """Read the text form. Raises ValueError naming the line."""
    commands: list[Command] = []
    waits = False
    for number, line in enumerate(text.encode().split(b"\n"), 1):
        client = 0
        if found := _CLIENT.match(line):
            client, line = int(found[1]) - 1, line[found.end() :]  # noqa: PLW2901 - the rest of it
        try:
            words = split_words(line)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
        if words:
            commands.append(Command(words=words, inline=line[:1] in {b" ", b"\t"}, waits=waits, client=client))
        waits = not words
    return tuple(commands)


def read_stream(path: Path) -> Stream:
    """Read a .stream file. Raises UsageError."""
    try:
        stream = from_text(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise UsageError("not a command stream", where=str(path), because=str(error)) from error
    if not stream:
        raise UsageError("an empty command stream", where=str(path))
    return stream


_COUNT = re.compile(rb"\*(\d{1,7})\r\n")
_BULK = re.compile(rb"\$(\d{1,9})\r\n")


def from_wire(content: bytes) -> Stream:
    """The complete commands at the start of a client's bytes, arrays and inline, up to the first that is neither."""
    commands: list[Command] = []
    place = 0
    while place < len(content):
        found = _from_array(content, place) if content[place] == ord("*") else _from_line(content, place)
        if found is None:
            break
        words, inline, place = found
        if words:
            commands.append(Command(words=words, inline=inline))
    return tuple(commands)


def _from_array(content: bytes, place: int) -> tuple[tuple[bytes, ...], bool, int] | None:
    header = _COUNT.match(content, place)
    if header is None:
        return None
    words = []
    place = header.end()
    for _ in range(int(header[1])):
        bulk = _BULK.match(content, place)
        if bulk is None:
            return None
        place = bulk.end() + int(bulk[1]) + 2
        if content[place - 2 : place] != b"\r\n":
            return None
        words.append(content[bulk.end() : place - 2])
    return tuple(words), False, place


def _from_line(content: bytes, place: int) -> tuple[tuple[bytes, ...], bool, int] | None:
    end = content.find(b"\n", place)
    if end < 0:
        return None
    try:
        return split_words(content[place:end]), True, end + 1
    except ValueError:
        return None
