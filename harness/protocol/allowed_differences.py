"""The differences between the replies of two correct servers, as harness/protocol/differences.toml lists them.

A target and the native build may answer differently although both are correct. Each entry names commands, both replies
and a reason. Replies are in the form for comparison: an error is its text.
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

if TYPE_CHECKING:
    from harness.core.target_model import Target
    from harness.protocol.allowed_refusals import Refusal, Release
    from harness.protocol.command_stream import Command, Stream
    from harness.protocol.resp import Reply

DIFFERENCES = Path(__file__).with_name("differences.toml")
ANY = ".*"
"""The pattern of an entry that allows every reply of a kind, but not an error in place of a reply or the reverse."""
ERROR_PREFIX = b"error: "
"""Begins the comparable form of an error reply."""


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
    """Whether the stored data differ afterwards, which makes later replies incomparable."""
    reason: str
    width_bits: Literal[32, 64, "any"] = "any"
    """Width of the targets that it applies to."""
    detectors: list[str] = msgspec.field(default_factory=list)
    """Detectors of the targets that it applies to; none: every target."""
    redis: list[str] = msgspec.field(default_factory=lambda: ["0"])
    """Releases to which it applies, as for a refusal: [first], [first, first without it], or none. No key: all."""
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
    """Commands whose reply is an array in no particular order."""
    unordered_words: list[str]
    """Commands whose reply is an array with texts of words in no particular order: the rules of ACL GETUSER."""
    unordered_pairs: list[str]
    """Commands whose reply alternates names and values, in no particular order."""
    unordered_parts: list[str]
    """Commands whose reply is an array with a part in no particular order: the cursor and the elements of SCAN."""
    rounded: list[Tolerance]
    excuses: list[AllowedDifference]


@cache
def known() -> AllowedDifferenceTable:
    """The differences that are allowed."""
    return read_toml(DIFFERENCES, AllowedDifferenceTable)


def excused(
    request: Command, guest: Reply, native: Reply, target: Target, release: Release, *, slack: int = 1
) -> AllowedDifference | Refusal | None:
    """The entry that allows two comparable replies to differ; None if there is none.

    `slack`: how many times as far apart as the entry says moments may be.
    """
    refusal = refused(request, _error_of(guest), _error_of(native), release, target.width_bits)
    return refusal or next(
        (
            entry
            for entry in _entries_of(request.name)
            if entry.width_bits in {target.width_bits, "any"}
            and (not entry.detectors or target.emulator.detector in entry.detectors)
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


def _allows_anything(entry: AllowedDifference) -> bool:
    return (entry.guest, entry.native) == (ANY, ANY)


def _is_alike(entry: AllowedDifference, request: Command, guest: Reply, native: Reply, target: Target) -> bool:
    """Whether two replies that differ are of one kind: no errors, both nothing or neither, both arrays or neither."""
    if target.width_bits == NARROW_BITS and has_wide_number(request):
        # Which of these a server refuses is listed for commands that are compared.
        return True
    if _error_of(guest) is not None or _error_of(native) is not None:
        return False
    if (guest is None) != (native is None) or isinstance(guest, list) != isinstance(native, list):
        return False
    return not (entry.counted and isinstance(guest, list) and isinstance(native, list)) or len(guest) == len(native)


def is_free(request: Command) -> bool:
    """Whether two correct servers may give any answers of a kind."""
    return any(_allows_anything(one) and _concerns(one, request) for one in _entries_of(request.name))


def uncompared(stream: Stream) -> list[str]:
    """The names of a stream's commands to which two correct servers may give any answers."""
    return list(dict.fromkeys(one.name for one in stream if is_free(one)))


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


def ends_comparison(excuse: AllowedDifference | Refusal, native: Reply) -> bool:
    """Whether the stored data differ after an allowed difference."""
    return excuse.ends if isinstance(excuse, AllowedDifference) else excuse.changes and _error_of(native) is None


def _error_of(reply: Reply) -> str | None:
    """The text of a comparable reply that is an error, else None."""
    if not isinstance(reply, bytes) or not reply.startswith(ERROR_PREFIX):
        return None
    return reply.removeprefix(ERROR_PREFIX).decode("utf-8", "replace")
