"""Sends a stream to a server and receives the replies. Each piece of the stream is a pipeline: one write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.protocol.command_stream import pieces, wire
from harness.protocol.conversation import Conversation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.protocol.command_stream import Stream
    from harness.protocol.control_connection import ControlConnection
    from harness.protocol.resp import Client, Reply

Write = tuple[bytes, int]
"""The bytes that a client sends in one write, and the number of commands in them."""


def ask(client: Client, stream: Stream) -> list[Reply]:
    """Send a stream in its pieces, each in one write, and return all replies, with error replies in place.

    Raises ServerGoneError or TimeoutError; use `ask_into` to keep the replies that came before.
    """
    replies: list[Reply] = []
    ask_into(replies, client, stream)
    return replies


def ask_into(replies: list[Reply], client: Client, stream: Stream) -> None:
    """Send a stream, and append each reply to a list as it arrives: replies before an error are kept."""
    ask_writes_into(replies, client, writes_of(stream))


def writes_of(stream: Stream) -> list[Write]:
    """A stream as a client sends it: each of its pieces. It is made once for two servers."""
    return [(wire(piece), len(piece)) for piece in pieces(stream)]


def ask_writes_into(replies: list[Reply], client: Client, writes: Iterable[Write]) -> None:
    """`ask_into` for what `writes_of` made of a stream."""
    for content, count in writes:
        client.send(content)
        client.receive_into(replies, count)


def ask_all_into(
    replies: list[Reply], clients: list[Client], stream: Stream, control: ControlConnection, *, deadline_seconds: float
) -> None:
    """`ask_into` for a stream of as many clients, who take turns. `control`: as of a conversation."""
    if len(clients) == 1:
        ask_into(replies, clients[0], stream)
    else:
        Conversation(clients, control, deadline_seconds=deadline_seconds).ask_into(replies, stream)
