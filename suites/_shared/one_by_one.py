"""Sends requests one by one to a guest and to the native build, and compares the replies as text."""

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
"""Maximum length of a reply in a message, in characters."""


class AnsweredRequest(NamedTuple):
    """A request and its reply."""

    request: Command
    reply: Reply
    shown: str
    """The reply as text, without parts that differ between two servers of the same build."""


def answers(guest: Guest, stream: Iterable[Command], shown: Callable[[Reply], str]) -> list[AnsweredRequest]:
    """A server's replies to requests. Each request is sent after the reply to the one before it."""
    with server.client(guest) as client:
        replies = [(one, client.pipeline([one.words])[0]) for one in stream]
    return [AnsweredRequest(one, reply, shown(reply)) for one, reply in replies]


def compare(guest: Sequence[AnsweredRequest], native: Sequence[AnsweredRequest], target: str) -> None:
    """Raise DifferenceError for the first reply of the guest, on that target, that differs from the native build's."""
    for ours, theirs in zip(guest, native, strict=True):
        if ours.shown != theirs.shown:
            message = f"{line_of(ours.request):.100}: {ours.shown:.{SHOWN}}, native {theirs.shown:.{SHOWN}}"
            raise differing(ours.request.words, ours.reply, theirs.reply, target, message)
