"""Compares two servers' replies to one stream. Replies without a specified order are compared without it.

A target and the native build may answer differently although both are right. harness/protocol/differences.toml lists
these differences with their reasons, and harness/protocol/refusals.toml lists the numbers that do not fit a `long` of
32 bits. Any other difference counts.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core.model import Record
from harness.core.strict_toml import read_toml
from harness.protocol.allowed_refusals import NARROW_BITS, has_wide_number, is_among, refused
from harness.protocol.command_stream import command, line_of, pieces, wire
from harness.protocol.conversation import Conversation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.target_model import Target
    from harness.protocol.allowed_refusals import Refusal, Release
    from harness.protocol.command_stream import Command, Stream
    from harness.protocol.control_connection import ControlConnection
    from harness.protocol.resp import Client, Reply

DIFFERENCES = Path(__file__).with_name("differences.toml")
STEADY = (command("CONFIG", "SET", "rdbcompression", "no"), command("CONFIG", "SET", "hz", 500))
"""Settings that both servers receive first, unrecorded. Compression is off because LZF does not clear its table, so
that two correct servers compress differently. A client that blocks waits for its timeout until the server looks at the
time, by default ten times a second."""
EMPTY = (command("FLUSHALL"), command("FUNCTION", "FLUSH"), *STEADY)
"""Commands that make both servers empty, unrecorded; before 7.0 they refuse the second."""
SHOWN = 200
"""Length of a command or reply in a message, in characters."""


class Tolerance(Record, frozen=True):
    """Commands whose replies are floating-point numbers that may differ in their last digits."""

    commands: list[str]
    digits: int
    """Significant decimal digits that must agree."""
    reason: str


class AllowedDifference(Record, frozen=True):
    """A reply that may differ on some targets."""

    commands: list[str]
    """Names; `*` for every command."""
    guest: str
    """Regular expression for the guest's whole reply."""
    native: str
    """Regular expression for the native build's whole reply."""
    ends: bool
    """Whether the stored data differ afterwards, so that later replies cannot be compared."""
    reason: str
    width_bits: Literal[32, 64, "any"] = "any"
    """Width of the targets that it applies to."""
    redis: list[str] = msgspec.field(default_factory=lambda: ["0"])
    """Releases that it applies to, as of a refusal: [first], [first, first without it], or none. No key: all."""
    valkey: list[str] = msgspec.field(default_factory=lambda: ["0"])
    asked: str = ""
    """Regular expression that one of the command's words must contain; empty: any command matches."""
    unless: str = ""
    """Regular expression that none of the command's words may contain; empty: any command matches."""
    digits: int = 0
    """Decimal digits in which both replies must still agree, relative to the largest of the two replies and the
    command's last word, the addend; 0: they need not be numbers."""
    within: int = 0
    """The largest difference between the numbers that the groups of both expressions capture; 0: any."""
    counted: bool = False
    """Whether arrays still have equally many elements."""


class AllowedDifferenceTable(Record, frozen=True):
    """harness/protocol/differences.toml."""

    unordered: list[str]
    """Commands that reply an array without an order."""
    unordered_pairs: list[str]
    """Commands that reply names and values in turn, without an order."""
    unordered_parts: list[str]
    """Commands whose reply is an array, a part of which has no order: the cursor and the elements of SCAN."""
    rounded: list[Tolerance]
    excuses: list[AllowedDifference]


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


@cache
def known() -> AllowedDifferenceTable:
    """The differences that are allowed."""
    return read_toml(DIFFERENCES, AllowedDifferenceTable)


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


Write = tuple[bytes, int]
"""What a client sends in one write, and the number of commands in it."""


def writes_of(stream: Stream) -> list[Write]:
    """A stream as a client sends it: each of its pieces. To ask two servers, one makes it once."""
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


def comparable(name: str, reply: Reply) -> Reply:
    """A reply in the form for comparison: an error as its text, an unordered array sorted, a number rounded."""
    listed = known()
    if isinstance(reply, Exception):
        return f"error: {reply}".encode()
    if isinstance(reply, list):
        reply = [comparable("", inner) for inner in reply]
        if name in listed.unordered_parts:
            return [sorted(inner, key=repr) if isinstance(inner, list) else inner for inner in reply]
        if name in listed.unordered:
            return sorted(reply, key=repr)
        if name in listed.unordered_pairs and len(reply) % 2 == 0:
            pairs = sorted(zip(reply[::2], reply[1::2], strict=True), key=repr)
            return [word for pair in pairs for word in pair]
    digits = _digits_of(name)
    return _rounded(reply, digits) if digits else reply


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


def excused(
    request: Command, guest: Reply, native: Reply, target: Target, release: Release, *, slack: int = 1
) -> AllowedDifference | Refusal | None:
    """The entry that allows two comparable replies to differ; None if there is none.

    `slack`: how many times as far apart as the entry says moments may be.
    """
    refusal = refused(request, _error(guest), _error(native), release, target.width_bits)
    return refusal or next(
        (
            entry
            for entry in _entries_of(request.name)
            if entry.width_bits in {target.width_bits, "any"}
            and is_among(release, entry.redis, entry.valkey)
            and _concerns(entry, request)
            and re.fullmatch(entry.guest.encode(), _text(guest), re.DOTALL)
            and re.fullmatch(entry.native.encode(), _text(native), re.DOTALL)
            and (not entry.digits or _close(_text(guest), _text(native), request.words[-1], entry.digits))
            and (not entry.within or _near(entry, _text(guest), _text(native), slack))
            and (not _allows_anything(entry) or _is_alike(entry, request, guest, native, target))
        ),
        None,
    )


@lru_cache(maxsize=4096)
def _entries_of(name: str) -> tuple[AllowedDifference, ...]:
    """The entries for a command, in their order."""
    return tuple(one for one in known().excuses if name in one.commands or "*" in one.commands)


def _concerns(entry: AllowedDifference, request: Command) -> bool:
    """Whether an entry for the command is one for these words of it."""
    return any(re.search(entry.asked.encode(), word) for word in request.words) and not (
        entry.unless and any(re.search(entry.unless.encode(), word) for word in request.words)
    )


ANY = ".*"
"""The pattern of an entry that allows every reply of a kind: no server refuses what another one answers."""


def _allows_anything(entry: AllowedDifference) -> bool:
    return (entry.guest, entry.native) == (ANY, ANY)


def _is_alike(entry: AllowedDifference, request: Command, guest: Reply, native: Reply, target: Target) -> bool:
    """Whether two replies that differ are of one kind: no errors, both nothing or neither, both arrays or neither."""
    if target.width_bits == NARROW_BITS and has_wide_number(request):
        # Which of these a server refuses is listed for commands that are compared.
        return True
    if _error(guest) is not None or _error(native) is not None:
        return False
    if (guest is None) != (native is None) or isinstance(guest, list) != isinstance(native, list):
        return False
    return not (entry.counted and isinstance(guest, list) and isinstance(native, list)) or len(guest) == len(native)


def is_free(request: Command) -> bool:
    """Whether two correct servers may answer anything of a kind."""
    return any(_allows_anything(one) and _concerns(one, request) for one in _entries_of(request.name))


def uncompared(stream: Stream) -> list[str]:
    """The names of a stream's commands to which two correct servers may answer anything."""
    return list(dict.fromkeys(one.name for one in stream if is_free(one)))


_ERROR = b"error: "


def _error(reply: Reply) -> str | None:
    """The text of a comparable reply that is an error, else None."""
    if not isinstance(reply, bytes) or not reply.startswith(_ERROR):
        return None
    return reply.removeprefix(_ERROR).decode("utf-8", "replace")


def _close(guest: bytes, native: bytes, added: bytes, digits: int) -> bool:
    try:
        guest_value, native_value, operand = float(guest), float(native), float(added)
    except ValueError:
        return False
    # A small sum of large operands has wrong digits because of the operands.
    return bool(
        abs(guest_value - native_value) <= 10.0**-digits * max(abs(guest_value), abs(native_value), abs(operand))
    )


def _near(entry: AllowedDifference, guest: bytes, native: bytes, slack: int) -> bool:
    captured = [
        found.groups() if (found := re.fullmatch(expression.encode(), reply, re.DOTALL)) else ()
        for expression, reply in ((entry.guest, guest), (entry.native, native))
    ]
    return all(abs(int(mine) - int(other)) <= slack * entry.within for mine, other in zip(*captured, strict=True))


def _text(reply: Reply) -> bytes:
    return reply if isinstance(reply, bytes) else repr(reply).encode()


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
    queues: dict[int, list[Command]] = {}
    for index, (command_sent, guest_reply, native_reply) in enumerate(zip(stream, guest, native, strict=False)):
        queued = queues.setdefault(command_sent.client, [])
        pairs = [(command_sent, guest_reply, native_reply)]
        if (
            command_sent.name == "EXEC"
            and isinstance(guest_reply, list)
            and isinstance(native_reply, list)
            and len(guest_reply) == len(native_reply) == len(queued)
        ):
            pairs = list(zip(queued, guest_reply, native_reply, strict=True))
        if command_sent.name in {"EXEC", "DISCARD"} or (command_sent.name == "MULTI" and guest_reply == b"OK"):
            queues[command_sent.client] = []
        elif guest_reply == b"QUEUED":
            queued.append(command_sent)
        for request, mine, other in pairs:
            if mine == other:
                # Most are; errors never, which Python compares as objects.
                continue
            left, right = comparable(request.name, mine), comparable(request.name, other)
            if left == right:
                continue
            excuse = excused(request, left, right, target, release, slack=slack)
            if excuse is None:
                return _difference(index, request, left, right)
            if _parts(excuse, right):
                return None
    return None


def _parts(excuse: AllowedDifference | Refusal, native: Reply) -> bool:
    """Whether the stored data differ after an allowed difference."""
    return excuse.ends if isinstance(excuse, AllowedDifference) else excuse.changes and _error(native) is None


def _difference(index: int, request: Command, guest: Reply, native: Reply) -> ReplyDifference:
    return ReplyDifference(
        index=index, command=line_of(request).strip(), name=request.name, guest=shown(guest), native=shown(native)
    )


def shown(reply: Reply) -> str:
    """A reply as a message shows it."""
    text = repr(reply)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…({len(text)} characters)"
