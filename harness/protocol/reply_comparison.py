"""One stream asked of two servers: do their replies agree? What has no specified order is compared without it.

A target and this machine may answer differently although both are right. harness/protocol/differences.toml lists these
differences with their reasons, and harness/protocol/refusals.toml lists the numbers that do not fit a `long` of 32
bits. Any other difference counts.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.core.model import Record
from harness.core.strict_toml import read_toml
from harness.protocol.allowed_refusals import refused
from harness.protocol.command_stream import command, line_of, pieces, wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.target_model import Target
    from harness.protocol.allowed_refusals import Refusal, Release
    from harness.protocol.command_stream import Command, Stream
    from harness.protocol.resp import Client, Reply

DIFFERENCES = Path(__file__).with_name("differences.toml")
EMPTY = (command("FLUSHALL"), command("CONFIG", "SET", "rdbcompression", "no"))
"""What both are sent first, unrecorded. LZF's table is not cleared, so that two right servers compress differently."""
SHOWN = 200
"""How many characters of a command or reply a message shows."""


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
    """What the guest may say instead: a regular expression for the whole reply."""
    native: str
    """Of what the native build says: likewise."""
    ends: bool
    """Whether what is stored differs from then on, so that nothing after it can be compared."""
    reason: str
    width_bits: Literal[32, 64, "any"] = "any"
    """Of the targets that it is about."""
    asked: str = ""
    """A regular expression that is to be found in one of the command's words; empty: whatever was asked."""
    digits: int = 0
    """Decimal digits in which both must agree nevertheless, of the largest among them and the command's last word, what
    is added; 0: they need not be numbers."""


class AllowedDifferenceTable(Record, frozen=True):
    """harness/protocol/differences.toml."""

    unordered: list[str]
    """Commands whose array has no order."""
    unordered_pairs: list[str]
    """The same, where names and values alternate."""
    rounded: list[Tolerance]
    excuses: list[AllowedDifference]


class ReplyDifference(Record, frozen=True):
    """The first command of a stream that two servers answer differently."""

    index: int
    command: str
    name: str
    """The command's, in capitals."""
    guest: str
    native: str

    def __str__(self) -> str:
        return f"{self.command:.{SHOWN}}: guest {self.guest}, native {self.native}"


@cache
def known() -> AllowedDifferenceTable:
    """What may differ."""
    return read_toml(DIFFERENCES, AllowedDifferenceTable)


def ask(client: Client, stream: Stream) -> list[Reply]:
    """Send a stream as it says, each piece in one write, and return all replies; error replies in place.

    Raises ServerGoneError or TimeoutError; `received` of a ServerGoneError does not exist: use `ask_into`.
    """
    replies: list[Reply] = []
    ask_into(replies, client, stream)
    return replies


def ask_into(replies: list[Reply], client: Client, stream: Stream) -> None:
    """The same, with the replies put into a list as they come: what was answered before an end is there."""
    for piece in pieces(stream):
        client.send(wire(piece))
        replies.extend(client.receive() for _ in piece)


def comparable(name: str, reply: Reply) -> Reply:
    """A reply as it is compared: an error by its text, an unordered array sorted, a rounded number rounded."""
    listed = known()
    if isinstance(reply, Exception):
        return f"error: {reply}".encode()
    if isinstance(reply, list):
        reply = [comparable("", inner) for inner in reply]
        if name in listed.unordered:
            return sorted(reply, key=repr)
        if name in listed.unordered_pairs and len(reply) % 2 == 0:
            pairs = sorted(zip(reply[::2], reply[1::2], strict=True), key=repr)
            return [word for pair in pairs for word in pair]
    digits = next((one.digits for one in listed.rounded if name in one.commands), 0)
    return _rounded(reply, digits) if digits else reply


def _rounded(reply: Reply, digits: int) -> Reply:
    if isinstance(reply, list):
        return [_rounded(one, digits) for one in reply]
    try:
        return f"{float(reply):.{digits}g}".encode() if isinstance(reply, bytes) else reply
    except ValueError:
        return reply


def excused(
    request: Command, guest: Reply, native: Reply, target: Target, release: Release
) -> AllowedDifference | Refusal | None:
    """Why two comparable replies may differ; None if they may not."""
    refusal = refused(request, _error(guest), _error(native), release, target.width_bits)
    return refusal or next(
        (
            entry
            for entry in known().excuses
            if entry.width_bits in {target.width_bits, "any"}
            and (request.name in entry.commands or "*" in entry.commands)
            and any(re.search(entry.asked.encode(), word) for word in request.words)
            and re.fullmatch(entry.guest.encode(), _text(guest), re.DOTALL)
            and re.fullmatch(entry.native.encode(), _text(native), re.DOTALL)
            and (not entry.digits or _close(_text(guest), _text(native), request.words[-1], entry.digits))
        ),
        None,
    )


ANY = ".*"
"""An excuse for whatever is answered."""


def uncompared(stream: Stream) -> list[str]:
    """The names of a stream's commands to which two right servers may answer anything."""
    free = {name for one in known().excuses if (one.guest, one.native) == (ANY, ANY) for name in one.commands}
    return list(dict.fromkeys(one.name for one in stream if one.name in free))


_ERROR = b"error: "


def _error(reply: Reply) -> str | None:
    """The text of a comparable reply that is an error."""
    if not isinstance(reply, bytes) or not reply.startswith(_ERROR):
        return None
    return reply.removeprefix(_ERROR).decode("utf-8", "replace")


def _close(guest: bytes, native: bytes, added: bytes, digits: int) -> bool:
    try:
        guest_value, native_value, operand = float(guest), float(native), float(added)
    except ValueError:
        return False
    # Where a sum is small and its operands are not, the digits that are wrong are theirs.
    return bool(
        abs(guest_value - native_value) <= 10.0**-digits * max(abs(guest_value), abs(native_value), abs(operand))
    )


def _text(reply: Reply) -> bytes:
    return reply if isinstance(reply, bytes) else repr(reply).encode()


def first_difference(
    stream: Sequence[Command], guest: Sequence[Reply], native: Sequence[Reply], target: Target, release: Release
) -> ReplyDifference | None:
    """The first command whose replies disagree, but for what is excused. `release`: of the server that is both."""
    queued: list[Command] = []
    for index, (command_sent, ours, theirs) in enumerate(zip(stream, guest, native, strict=False)):
        inside = isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs) == len(queued)
        unpack = command_sent.name == "EXEC" and inside
        pairs = list(zip(queued, ours, theirs, strict=True)) if unpack else [(command_sent, ours, theirs)]  # type: ignore[arg-type]
        if command_sent.name in {"EXEC", "DISCARD"} or (command_sent.name == "MULTI" and ours == b"OK"):
            queued = []
        elif ours == b"QUEUED":
            queued.append(command_sent)
        for request, mine, other in pairs:
            left, right = comparable(request.name, mine), comparable(request.name, other)
            if left == right:
                continue
            excuse = excused(request, left, right, target, release)
            if excuse is None:
                return _difference(index, request, left, right)
            if _parts(excuse, right):
                return None
    return None


def _parts(excuse: AllowedDifference | Refusal, native: Reply) -> bool:
    """Whether what is stored differs from an excused reply on."""
    return excuse.ends if isinstance(excuse, AllowedDifference) else excuse.changes and _error(native) is None


def _difference(index: int, request: Command, guest: Reply, native: Reply) -> ReplyDifference:
    return ReplyDifference(
        index=index, command=line_of(request).strip(), name=request.name, guest=shown(guest), native=shown(native)
    )


def shown(reply: Reply) -> str:
    """A reply for a message."""
    text = repr(reply)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…({len(text)} characters)"
