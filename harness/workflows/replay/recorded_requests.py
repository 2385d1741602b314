"""The requests and replies of a reproducer's clients. The requests are available as a stream of commands."""

from __future__ import annotations

import base64
import itertools
import re
from typing import TYPE_CHECKING

import msgspec

from harness.protocol.command_stream import from_wire, wire
from harness.protocol.conversation import ASK_NUMBER, name_of
from harness.record import transcript
from harness.workflows.replay.recurrence import WRONG_RESULT

if TYPE_CHECKING:
    from harness.judge.reproducer import Reproducer
    from harness.protocol.command_stream import Command, Stream
    from harness.protocol.resp import Reply


def comparable_stream(reproducer: Reproducer) -> Stream:
    """The commands of a wrong result, each with its client, in the order in which they were sent.

    Empty for another kind of finding, and if a client sent bytes that are not whole commands.
    """
    if reproducer.kind != WRONG_RESULT or reproducer.again is not None:
        return ()
    return sent_stream(reproducer.chunks)


def sent_stream(chunks: list[transcript.Chunk]) -> Stream:
    """The recorded requests as commands; empty if a client sent bytes that are not whole commands.

    If there are several clients, each first requests its number (CLIENT ID). Another server assigns other numbers, so
    the stream contains the clients' names instead.
    """
    sent = [chunk for chunk in chunks if chunk.direction == "request"]
    clients = {connection: client for client, connection in enumerate(dict.fromkeys(one.connection for one in sent))}
    begun = dict.fromkeys(clients, b"")
    names: dict[bytes, bytes] = {}
    commands: list[Command] = []
    for chunk in sent:
        content = begun[chunk.connection] + chunk.content
        whole = from_wire(content)
        if not content.startswith(done := wire(whole)):
            return ()
        begun[chunk.connection] = content.removeprefix(done)
        client = clients[chunk.connection]
        for one in whole:
            asks = len(clients) > 1 and one.words == ASK_NUMBER.words
            if asks and (number := _first_number(chunks, chunk.connection)) not in {b"", *names}:
                names[number] = name_of(client)
                continue
            words = one.words if one.name != "CLIENT" else tuple(names.get(word, word) for word in one.words)
            commands.append(msgspec.structs.replace(one, words=words, client=client))
    return () if any(begun.values()) else tuple(commands)


def chunks_of(stream: Stream) -> list[transcript.Chunk]:
    """A stream as recorded requests without replies: what one client sends at a time is one chunk."""
    return [
        transcript.Chunk(connection=client + 1, direction="request", data=base64.b64encode(wire(turn)).decode())
        for client, turn in itertools.groupby(stream, key=lambda one: one.client)
    ]


def _first_number(chunks: list[transcript.Chunk], connection: int) -> bytes:
    """The number in the first reply on a connection; empty if that reply is not a number."""
    replies = (one.content for one in chunks if (one.connection, one.direction) == (connection, "reply"))
    number = re.match(rb":(\d+)\r\n", next(replies, b""))
    return number[1] if number else b""


def recorded_replies(reproducer: Reproducer) -> list[Reply]:
    """The replies that the failed test received, if it had exactly one connection."""
    replies = [chunk for chunk in reproducer.chunks if chunk.direction == "reply"]
    if len({chunk.connection for chunk in reproducer.chunks}) != 1:
        return []
    return transcript.parsed(b"".join(chunk.content for chunk in replies))  # type: ignore[return-value]
