"""Requests that a guest and its twin of the native build answer one by one; their replies must be equal as they are
shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from harness.protocol.command_stream import line_of
from suites._shared.keyspace import server
from suites._shared.paired_servers import differing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from harness.protocol.command_stream import Command
    from harness.protocol.resp import Reply
    from harness.run.server_process import Guest

SHOWN = 600
"""Length of a reply in a message, in characters."""


class AnsweredRequest(NamedTuple):
    """A request and its reply."""

    request: Command
    reply: Reply
    shown: str
    """The reply as text, without what differs between two servers of one kind."""


def answers(guest: Guest, stream: Iterable[Command], shown: Callable[[Reply], str]) -> list[AnsweredRequest]:
    """A server's replies to requests, each of which is sent after the last one was answered."""
    with server.client(guest) as client:
        replies = [(one, client.pipeline([one.words])[0]) for one in stream]
    return [AnsweredRequest(one, reply, shown(reply)) for one, reply in replies]


def compare(guest: Sequence[AnsweredRequest], native: Sequence[AnsweredRequest], target: str) -> None:
    """Raise DifferenceError for the first request that the guest, on that target, does not answer as its twin does."""
    for ours, theirs in zip(guest, native, strict=True):
        if ours.shown != theirs.shown:
            message = f"{line_of(ours.request):.100}: {ours.shown:.{SHOWN}}, native {theirs.shown:.{SHOWN}}"
            raise differing(ours.request.words, ours.reply, theirs.reply, target, message)
