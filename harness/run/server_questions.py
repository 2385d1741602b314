"""Asks a running server what it can do: its commands, parameters, INFO fields, and the forms of requests."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.model import Abilities, Record
from harness.core.strict_toml import read_toml
from harness.protocol.resp import ReplyError, info_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harness.protocol.resp import Client, Reply

QUESTIONS = Path(__file__).with_name("server_questions.toml")
CONTAINERS = (
    *("acl", "client", "cluster", "command", "config", "debug", "function", "latency", "memory", "module", "object"),
    *("pubsub", "script", "slowlog", "xgroup", "xinfo"),
)
"""Commands whose subcommands HELP lists, since 5.0 or earlier. COMMAND lists those of all but DEBUG since 7.0."""
_SUBCOMMAND = re.compile(r"([A-Z][A-Z0-9_-]*)\b")
"""The beginning of a line of HELP that names a subcommand. Lines that explain one begin with a blank."""
_NOT_UNDERSTOOD = re.compile(
    r"unknown (sub)?command|syntax error|wrong number of arguments|is not an? (integer|float)"
    r"|(nonexistent|unexisting) global",
    re.IGNORECASE,
)


class RequestForm(Record, frozen=True):
    """A form of a request that only some releases understand."""

    name: str
    request: tuple[str, ...]


class Questions(Record, frozen=True):
    """harness/run/server_questions.toml."""

    api: tuple[str, ...]
    """Names that a header for modules may declare."""
    forms: tuple[RequestForm, ...]


@cache
def questions() -> Questions:
    """What is asked."""
    return read_toml(QUESTIONS, Questions)


def ask(client: Client, *, words: Iterable[str], api: tuple[str, ...]) -> Abilities:
    """The abilities of the server behind a new connection, which changes nothing there.

    `words`: the possible names of parameters, because CONFIG GET with a pattern leaves hidden ones out. `api`: what its
    header for modules declares. Raises OSError if the server does not reply.
    """
    commands = sorted(_commands(client))
    return Abilities(
        commands=tuple(sorted({*commands, *_subcommands(client, commands)})),
        options=tuple(sorted(_options(client, words))),
        fields=tuple(sorted(info_fields(client.pipeline([("INFO", "all")])[0]))),
        forms=tuple(one.name for one in questions().forms if _understands(client, one)),
        api=api,
        asked=True,
    )


def _commands(client: Client) -> Iterator[str]:
    """The commands that COMMAND lists, since 2.8.13, and the subcommands that it lists with them since 7.0."""
    for row in _rows(client.pipeline([("COMMAND",)])[0]):
        yield _text(row[0])
        # The tenth field: the rows of the subcommands, named `config|get`.
        for inner in row[9] if len(row) > 9 else ():
            yield _text(inner[0])


def _subcommands(client: Client, commands: list[str]) -> Iterator[str]:
    containers = [name for name in CONTAINERS if name in commands]
    for container, reply in zip(containers, client.pipeline([(name, "HELP") for name in containers]), strict=True):
        # The first line is about the container itself.
        for line in _lines(reply)[1:]:
            if found := _SUBCOMMAND.match(line):
                yield f"{container}|{found[1].lower()}"


def _options(client: Client, words: Iterable[str]) -> Iterator[str]:
    asked = ["*", *words]
    for reply in client.pipeline([("CONFIG", "GET", word) for word in asked]):
        yield from [_text(name) for name in (reply if isinstance(reply, list) else [])[::2]]


def _understands(client: Client, form: RequestForm) -> bool:
    reply = client.pipeline([form.request])[0]
    return not (isinstance(reply, ReplyError) and _NOT_UNDERSTOOD.search(str(reply)))


def _rows(reply: Reply) -> list[list[Any]]:
    return [row for row in reply if isinstance(row, list)] if isinstance(reply, list) else []


def _lines(reply: Reply) -> list[str]:
    return [_text(line) for line in reply] if isinstance(reply, list) else []


def _text(word: Any) -> str:
    return word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word)
