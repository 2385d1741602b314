"""Compares two servers' replies to one stream. Replies without a specified order are compared without it.

A target and the native build may answer differently although both are right. harness/protocol/differences.toml lists
these differences with their reasons, and harness/protocol/refusals.toml lists the numbers that do not fit a `long` of
32 bits. Any other difference counts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from harness.core.model import Record
from harness.protocol.allowed_differences import ERROR_PREFIX, ends_comparison, excused, known
from harness.protocol.command_stream import command, line_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.core.target_model import Target
    from harness.protocol.allowed_refusals import Release
    from harness.protocol.command_stream import Command
    from harness.protocol.resp import Reply

STEADY = (command("CONFIG", "SET", "rdbcompression", "no"), command("CONFIG", "SET", "hz", 500))
"""Settings that both servers receive first, unrecorded. Compression is off because LZF does not clear its table, so two
correct servers compress differently. A client that blocks waits for its timeout until the server looks at the time, by
default ten times a second.
"""
EMPTY = (command("FLUSHALL"), command("FUNCTION", "FLUSH"), *STEADY)
"""Commands that make both servers empty, unrecorded; before 7.0 they refuse the second."""
SHOWN = 200
"""Length of a command or reply in a message, in characters."""


class ReplyDifference(Record, frozen=True):
    """The first command of a stream that two servers answer differently."""

    index: int
    command: str
    name: str
    """The command's name in capitals."""
    guest: str
    native: str

    def __str__(self) -> str:
        return f"{self.command:.{SHOWN}}: guest {self.guest}, native {self.native}"


def comparable(name: str, reply: Reply) -> Reply:
    """A reply in the form for comparison: an error as its text, an unordered array sorted, a number rounded."""
    listed = known()
    if isinstance(reply, Exception):
        return ERROR_PREFIX + str(reply).encode()
    if isinstance(reply, list):
        reply = [comparable("", inner) for inner in reply]
        if name in listed.unordered_parts:
            return [sorted(inner, key=repr) if isinstance(inner, list) else inner for inner in reply]
        if name in listed.unordered_words:
            reply = [_words_in_order(inner) for inner in reply]
        if name in listed.unordered:
            return sorted(reply, key=repr)
        if name in listed.unordered_pairs and len(reply) % 2 == 0:
            pairs = sorted(zip(reply[::2], reply[1::2], strict=True), key=repr)
            return [word for pair in pairs for word in pair]
    digits = _digits_of(name)
    return _rounded(reply, digits) if digits else reply


def _words_in_order(reply: Reply) -> Reply:
    """A reply with the words of its texts in alphabetical order."""
    if isinstance(reply, list):
        return [_words_in_order(inner) for inner in reply]
    return b" ".join(sorted(reply.split(b" "))) if isinstance(reply, bytes) else reply


@lru_cache(maxsize=4096)
def _digits_of(name: str) -> int:
    """The significant digits of a command's replies; 0: all."""
    return next((one.digits for one in known().rounded if name in one.commands), 0)


def _rounded(reply: Reply, digits: int) -> Reply:
    if isinstance(reply, list):
        return [_rounded(one, digits) for one in reply]
    try:
        return f"{float(reply):.{digits}g}".encode() if isinstance(reply, bytes | float) else reply
    except ValueError:
        return reply


def first_difference(
    stream: Sequence[Command],
    guest: Sequence[Reply],
    native: Sequence[Reply],
    target: Target,
    release: Release,
    *,
    slack: int = 1,
) -> ReplyDifference | None:
    """The first command whose replies differ without an entry that allows it.

    `release`: of both servers. `slack`: as in `excused`.
    """
    for index, request, mine, other in _answered(stream, guest, native):
        if mine == other:
            # Most are; errors never, which Python compares as objects.
            continue
        left, right = comparable(request.name, mine), comparable(request.name, other)
        if left == right:
            continue
        excuse = excused(request, left, right, target, release, slack=slack)
        if excuse is None:
            return _difference(index, request, left, right)
        if ends_comparison(excuse, right):
            return None
    return None


def _answered(
    stream: Sequence[Command], guest: Sequence[Reply], native: Sequence[Reply]
) -> Iterator[tuple[int, Command, Reply, Reply]]:
    """Each command that both servers answered, with both replies. Instead of EXEC these are the commands of its
    transaction, if both servers have executed all of them; the index is that of EXEC.
    """
    queues: dict[int, list[Command]] = {}
    for index, (request, mine, other) in enumerate(zip(stream, guest, native, strict=False)):
        queued = queues.setdefault(request.client, [])
        if (
            request.name == "EXEC"
            and isinstance(mine, list)
            and isinstance(other, list)
            and len(mine) == len(other) == len(queued)
        ):
            yield from ((index, *each) for each in zip(queued, mine, other, strict=True))
        else:
            yield index, request, mine, other
        if request.name in {"EXEC", "DISCARD"} or (request.name == "MULTI" and mine == b"OK"):
            queues[request.client] = []
        elif mine == b"QUEUED":
            queued.append(request)


def _difference(index: int, request: Command, guest: Reply, native: Reply) -> ReplyDifference:
    return ReplyDifference(
        index=index, command=line_of(request).strip(), name=request.name, guest=shown(guest), native=shown(native)
    )


def shown(reply: Reply) -> str:
    """A reply as a message shows it."""
    text = repr(reply)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…({len(text)} characters)"
